#include "server/http/api/server.h"

#include <string.h>

#include "server/http/api/handlers.h"
#include "server/http/path.h"

/* A route has one of three functions. `answer` answers, or begins to. `print` prints an answer of
 * JSON, about the model that the path names if it names one. `end` ends a call without tensors,
 * when its body has come (qd_context_begin_call). */
struct route {
    const char *method;
    const char *pattern;
    enum qd_status (*answer)(const struct qd_request_context *context);
    void (*print)(const struct qd_request_context *context, struct qd_text *text);
    bool (*end)(void *context, struct qd_request *request);
};

/* ---- Inference ---------------------------------------------------------------------------- */

static bool end_infer(void *context, struct qd_request *request)
{
    struct qd_server *server = context;
    qd_infer_submit(&server->tools, request);
    return request->oip.inference == NULL; /* refused, or computed inline */
}

/* Chooses the coding of an inference's answer. No other answer is compressed, because Triton's
 * asyncio client asks for gzip everywhere but inflates only answers of inferences. */
static void choose_answer_coding(const struct qd_request_context *context)
{
    if (!context->server->compress_answers)
        return;
    context->request->oip.answer_coding = qd_accepted_choose(&context->head->accepted);
    qd_request_add_header(context->request, "Vary", "Accept-Encoding");
}

/* Refuses all that can be refused now, before the client has sent its tensors. */
static enum qd_status begin_infer(const struct qd_request_context *context)
{
    struct qd_request *request = context->request;
    if (qd_context_find_model(context) != QD_OK)
        return request->error.status;
    request->oip.message.signature = &request->model->signature;
    request->oip.message.regions = context->server->regions;
    request->on_answered = qd_listener_answer;
    request->end = end_infer;
    choose_answer_coding(context);
    if (qd_context_read_encoding(context) != QD_OK ||
        !qd_infer_try_room(&context->server->tools, request,
                           context->head->is_chunked ? UINT64_MAX : context->head->content_bytes))
        return request->error.status;
    return qd_context_reserve(context);
}

/* ---- The table ---------------------------------------------------------------------------- */

/* The first entry that matches counts. Most requests ask for the first ones. */
static const struct route routes[] = {
    {"POST", "/v2/models/{m}/infer", .answer = begin_infer},
    {"POST", "/v2/models/{m}/versions/{v}/infer", .answer = begin_infer},
    {"GET", "/v2/health/live", .answer = qd_answer_live},
    {"GET", "/v2/health/ready", .answer = qd_answer_ready},
    {"GET", "/v2", .print = qd_print_server},
    {"GET", "/v2/", .print = qd_print_server},
    {"GET", "/v2/models/stats", .answer = qd_answer_stats},
    {"GET", "/v2/models/{m}", .print = qd_print_model},
    {"GET", "/v2/models/{m}/versions/{v}", .print = qd_print_model},
    {"GET", "/v2/models/{m}/ready", .answer = qd_answer_model_ready},
    {"GET", "/v2/models/{m}/versions/{v}/ready", .answer = qd_answer_model_ready},
    {"GET", "/v2/models/{m}/config", .print = qd_print_config},
    {"GET", "/v2/models/{m}/versions/{v}/config", .print = qd_print_config},
    {"GET", "/v2/models/{m}/nodes", .print = qd_print_nodes},
    {"GET", "/v2/models/{m}/versions/{v}/nodes", .print = qd_print_nodes},
    {"GET", "/v2/models/{m}/stats", .answer = qd_answer_stats},
    {"GET", "/v2/models/{m}/versions/{v}/stats", .answer = qd_answer_stats},
    {"POST", "/v2/repository/index", .end = qd_end_index},
    {"POST", "/v2/repository/models/{m}/load", .answer = qd_begin_load},
    {"POST", "/v2/repository/models/{m}/unload", .answer = qd_begin_unload},
    {"GET", "/v2/systemsharedmemory/status", .answer = qd_answer_regions},
    {"GET", "/v2/systemsharedmemory/region/{m}/status", .answer = qd_answer_regions},
    {"POST", "/v2/systemsharedmemory/region/{m}/register", .answer = qd_begin_register},
    {"POST", "/v2/systemsharedmemory/region/{m}/unregister", .answer = qd_answer_unregister},
    {"POST", "/v2/systemsharedmemory/unregister", .answer = qd_answer_unregister},
    {"GET", "/v2/cudasharedmemory/status", .answer = qd_answer_no_regions},
    {"POST", "/v2/cudasharedmemory/region/{m}/register", .answer = qd_refuse_cuda},
    {"POST", "/v2/cudasharedmemory/region/{m}/unregister", .answer = qd_answer_no_regions},
    {"POST", "/v2/cudasharedmemory/unregister", .answer = qd_answer_no_regions},
    {"GET", "/v2/logging", .print = qd_print_logging},
    {"POST", "/v2/logging", .end = qd_end_logging},
    {"GET", "/", .answer = qd_answer_console},
    {"GET", "/metrics", .answer = qd_answer_metrics},
    {"GET", "/openapi.yaml", .answer = qd_answer_schema_yaml},
    {"GET", "/openapi.json", .answer = qd_answer_schema_json},
};

