#include "server/http/api/handlers.h"

#include <string.h>

#include "server/json/tree.h"
#include "server/memory/arena.h"

/* Reads a flag of an object. A flag that is absent is false. */
static enum qd_status read_flag(struct qd_request *request, const struct qd_json_value *object,
                                const char *path, const char *key, bool *flag)
{
    const struct qd_json_path place = {.tail = path};
    const struct qd_json_value *value;
    *flag = false;
    enum qd_status status = qd_json_field(object, &place, key, &value, &request->error);
    if (status == QD_OK && value != NULL && !qd_json_bool(value, flag)) {
        return qd_fail(&request->error, QD_INVALID, "%s%s: expected true or false, got %s", path,
                       key, qd_json_show(value).text);
    }
    return status;
}

/* Reads the body, which is empty or an object such as {"ready": true}. */
static enum qd_status read_index_body(struct qd_request *request, bool *only_ready)
{
    const struct qd_json_value *tree;
    *only_ready = false;
    enum qd_status status = qd_context_read_body(request, &tree);
    if (status != QD_OK || tree == NULL)
        return status;
    return read_flag(request, tree, "", "ready", only_ready);
}

static bool end_index(void *context, struct qd_request *request)
{
    const struct qd_server *server = context;
    struct qd_text text;
    bool only_ready;
    if (read_index_body(request, &only_ready) == QD_OK) {
        qd_text_init(&text, &request->arena);
        qd_models_print_index(server->models, only_ready, &text);
        qd_context_answer_text(request, &text);
    }
    if (request->error.status != QD_OK)
        qd_request_refuse(request);
    else
        qd_request_advance(request, QD_REPLYING);
    return true;
}

enum qd_status qd_begin_index(const struct qd_request_context *context)
{
    if (qd_context_check_encoding(context) != QD_OK)
        return context->request->error.status;
    context->request->end = end_index;
    return qd_context_reserve_small(context);
}

/* ---- Loading ------------------------------------------------------------------------------ */

static bool end_load(void *context, struct qd_request *request)
{
    struct qd_server *server = context;
    if (qd_loader_load(server->loader, request->name, request) == QD_OK)
        return false;
    qd_request_refuse(request);
    return true;
}

enum qd_status qd_begin_load(const struct qd_request_context *context)
{
    struct qd_request *request = context->request;
    if (qd_loader_try_room(context->server->loader, context->path->model, &request->error) !=
            QD_OK ||
        qd_context_check_encoding(context) != QD_OK || qd_context_keep_name(context) != QD_OK)
        return request->error.status;
    request->end = end_load;
    request->on_answered = qd_listener_post_answer;
    return qd_context_reserve(context);
}

/* Checks the body, which Triton's client sends as {"parameters": {"unload_dependents": false}}. No
 * model depends on another here, so both values mean the same. */
static enum qd_status check_unload_body(struct qd_request *request)
{
    const struct qd_json_value *tree;
    const struct qd_json_value *parameters = NULL;
    bool flag;
    enum qd_status status = qd_context_read_body(request, &tree);
    if (status != QD_OK || tree == NULL)
        return status;
    status = qd_json_field(tree, NULL, "parameters", &parameters, &request->error);
    if (status == QD_OK && parameters != NULL && !qd_json_is_object(parameters)) {
        status = qd_fail(&request->error, QD_INVALID, "parameters: expected an object, got %s",
                         qd_json_show(parameters).text);
    } else if (status == QD_OK && parameters != NULL) {
        status = read_flag(request, parameters, "parameters.", "unload_dependents", &flag);
    }
    return status;
}

static bool end_unload(void *context, struct qd_request *request)
{
    struct qd_server *server = context;
    if (check_unload_body(request) != QD_OK ||
        qd_loader_unload(server->loader, request->name, &request->error) != QD_OK) {
        qd_request_refuse(request);
        return true;
    }
    request->answer = (struct qd_answer){.http_status = qd_status_http(QD_OK)};
    qd_request_reply(request);
    return true;
}

enum qd_status qd_begin_unload(const struct qd_request_context *context)
{
    struct qd_request *request = context->request;
    if (qd_loader_check(context->server->loader, context->path->model, &request->error) != QD_OK ||
        qd_context_check_encoding(context) != QD_OK || qd_context_keep_name(context) != QD_OK)
        return request->error.status;
    request->end = end_unload;
    return qd_context_reserve_small(context);
}
