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

static enum qd_status read_number(const struct qd_json_value *tree, const char *key, bool is_needed,
                                  uint64_t *number, struct qd_error *error)
{
    const struct qd_json_value *value;
    int64_t given = 0;
    enum qd_status status = qd_json_field(tree, NULL, key, &value, error);
    if (status != QD_OK)
        return status;
    if ((value == NULL && is_needed) ||
        (value != NULL && (!qd_json_whole(value, &given) || given < 0))) {
        return qd_fail(error, QD_INVALID, "%s: expected an integer in [0, 2^53), got %s", key,
                       qd_json_show(value).text);
    }
    *number = (uint64_t)given;
    return QD_OK;
}

static enum qd_status read_call(struct qd_request *request, struct qd_region_call *call)
{
    const struct qd_json_value *tree;
    const struct qd_json_value *key = NULL;
    struct qd_error *error = &request->error;
    enum qd_status status = qd_context_read_body(request, &tree);
    if (status == QD_OK && tree == NULL)
        status = qd_fail(error, QD_INVALID,
                         "the body: expected a JSON object with key and byte_size, got none");
    if (status == QD_OK)
        status = qd_json_field(tree, NULL, "key", &key, error);
    call->key = key == NULL ? NULL : qd_json_string(key);
    if (status == QD_OK && call->key == NULL)
        status =
            qd_fail(error, QD_INVALID, "key: expected a string, got %s", qd_json_show(key).text);
    if (status == QD_OK)
        status = read_number(tree, "offset", false, &call->offset, error);
    if (status == QD_OK)
        status = read_number(tree, "byte_size", true, &call->byte_size, error);
    return status;
}

static bool end_register(void *context, struct qd_request *request)
{
    const struct qd_server *server = context;
    struct qd_region_call call = {.name = request->name};
    enum qd_status status = read_call(request, &call);
    if (status == QD_OK)
        status = qd_regions_register(server->regions, &call, &request->error);
    if (status != QD_OK) {
        qd_request_refuse(request);
        return true;
    }
    qd_log(QD_LOG_INFO, "a region of shared memory is registered",
           "name=\"%s\" key=\"%s\" bytes=%llu user=\"%s\"", qd_log_value(call.name).text,
           qd_log_value(call.key).text, (unsigned long long)call.byte_size,
           qd_log_value(request->user).text);
    request->answer = (struct qd_answer){.http_status = qd_status_http(QD_OK)};
    qd_request_reply(request);
    return true;
}

enum qd_status qd_begin_register(const struct qd_request_context *context)
{
    struct qd_request *request = context->request;
    if (context->server->regions == NULL) {
        return qd_fail(&request->error, QD_NOT_IMPLEMENTED,
                       "shared memory is off (--allow-shared-memory)");
    }
    if (qd_context_check_encoding(context) != QD_OK || qd_context_keep_name(context) != QD_OK)
        return request->error.status;
    request->end = end_register;
    return qd_context_reserve_small(context);
}
