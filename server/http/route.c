#include "server/http/route.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "server/base/limits.h"
#include "server/base/log.h"
#include "server/base/refusal.h"
#include "server/base/schema.h"
#include "server/http/path.h"
#include "server/json/envelope.h"
#include "server/json/tree.h"
#include "server/oip/encode.h"
#include "server/work/infer.h"

/* What a handler is given. */
struct visit {
    struct qd_router *router;
    const struct qd_path *path;
    const struct qd_head *head;
    struct qd_request *request;
};

struct route {
    const char *method;
    const char *pattern;
    enum qd_status (*answer)(const struct visit *visit);
};

/* ---- Answers at once ---------------------------------------------------------------------- */

static enum qd_status answer_bytes(struct qd_request *request, enum qd_status status,
                                   const struct qd_part *parts, size_t part_count, size_t bytes)
{
    request->answer = (struct qd_answer){
        .http_status = qd_status_http(status),
        .content_type = "application/json",
        .parts = parts,
        .part_count = part_count,
        .bytes = bytes,
    };
    return QD_OK;
}

static enum qd_status answer_constant(struct qd_request *request, enum qd_status status,
                                      const struct qd_part *part)
{
    return answer_bytes(request, status, part, 1, part->count);
}

static enum qd_status answer_text(struct qd_request *request, const struct qd_text *text)
{
    if (text->failed)
        return qd_refuse_memory(&request->arena, "the answer", &request->error);
    return answer_bytes(request, QD_OK, text->parts, text->part_count, text->bytes);
}

#define CONSTANT(text)         \
    {                          \
        text, sizeof(text) - 1 \
    }

/* Health needs no memory, and so does not depend on who else holds it. */
static enum qd_status answer_live(const struct visit *visit)
{
    static const struct qd_part live = CONSTANT("{\"live\":true}");
    return answer_constant(visit->request, QD_OK, &live);
}

static const struct qd_part not_ready =
    CONSTANT("{\"error\":\"the server drains: it answers what it has, and then exits\","
             "\"ready\":false}");

static enum qd_status answer_ready(const struct visit *visit)
{
    static const struct qd_part ready = CONSTANT("{\"ready\":true,\"live\":true}");
    return visit->router->draining ? answer_constant(visit->request, QD_UNAVAILABLE, &not_ready)
                                   : answer_constant(visit->request, QD_OK, &ready);
}

static enum qd_status answer_server(const struct visit *visit)
{
    struct qd_text text;
    qd_text_init(&text, &visit->request->arena);
    qd_oip_encode_server_metadata(&text);
    return answer_text(visit->request, &text);
}

/* Parses a small body, a JSON object or nothing (NULL). */
static enum qd_status read_body(struct qd_request *request, struct cJSON **tree)
{
    struct qd_json_envelope envelope;
    size_t bytes = (size_t)request->body_bytes;
    *tree = NULL;
    while (bytes > 0 && memchr(" \t\r\n", request->body[bytes - 1], 4) != NULL)
        bytes--;
    if (bytes == 0)
        return QD_OK;
    if (qd_json_envelope_cut(request->body, bytes, &request->arena, &envelope, &request->error) !=
        QD_OK)
        return request->error.status;
    *tree = qd_json_parse(envelope.text, envelope.text_bytes);
    if (*tree == NULL)
        return qd_fail(&request->error, QD_UNAVAILABLE,
                       "no memory for the request's JSON; try again later");
    if (qd_json_is_object(*tree))
        return QD_OK;
    qd_json_free(*tree);
    return qd_fail(&request->error, QD_INVALID, "the body: expected a JSON object, or nothing");
}

/* A flag of an object that may have it. */
static enum qd_status read_flag(struct qd_request *request, const struct cJSON *object,
                                const char *path, const char *key, bool *flag)
{
    const struct cJSON *value;
    *flag = false;
    enum qd_status status = qd_json_field(object, path, key, &value, &request->error);
    if (status == QD_OK && value != NULL && !qd_json_bool(value, flag)) {
        return qd_fail(&request->error, QD_INVALID, "%s%s: expected true or false, got %s", path,
                       key, qd_json_show(value).text);
    }
    return status;
}

