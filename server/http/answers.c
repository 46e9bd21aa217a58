#include "server/http/answers.h"

#include <string.h>

#include "server/base/gauges.h"
#include "server/base/limits.h"
#include "server/base/log.h"
#include "server/base/refusal.h"
#include "server/base/schema.h"
#include "server/oip/encode.h"
#include "server/oip/regions.h"

#define CONSTANT(text)         \
    {                          \
        text, sizeof(text) - 1 \
    }

/* Health needs no memory, and so does not depend on who else holds it. */
enum qd_status qd_answer_live(const struct qd_visit *visit)
{
    static const struct qd_part live = CONSTANT("{\"live\":true}");
    return qd_visit_answer_constant(visit->request, QD_OK, &live);
}

static const struct qd_part not_ready =
    CONSTANT("{\"error\":\"the server drains: it answers what it has, and then exits\","
             "\"ready\":false}");

enum qd_status qd_answer_ready(const struct qd_visit *visit)
{
    static const struct qd_part ready = CONSTANT("{\"ready\":true,\"live\":true}");
    return atomic_load(&visit->router->draining)
               ? qd_visit_answer_constant(visit->request, QD_UNAVAILABLE, &not_ready)
               : qd_visit_answer_constant(visit->request, QD_OK, &ready);
}

enum qd_status qd_answer_server(const struct qd_visit *visit)
{
    struct qd_text text;
    qd_text_init(&text, &visit->request->arena);
    qd_oip_encode_server_metadata(&text, visit->router->regions != NULL);
    return qd_visit_answer_text(visit->request, &text);
}

/* Those that the path means: all of the name, or one. */
static uint64_t *list_versions(const struct qd_visit *visit, size_t *count)
{
    const struct qd_signature *signature = &visit->request->model->signature;
    struct qd_arena *arena = &visit->request->arena;
    if (visit->path->version == NULL)
        return qd_models_versions(visit->router->models, signature->name, arena, count);
    uint64_t *only = qd_arena_alloc(arena, sizeof(*only));
    if (only != NULL)
        *only = signature->version;
    *count = 1;
    return only;
}

enum qd_status qd_answer_model(const struct qd_visit *visit)
{
    struct qd_request *request = visit->request;
    struct qd_text text;
    size_t count;
    if (qd_visit_find_model(visit) != QD_OK)
        return request->error.status;
    const uint64_t *versions = list_versions(visit, &count);
    if (versions == NULL)
        return qd_refuse_memory(&request->arena, "the answer", &request->error);
    qd_text_init(&text, &request->arena);
    qd_oip_encode_model_metadata(&text, &request->model->signature, versions, count);
    return qd_visit_answer_text(request, &text);
}

enum qd_status qd_answer_config(const struct qd_visit *visit)
{
    struct qd_request *request = visit->request;
    struct qd_text text;
    if (qd_visit_find_model(visit) != QD_OK)
        return request->error.status;
    qd_text_init(&text, &request->arena);
    qd_oip_encode_model_config(&text, &request->model->signature);
    return qd_visit_answer_text(request, &text);
}

enum qd_status qd_answer_model_ready(const struct qd_visit *visit)
{
    struct qd_text text;
    if (qd_visit_find_model(visit) != QD_OK)
        return visit->request->error.status;
    if (atomic_load(&visit->router->draining))
        return qd_visit_answer_constant(visit->request, QD_UNAVAILABLE, &not_ready);
    qd_text_init(&text, &visit->request->arena);
    qd_text_string(&text, "{\"name\":");
    qd_text_json_string(&text, visit->request->model->signature.name);
    qd_text_string(&text, ",\"ready\":true}");
    return qd_visit_answer_text(visit->request, &text);
}

enum qd_status qd_answer_stats(const struct qd_visit *visit)
{
    struct qd_text text;
    if (visit->path->model != NULL && qd_visit_find_model(visit) != QD_OK)
        return visit->request->error.status;
    const struct qd_model *model = visit->request->model;
    qd_text_init(&text, &visit->request->arena);
    qd_metrics_print_stats(visit->router->metrics, model == NULL ? NULL : model->signature.name,
                           visit->path->version == NULL ? NULL : &model->signature.version, &text);
    return qd_visit_answer_text(visit->request, &text);
}

static struct qd_bound memory_bound(struct qd_memory *memory)
{
    return (struct qd_bound){qd_memory_used(memory), qd_memory_max(memory)};
}

enum qd_status qd_answer_metrics(const struct qd_visit *visit)
{
    const struct qd_router *router = visit->router;
    struct qd_listener_gauge listeners[QD_LISTEN_COUNT_MAX];
    uint64_t connections[QD_IO_THREAD_COUNT_MAX];
    struct qd_gauges gauges = {
        .cpu_tier = qk_kernels_tier(router->tools.kernels),
        .gemm = qk_kernels_gemm(router->tools.kernels),
        .blas_core = qk_kernels_blas_core(router->tools.kernels),
        .queue = qd_scheduler_queue(router->tools.scheduler),
        .workers = qd_scheduler_workers(router->tools.scheduler),
        .inflight = memory_bound(router->memory),
        .models = memory_bound(router->model_memory),
        .loads = {qd_loader_waiting_count(router->loader), QD_LOADER_WAITING_MAX},
        .inflight_kept = qd_memory_kept(router->memory),
        .models_kept = qd_memory_kept(router->model_memory),
        .model_count = qd_models_loaded_count(router->models),
        .connections = connections,
        .listeners = listeners,
        .event_lines_dropped = qd_log_dropped(),
    };
    if (router->regions != NULL) {
        gauges.regions = qd_regions_count(router->regions);
        gauges.region_bytes = qd_regions_bytes(router->regions);
    }
    if (router->journal.file != NULL)
        gauges.access_lines_dropped = qd_log_file_dropped(router->journal.file);
    if (router->listeners != NULL) {
        gauges.io_thread_count = qd_listeners_connections(router->listeners, connections);
        gauges.listener_count = qd_listeners_gauges(router->listeners, listeners);
    }
    qd_process_read(&gauges.process);
    struct qd_text text;
    qd_text_init(&text, &visit->request->arena);
    qd_metrics_print(router->metrics, &text);
    qd_gauges_print(&gauges, &text);
    enum qd_status status = qd_visit_answer_text(visit->request, &text);
    visit->request->answer.content_type = "text/plain; version=0.0.4; charset=utf-8";
    return status;
}

static enum qd_status answer_schema(const struct qd_visit *visit, struct qd_part schema,
                                    const char *content_type)
{
    struct qd_text text;
    qd_text_init(&text, &visit->request->arena);
    qd_text_borrow(&text, schema.bytes, schema.count);
    enum qd_status status = qd_visit_answer_text(visit->request, &text);
    visit->request->answer.content_type = content_type;
    return status;
}

enum qd_status qd_answer_schema_yaml(const struct qd_visit *visit)
{
    return answer_schema(visit, qd_schema_yaml(), "application/yaml");
}

enum qd_status qd_answer_schema_json(const struct qd_visit *visit)
{
    return answer_schema(visit, qd_schema_json(), "application/json");
}