static enum qd_status follow(const struct route *route, const struct qd_request_context *context)
{
    struct qd_request *request = context->request;
    struct qd_text text;
    if (route->end != NULL)
        return qd_context_begin_call(context, route->end);
    if (route->print == NULL)
        return route->answer(context);
    if (context->path->model != NULL && qd_context_find_model(context) != QD_OK)
        return request->error.status;
    qd_text_init(&text, &request->arena);
    route->print(context, &text);
    return qd_context_answer_text(request, &text);
}

/* Returns the value of Allow for a path with these methods. */
static const char *methods(bool get, bool post, bool cors)
{
    static const char *const texts[] = {"POST",
                                        "POST, OPTIONS",
                                        "GET, HEAD",
                                        "GET, HEAD, OPTIONS",
                                        "GET, HEAD, POST",
                                        "GET, HEAD, POST, OPTIONS"};
    return texts[(get && post ? 4 : get ? 2 : 0) + cors];
}

static void opened(void *context, const struct qd_head *head, struct qd_request *request)
{
    const struct qd_server *server = context;
    qd_access_log_open(&server->access_log, head, request);
}

static enum qd_status admit(void *context, const struct qd_head *head, struct qd_request *request)
{
    const struct qd_server *server = context;
    return qd_access_admit(server->access, head, request);
}

static enum qd_status refuse_method(const struct qd_request_context *context, bool get, bool post)
{
    struct qd_request *request = context->request;
    const struct qd_head *head = context->head;
    const bool cors = qd_access_has_cors(context->server->access);
    request->answer.allow = methods(get, post, cors);
    if (cors && strcmp(head->method, "OPTIONS") == 0)
        return qd_cors_answer(request->answer.allow, request);
    return qd_fail(&request->error, QD_METHOD_NOT_ALLOWED,
                   "method of \"%.100s\": expected %s, got \"%.32s\"", head->path,
                   request->answer.allow, head->method);
}

static enum qd_status begin(void *context, const struct qd_head *head, struct qd_request *request)
{
    struct qd_path path;
    const struct qd_request_context its = {context, &path, head, request};
    if (qd_path_split(head->path, &path, &request->error) != QD_OK)
        return request->error.status;
    bool get = false, post = false;
    for (size_t i = 0; i < sizeof(routes) / sizeof(*routes); i++) {
        const struct route *route = &routes[i];
        if (!qd_path_matches(&path, route->pattern))
            continue;
        const bool is_get = strcmp(route->method, "GET") == 0;
        if (strcmp(head->method, route->method) == 0 ||
            (is_get && strcmp(head->method, "HEAD") == 0))
            return follow(route, &its);
        get |= is_get;
        post |= !is_get;
    }
    if (get || post)
        return refuse_method(&its, get, post);
    return qd_path_refuse(head->path, &request->error);
}

static bool end(void *context, struct qd_request *request)
{
    return request->end == NULL || request->end(context, request);
}

static void closed(void *context, struct qd_request *request, bool delivered)
{
    struct qd_server *server = context;
    unsigned http_status = delivered ? request->answer.http_status : 0;
    uint64_t stage_ns[QD_STAGE_COUNT];
    qd_request_stages(request, stage_ns);
    if (delivered)
        qd_metrics_count_answer(server->metrics, http_status);
    if (request->error.status != QD_OK || request->error.reason != QD_REASON_OTHER)
        qd_metrics_count_refusal(server->metrics, request->error.reason);
    if (request->oip.message.signature != NULL)
        qd_counters_count(request->model->counters, http_status, stage_ns);
    if (qd_access_log_is_read(&server->access_log)) {
        char client[QD_ADDRESS_TEXT_BYTES] = "";
        if (request->connection != NULL)
            qd_listener_print_client(request, client);
        qd_access_log_close(&server->access_log, request, client, delivered, stage_ns);
    }
}

static bool idle(void *context, struct qd_loop *loop)
{
    struct qd_server *server = context;
    return qd_scheduler_on_idle(server->tools.scheduler, loop);
}

/* Depends on the queue and on the requests that wait for memory. */
static unsigned retry_after_s(void *context)
{
    struct qd_server *server = context;
    const unsigned queue_s = qd_scheduler_retry_after_s(server->tools.scheduler);
    const unsigned memory_s = qd_memory_retry_after_s(server->memory);
    const unsigned seconds = queue_s > memory_s ? queue_s : memory_s;
    return seconds < QD_RETRY_AFTER_MAX_S ? seconds : QD_RETRY_AFTER_MAX_S;
}

struct qd_handler qd_server_handler(struct qd_server *server)
{
    return (struct qd_handler){.opened = opened,
                               .admit = admit,
                               .begin = begin,
                               .end = end,
                               .closed = closed,
                               .idle = idle,
                               .retry_after_s = retry_after_s,
                               .context = server};
}