/* The body may ask for {"ready": true}. */
static enum qd_status read_index_body(struct qd_request *request, bool *only_ready)
{
    struct cJSON *tree;
    *only_ready = false;
    enum qd_status status = read_body(request, &tree);
    if (status != QD_OK || tree == NULL)
        return status;
    status = read_flag(request, tree, "", "ready", only_ready);
    qd_json_free(tree);
    return status;
}

static bool end_index(void *context, struct qd_request *request)
{
    const struct qd_router *router = context;
    struct qd_text text;
    bool only_ready;
    if (read_index_body(request, &only_ready) == QD_OK) {
        qd_text_init(&text, &request->arena);
        qd_models_print_index(router->models, only_ready, &text);
        answer_text(request, &text);
    }
    if (request->error.status != QD_OK)
        qd_request_refuse(request);
    else
        qd_request_advance(request, QD_REPLYING);
    return true;
}

static enum qd_status begin_index(const struct visit *visit)
{
    visit->request->end = end_index;
    return qd_request_reserve_body(visit->request, visit->head->content_bytes);
}

/* The model that the path names; the request holds it. */
static enum qd_status find_model(const struct visit *visit)
{
    struct qd_request *request = visit->request;
    return qd_models_find(visit->router->models, visit->path->model, visit->path->version,
                          &request->model, &request->error);
}

/* Those that the path means: all of the name, or one. */
static uint64_t *list_versions(const struct visit *visit, size_t *count)
{
    const struct qd_model *model = visit->request->model;
    struct qd_model *const *all =
        qd_models_versions(visit->router->models, model->signature.name, count);
    const bool only_one = visit->path->version != NULL;
    uint64_t *versions = qd_arena_calloc(&visit->request->arena, *count, sizeof(*versions));
    for (size_t i = 0; versions != NULL && i < *count; i++)
        versions[i] = only_one ? model->signature.version : all[i]->signature.version;
    *count = only_one ? 1 : *count;
    return versions;
}

static enum qd_status answer_model(const struct visit *visit)
{
    struct qd_request *request = visit->request;
    struct qd_text text;
    size_t count;
    if (find_model(visit) != QD_OK)
        return request->error.status;
    const uint64_t *versions = list_versions(visit, &count);
    if (versions == NULL)
        return qd_refuse_memory(&request->arena, "the answer", &request->error);
    qd_text_init(&text, &request->arena);
    qd_oip_encode_model_metadata(&text, &request->model->signature, versions, count);
    return answer_text(request, &text);
}

static enum qd_status answer_config(const struct visit *visit)
{
    struct qd_request *request = visit->request;
    struct qd_text text;
    if (find_model(visit) != QD_OK)
        return request->error.status;
    qd_text_init(&text, &request->arena);
    qd_oip_encode_model_config(&text, &request->model->signature);
    return answer_text(request, &text);
}

static enum qd_status answer_model_ready(const struct visit *visit)
{
    struct qd_text text;
    if (find_model(visit) != QD_OK)
        return visit->request->error.status;
    if (visit->router->draining)
        return answer_constant(visit->request, QD_UNAVAILABLE, &not_ready);
    qd_text_init(&text, &visit->request->arena);
    qd_text_string(&text, "{\"name\":");
    qd_text_json_string(&text, visit->request->model->signature.name);
    qd_text_string(&text, ",\"ready\":true}");
    return answer_text(visit->request, &text);
}

static enum qd_status answer_stats(const struct visit *visit)
{
    struct qd_text text;
    if (visit->path->model != NULL && find_model(visit) != QD_OK)
        return visit->request->error.status;
    const struct qd_model *model = visit->request->model;
    qd_text_init(&text, &visit->request->arena);
    qd_metrics_print_stats(visit->router->metrics, model == NULL ? NULL : model->signature.name,
                           visit->path->version == NULL ? NULL : &model->signature.version, &text);
    return answer_text(visit->request, &text);
}

