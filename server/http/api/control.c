#include "server/http/api/handlers.h"

#include "server/json/tree.h"

/* Reads the body, which is empty or an object such as {"ready": true}. */
static enum qd_status read_index_body(struct qd_request *request, bool *only_ready)
{
    const struct qd_json_member ready = {"ready", QD_JSON_TAKES_BOOL, only_ready};
    const struct qd_json_value *tree;
    *only_ready = false;
    enum qd_status status = qd_context_read_body(request, &tree);
    if (status != QD_OK || tree == NULL)
        return status;
    return qd_json_read_members(tree, NULL, &ready, 1, &request->error);
}

bool qd_end_index(void *context, struct qd_request *request)
{
    const struct qd_server *server = context;
    struct qd_text text;
    bool only_ready;
    if (read_index_body(request, &only_ready) == QD_OK) {
        qd_text_init(&text, &request->arena);
        qd_models_print_index(server->models, only_ready, &text);
        qd_context_answer_text(request, &text);
    }
    return true;
}

/* ---- Loading ------------------------------------------------------------------------------ */

static bool end_load(void *context, struct qd_request *request)
{
    struct qd_server *server = context;
    return qd_loader_load(server->loader, request->name, request) != QD_OK;
}

enum qd_status qd_begin_load(const struct qd_request_context *context)
{
    struct qd_request *request = context->request;
    if (qd_loader_try_room(context->server->loader, context->path->model, &request->error) !=
            QD_OK ||
        qd_context_keep_name(context) != QD_OK)
        return request->error.status;
    request->end = end_load;
    request->on_answered = qd_listener_post_answer;
    return qd_context_reserve(context);
}

/* Checks the body, which Triton's client sends as {"parameters": {"unload_dependents": false}}. No
 * model depends on another here, so both values mean the same. */
static enum qd_status check_unload_body(struct qd_request *request)
{
    static const struct qd_json_path path = {.tail = "parameters."};
    const struct qd_json_value *tree;
    const struct qd_json_value *parameters = NULL;
    bool ignored;
    const struct qd_json_member outer = {"parameters", QD_JSON_TAKES_OBJECT, &parameters};
    const struct qd_json_member inner = {"unload_dependents", QD_JSON_TAKES_BOOL, &ignored};
    enum qd_status status = qd_context_read_body(request, &tree);
    if (status == QD_OK && tree != NULL)
        status = qd_json_read_members(tree, NULL, &outer, 1, &request->error);
    if (status == QD_OK && parameters != NULL)
        status = qd_json_read_members(parameters, &path, &inner, 1, &request->error);
    return status;
}

static bool end_unload(void *context, struct qd_request *request)
{
    struct qd_server *server = context;
    if (check_unload_body(request) == QD_OK &&
        qd_loader_unload(server->loader, request->name, &request->error) == QD_OK)
        qd_request_reply_empty(request);
    return true;
}

enum qd_status qd_begin_unload(const struct qd_request_context *context)
{
    const enum qd_status status =
        qd_loader_check(context->server->loader, context->path->model, &context->request->error);
    return status == QD_OK ? qd_context_begin_call(context, end_unload) : status;
}
