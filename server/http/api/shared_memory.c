#include "server/http/api/handlers.h"

#include "server/json/tree.h"
#include "server/oip/regions.h"
#include "server/telemetry/log.h"

/* Answers with an empty list, and not with an error, because perf_analyzer unregisters all regions,
 * of both kinds, before and after each run. */
enum qd_status qd_answer_no_regions(const struct qd_request_context *context)
{
    static const struct qd_part none = {"[]", 2};
    return qd_context_answer_constant(context->request, QD_OK, &none);
}

enum qd_status qd_refuse_cuda(const struct qd_request_context *context)
{
    return qd_fail(&context->request->error, QD_NOT_IMPLEMENTED,
                   "CUDA shared memory: expected a server with a GPU, this one computes on CPUs");
}

enum qd_status qd_answer_regions(const struct qd_request_context *context)
{
    struct qd_request *request = context->request;
    struct qd_regions *regions = context->server->regions;
    const char *name = context->path->model; /* NULL: all regions */
    struct qd_text text;
    if (regions == NULL && name == NULL)
        return qd_answer_no_regions(context);
    if (regions == NULL) {
        return qd_fail(&request->error, QD_NOT_FOUND,
                       "there are no regions: shared memory is off (--allow-shared-memory)");
    }
    qd_text_init(&text, &request->arena);
    const enum qd_status status = qd_regions_print(regions, name, &text, &request->error);
    return status == QD_OK ? qd_context_answer_text(request, &text) : status;
}

enum qd_status qd_answer_unregister(const struct qd_request_context *context)
{
    if (context->server->regions != NULL)
        qd_regions_unregister(context->server->regions, context->path->model);
    return qd_answer_no_regions(context);
}

/* ---- Registering -------------------------------------------------------------------------- */

static enum qd_status read_call(struct qd_request *request, struct qd_region_call *call)
{
    const struct qd_json_member members[] = {
        {"key", QD_JSON_NEEDED + QD_JSON_TAKES_STRING, &call->key},
        {"offset", QD_JSON_TAKES_COUNT, &call->offset},
        {"byte_size", QD_JSON_NEEDED + QD_JSON_TAKES_COUNT, &call->byte_size},
    };
    const struct qd_json_value *tree;
    if (qd_context_read_body(request, &tree) != QD_OK)
        return request->error.status;
    if (tree == NULL)
        return qd_fail(&request->error, QD_INVALID,
                       "the body: expected a JSON object with key and byte_size, got none");
    return qd_json_read_members(tree, NULL, members, 3, &request->error);
}

static bool end_register(void *context, struct qd_request *request)
{
    const struct qd_server *server = context;
    struct qd_region_call call = {.name = request->name};
    if (read_call(request, &call) != QD_OK ||
        qd_regions_register(server->regions, &call, &request->error) != QD_OK)
        return true;
    qd_log(QD_LOG_INFO, "a region of shared memory is registered",
           "name=\"%s\" key=\"%s\" bytes=%llu user=\"%s\"", qd_log_value(call.name).text,
           qd_log_value(call.key).text, (unsigned long long)call.byte_size,
           qd_log_value(request->user).text);
    qd_request_reply_empty(request);
    return true;
}

enum qd_status qd_begin_register(const struct qd_request_context *context)
{
    if (context->server->regions != NULL)
        return qd_context_begin_call(context, end_register);
    return qd_fail(&context->request->error, QD_NOT_IMPLEMENTED,
                   "shared memory is off (--allow-shared-memory)");
}