static enum qd_status answer_metrics(const struct visit *visit)
{
    struct qd_gauges gauges = {
        .cpu_tier = qk_kernels_tier(visit->router->kernels),
        .gemm = qk_kernels_gemm(visit->router->kernels),
        .blas_core = qk_kernels_blas_core(visit->router->kernels),
        .connections = visit->router->listener == NULL
                           ? 0
                           : qd_listener_connection_count(visit->router->listener),
        .queue_length = qd_scheduler_queue_count(visit->router->scheduler),
        .inflight_bytes = qd_memory_used(visit->router->memory),
        .inflight_bytes_max = qd_memory_max(visit->router->memory),
        .model_bytes = qd_memory_used(visit->router->model_memory),
        .model_bytes_max = qd_memory_max(visit->router->model_memory),
        .model_count = qd_models_loaded_count(visit->router->models),
    };
    struct qd_text text;
    qd_text_init(&text, &visit->request->arena);
    qd_metrics_print(visit->router->metrics, &gauges, &text);
    enum qd_status status = answer_text(visit->request, &text);
    visit->request->answer.content_type = "text/plain; version=0.0.4; charset=utf-8";
    return status;
}

static enum qd_status answer_schema(const struct visit *visit, struct qd_part schema,
                                    const char *content_type)
{
    struct qd_text text;
    qd_text_init(&text, &visit->request->arena);
    qd_text_borrow(&text, schema.bytes, schema.count);
    enum qd_status status = answer_text(visit->request, &text);
    visit->request->answer.content_type = content_type;
    return status;
}

static enum qd_status answer_schema_yaml(const struct visit *visit)
{
    return answer_schema(visit, qd_schema_yaml(), "application/yaml");
}

static enum qd_status answer_schema_json(const struct visit *visit)
{
    return answer_schema(visit, qd_schema_json(), "application/json");
}

static enum qd_status refuse_shared_memory(const struct visit *visit)
{
    return qd_fail(
        &visit->request->error, QD_NOT_IMPLEMENTED,
        "shared memory is not supported: send tensors in the request, as JSON or binary");
}

/* There are never any regions. perf_analyzer unregisters all of them before and after each run. */
static enum qd_status answer_no_regions(const struct visit *visit)
{
    static const struct qd_part none = CONSTANT("[]");
    return answer_constant(visit->request, QD_OK, &none);
}

/* ---- Inference ---------------------------------------------------------------------------- */

static enum qd_status check_encoding(const struct visit *visit)
{
    const char *encoding = visit->head->content_encoding;
    if (encoding == NULL || *encoding == '\0' || strcasecmp(encoding, "identity") == 0)
        return QD_OK;
    return qd_fail(&visit->request->error, QD_UNSUPPORTED_ENCODING,
                   "header Content-Encoding: expected identity, got \"%.64s\"", encoding);
}

/* Room for what comes, if it is known how much that is. */
static enum qd_status reserve(const struct qd_head *head, struct qd_request *request)
{
    if (head->json_bytes != NULL) {
        size_t bytes = strlen(head->json_bytes);
        while (bytes > 0 && strchr(" \t", head->json_bytes[bytes - 1]) != NULL)
            bytes--; /* blanks behind a value are no part of it, but libmicrohttpd leaves them */
        char *copy = qd_arena_calloc(&request->arena, bytes + 1, 1);
        if (copy == NULL)
            return qd_refuse_memory(&request->arena, "the head", &request->error);
        request->message.json_bytes_header = memcpy(copy, head->json_bytes, bytes);
    }
    return qd_request_reserve_body(request, head->content_bytes);
}

static bool end_infer(void *context, struct qd_request *request)
{
    struct qd_router *router = context;
    if (qd_infer_submit(router->scheduler, request))
        return false;
    qd_request_refuse(request);
    return true;
}

