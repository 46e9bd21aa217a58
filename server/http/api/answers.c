#include "server/http/api/handlers.h"

#include <string.h>

#include "server/http/api/schema.h"
#include "server/memory/refusal.h"
#include "server/oip/encode.h"

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
    return atomic_load(&visit->server->draining)
               ? qd_visit_answer_constant(visit->request, QD_UNAVAILABLE, &not_ready)
               : qd_visit_answer_constant(visit->request, QD_OK, &ready);
}

enum qd_status qd_answer_server(const struct qd_visit *visit)
{
    char kernels[QK_KERNELS_TEXT_BYTES];
    struct qd_text text;
    qk_kernels_describe(visit->server->tools.kernels, kernels, sizeof(kernels));
    qd_text_init(&text, &visit->request->arena);
    qd_oip_encode_server_metadata(&text, visit->server->config, kernels);
    return qd_visit_answer_text(visit->request, &text);
}

/* Those that the path means: all of the name, or one. */
static uint64_t *list_versions(const struct qd_visit *visit, size_t *count)
{
    const struct qd_signature *signature = &visit->request->model->signature;
    struct qd_arena *arena = &visit->request->arena;
    if (visit->path->version == NULL)
        return qd_models_versions(visit->server->models, signature->name, arena, count);
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
    qd_oip_encode_model_metadata(&text, &request->model->signature, versions, count,
                                 request->model->resident_bytes);
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
    if (atomic_load(&visit->server->draining))
        return qd_visit_answer_constant(visit->request, QD_UNAVAILABLE, &not_ready);
    qd_text_init(&text, &visit->request->arena);
    qd_text_string(&text, "{\"name\":");
    qd_text_json_string(&text, visit->request->model->signature.name);
    qd_text_string(&text, ",\"ready\":true}");
    return qd_visit_answer_text(visit->request, &text);
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
