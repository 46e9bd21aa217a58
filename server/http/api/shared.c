#include "server/http/api/handlers.h"

#include "server/json/tree.h"
#include "server/oip/regions.h"
#include "server/telemetry/log.h"

/* perf_analyzer unregisters all regions before and after each run, of both kinds. */
enum qd_status qd_answer_no_regions(const struct qd_visit *visit)
{
    static const struct qd_part none = {"[]", 2};
    return qd_visit_answer_constant(visit->request, QD_OK, &none);
}

enum qd_status qd_refuse_cuda(const struct qd_visit *visit)
{
    return qd_fail(&visit->request->error, QD_NOT_IMPLEMENTED,
                   "CUDA shared memory: expected a server with a GPU, this one computes on CPUs");
}

enum qd_status qd_answer_regions(const struct qd_visit *visit)
{
    struct qd_request *request = visit->request;
    struct qd_regions *regions = visit->server->regions;
    const char *name = visit->path->model; /* NULL: all of them */
    struct qd_text text;
    if (regions == NULL && name == NULL)
        return qd_answer_no_regions(visit);
    if (regions == NULL) {
        return qd_fail(&request->error, QD_NOT_FOUND,
                       "there are no regions: shared memory is off (--allow-shared-memory)");
    }
    qd_text_init(&text, &request->arena);
    const enum qd_status status = qd_regions_print(regions, name, &text, &request->error);
    return status == QD_OK ? qd_visit_answer_text(request, &text) : status;
}

enum qd_status qd_answer_unregister(const struct qd_visit *visit)
{
    if (visit->server->regions != NULL)
        qd_regions_unregister(visit->server->regions, visit->path->model);
    return qd_answer_no_regions(visit);
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
    enum qd_status status = qd_visit_read_body(request, &tree);
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

enum qd_status qd_begin_register(const struct qd_visit *visit)
{
    struct qd_request *request = visit->request;
    if (visit->server->regions == NULL) {
        return qd_fail(&request->error, QD_NOT_IMPLEMENTED,
                       "shared memory is off (--allow-shared-memory)");
    }
    if (qd_visit_check_encoding(visit) != QD_OK || qd_visit_keep_name(visit) != QD_OK)
        return request->error.status;
    request->end = end_register;
    return qd_visit_reserve_small(visit);
}