/* Whatever can be refused now is refused now: the client has not sent its tensors yet. */
static enum qd_status begin_infer(const struct visit *visit)
{
    struct qd_request *request = visit->request;
    if (find_model(visit) != QD_OK)
        return request->error.status;
    request->message.signature = &request->model->signature;
    request->kernels = visit->router->kernels;
    request->thread_count = visit->router->thread_count;
    request->compute_timeout_ns = visit->router->compute_timeout_ns;
    request->on_answered = qd_listener_answer;
    request->end = end_infer;
    if (check_encoding(visit) != QD_OK || !qd_infer_try_room(visit->router->scheduler, request))
        return request->error.status;
    return reserve(visit->head, request);
}

/* ---- Loading ------------------------------------------------------------------------------ */

static enum qd_status keep_name(const struct visit *visit)
{
    struct qd_request *request = visit->request;
    const char *model = visit->path->model;
    char *name = qd_arena_alloc(&request->arena, strlen(model) + 1);
    if (name == NULL)
        return qd_refuse_memory(&request->arena, "the model's name", &request->error);
    request->name = strcpy(name, model);
    return QD_OK;
}

static bool end_load(void *context, struct qd_request *request)
{
    struct qd_router *router = context;
    if (qd_loader_load(router->loader, request->name, request) == QD_OK)
        return false;
    qd_request_refuse(request);
    return true;
}

static enum qd_status begin_load(const struct visit *visit)
{
    struct qd_request *request = visit->request;
    if (qd_loader_try_room(visit->router->loader, visit->path->model, &request->error) != QD_OK ||
        check_encoding(visit) != QD_OK || keep_name(visit) != QD_OK)
        return request->error.status;
    request->end = end_load;
    request->on_answered = qd_listener_answer;
    return reserve(visit->head, request);
}

/* {"parameters": {"unload_dependents": false}}, as Triton's client sends it: nothing depends on
 * anything here, so both values are the same. */
static enum qd_status check_unload_body(struct qd_request *request)
{
    struct cJSON *tree;
    const struct cJSON *parameters = NULL;
    bool flag;
    enum qd_status status = read_body(request, &tree);
    if (status != QD_OK || tree == NULL)
        return status;
    status = qd_json_field(tree, "", "parameters", &parameters, &request->error);
    if (status == QD_OK && parameters != NULL && !qd_json_is_object(parameters)) {
        status = qd_fail(&request->error, QD_INVALID, "parameters: expected an object, got %s",
                         qd_json_show(parameters).text);
    } else if (status == QD_OK && parameters != NULL) {
        status = read_flag(request, parameters, "parameters.", "unload_dependents", &flag);
    }
    qd_json_free(tree);
    return status;
}

static bool end_unload(void *context, struct qd_request *request)
{
    struct qd_router *router = context;
    if (check_unload_body(request) != QD_OK ||
        qd_loader_unload(router->loader, request->name, &request->error) != QD_OK) {
        qd_request_refuse(request);
        return true;
    }
    request->answer = (struct qd_answer){.http_status = qd_status_http(QD_OK)};
    qd_request_reply(request);
    return true;
}

static enum qd_status begin_unload(const struct visit *visit)
{
    struct qd_request *request = visit->request;
    if (qd_loader_check(visit->router->loader, visit->path->model, &request->error) != QD_OK ||
        check_encoding(visit) != QD_OK || keep_name(visit) != QD_OK)
        return request->error.status;
    request->end = end_unload;
    return qd_request_reserve_body(request, visit->head->content_bytes);
}

/* ---- The table ---------------------------------------------------------------------------- */

static const struct route routes[] = {
    {"GET", "/v2/health/live", answer_live},
    {"GET", "/v2/health/ready", answer_ready},
    {"GET", "/v2", answer_server},
    {"GET", "/v2/", answer_server},
    {"GET", "/v2/models/stats", answer_stats},
    {"GET", "/v2/models/{m}", answer_model},
    {"GET", "/v2/models/{m}/versions/{v}", answer_model},
    {"GET", "/v2/models/{m}/ready", answer_model_ready},
    {"GET", "/v2/models/{m}/versions/{v}/ready", answer_model_ready},
    {"GET", "/v2/models/{m}/config", answer_config},
    {"GET", "/v2/models/{m}/versions/{v}/config", answer_config},
    {"GET", "/v2/models/{m}/stats", answer_stats},
    {"GET", "/v2/models/{m}/versions/{v}/stats", answer_stats},
    {"POST", "/v2/models/{m}/infer", begin_infer},
    {"POST", "/v2/models/{m}/versions/{v}/infer", begin_infer},
    {"POST", "/v2/repository/index", begin_index},
    {"POST", "/v2/repository/models/{m}/load", begin_load},
    {"POST", "/v2/repository/models/{m}/unload", begin_unload},
    {"POST", "/v2/systemsharedmemory/region/{m}/register", refuse_shared_memory},
    {"POST", "/v2/cudasharedmemory/region/{m}/register", refuse_shared_memory},
    {"GET", "/v2/systemsharedmemory/status", answer_no_regions},
    {"GET", "/v2/cudasharedmemory/status", answer_no_regions},
    {"POST", "/v2/systemsharedmemory/unregister", answer_no_regions},
    {"POST", "/v2/cudasharedmemory/unregister", answer_no_regions},
    {"POST", "/v2/systemsharedmemory/region/{m}/unregister", answer_no_regions},
    {"POST", "/v2/cudasharedmemory/region/{m}/unregister", answer_no_regions},
    {"GET", "/metrics", answer_metrics},
    {"GET", "/openapi.yaml", answer_schema_yaml},
    {"GET", "/openapi.json", answer_schema_json},
};

static enum qd_status begin(void *context, const struct qd_head *head, struct qd_request *request)
{
    struct qd_path path;
    const struct visit visit = {context, &path, head, request};
    if (qd_path_split(head->path, &path, &request->error) != QD_OK)
        return request->error.status;
    for (size_t i = 0; i < sizeof(routes) / sizeof(*routes); i++) {
        const struct route *route = &routes[i];
        if (!qd_path_matches(&path, route->pattern))
            continue;
        bool is_get = strcmp(route->method, "GET") == 0;
        if (strcmp(head->method, route->method) == 0 ||
            (is_get && strcmp(head->method, "HEAD") == 0))
            return route->answer(&visit);
        request->answer.allow = is_get ? "GET, HEAD" : "POST";
        return qd_fail(&request->error, QD_METHOD_NOT_ALLOWED,
                       "method of \"%.100s\": expected %s, got \"%.32s\"", head->path,
                       request->answer.allow, head->method);
    }
    return qd_fail(&request->error, QD_NOT_FOUND,
                   "no such path: \"%.100s\"; POST /v2/repository/index lists the models",
                   head->path);
}

static bool end(void *context, struct qd_request *request)
{
    if (request->end != NULL)
        return request->end(context, request);
    qd_request_advance(request, QD_REPLYING);
    return true;
}

static void log_answer(const struct qd_request *request, bool delivered, uint64_t total_ns)
{
    struct qd_error error = request->error;
    for (char *c = strchr(error.text, '"'); c != NULL; c = strchr(c, '"'))
        *c = '\''; /* the line's own quotes end at the next */
    qd_log(QD_LOG_DEBUG, delivered ? "answered" : "gone before the answer",
           "status=%u model=%s total_us=%" PRIu64 " error=\"%s\"", request->answer.http_status,
           request->message.signature != NULL ? request->message.signature->name : "none",
           total_ns / 1000, error.text);
}

static void closed(void *context, const struct qd_request *request, bool delivered)
{
    struct qd_router *router = context;
    unsigned http_status = delivered ? request->answer.http_status : 0;
    uint64_t stage_ns[QD_STAGE_COUNT];
    qd_request_stages(request, stage_ns);
    if (delivered)
        qd_metrics_count_answer(router->metrics, http_status);
    if (request->message.signature != NULL)
        qd_counters_count(request->model->counters, http_status, stage_ns);
    log_answer(request, delivered, stage_ns[QD_STAGE_TOTAL]);
}

static bool idle(void *context)
{
    struct qd_router *router = context;
    return qd_scheduler_help(router->scheduler);
}

struct qd_handler qd_router_handler(struct qd_router *router)
{
    return (struct qd_handler){
        .begin = begin, .end = end, .closed = closed, .idle = idle, .context = router};
}
