#include "server/http/api/handlers.h"

#include <string.h>

#include "server/http/api/embed.h"
#include "server/memory/arena.h"
#include "server/oip/encode.h"

/* The description of the interface is part of the program, so that a running server describes
 * itself without a file beside it. */
QD_EMBED(qd_schema_yaml_file, QD_FILE("api_schema/openapi.yaml"));
QD_EMBED(qd_schema_json_file, QD_FILE("api_schema/openapi.json"));

#define CONSTANT(text)         \
    {                          \
        text, sizeof(text) - 1 \
    }

/* Takes no memory, so that health does not depend on how much other requests hold. */
enum qd_status qd_answer_live(const struct qd_request_context *context)
{
    static const struct qd_part live = CONSTANT("{\"live\":true}");
    return qd_context_answer_constant(context->request, QD_OK, &live);
}

static const struct qd_part not_ready =
    CONSTANT("{\"error\":\"the server drains: it answers what it has, and then exits\","
             "\"ready\":false}");

enum qd_status qd_answer_ready(const struct qd_request_context *context)
{
    static const struct qd_part ready = CONSTANT("{\"ready\":true,\"live\":true}");
    return atomic_load(&context->server->draining)
               ? qd_context_answer_constant(context->request, QD_UNAVAILABLE, &not_ready)
               : qd_context_answer_constant(context->request, QD_OK, &ready);
}

enum qd_status qd_answer_server(const struct qd_request_context *context)
{
    char kernels[QK_KERNELS_TEXT_BYTES];
    struct qd_text text;
    qk_kernels_describe(context->server->tools.kernels, kernels, sizeof(kernels));
    qd_text_init(&text, &context->request->arena);
    qd_oip_encode_server_metadata(&text, context->server->config, kernels);
    return qd_context_answer_text(context->request, &text);
}

/* Returns the versions that the path means: all versions of the name, or one. Returns NULL if there
 * is no memory. */
static uint64_t *list_versions(const struct qd_request_context *context, size_t *count)
{
    const struct qd_signature *signature = &context->request->model->signature;
    struct qd_arena *arena = &context->request->arena;
    if (context->path->version == NULL)
        return qd_models_versions(context->server->models, signature->name, arena, count);
    uint64_t *only = qd_arena_alloc(arena, sizeof(*only));
    if (only != NULL)
        *only = signature->version;
    *count = 1;
    return only;
}

enum qd_status qd_answer_model(const struct qd_request_context *context)
{
    struct qd_request *request = context->request;
    struct qd_text text;
    size_t count;
    if (qd_context_find_model(context) != QD_OK)
        return request->error.status;
    const uint64_t *versions = list_versions(context, &count);
    if (versions == NULL)
        return qd_refuse_memory(&request->arena, "the answer", &request->error);
    qd_text_init(&text, &request->arena);
    qd_oip_encode_model_metadata(&text, &request->model->signature, versions, count,
                                 request->model->resident_bytes);
    return qd_context_answer_text(request, &text);
}

enum qd_status qd_answer_config(const struct qd_request_context *context)
{
    struct qd_request *request = context->request;
    struct qd_text text;
    if (qd_context_find_model(context) != QD_OK)
        return request->error.status;
    qd_text_init(&text, &request->arena);
    qd_oip_encode_model_config(&text, &request->model->signature);
    return qd_context_answer_text(request, &text);
}

/* The nodes were printed when the model was loaded. A built-in model has none. */
enum qd_status qd_answer_nodes(const struct qd_request_context *context)
{
    struct qd_request *request = context->request;
    struct qd_text text;
    if (qd_context_find_model(context) != QD_OK)
        return request->error.status;
    const struct qd_model *model = request->model;
    qd_text_init(&text, &request->arena);
    qd_text_string(&text, "{\"name\":");
    qd_text_json_string(&text, model->signature.name);
    qd_text_string(&text, ",\"version\":\"");
    qd_text_decimal(&text, model->signature.version);
    qd_text_string(&text, "\",");
    if (model->nodes.count > 0)
        qd_text_borrow(&text, model->nodes.bytes, model->nodes.count);
    else
        qd_text_string(&text, "\"nodes\":[]");
    qd_text_string(&text, "}");
    return qd_context_answer_text(request, &text);
}

enum qd_status qd_answer_model_ready(const struct qd_request_context *context)
{
    struct qd_text text;
    if (qd_context_find_model(context) != QD_OK)
        return context->request->error.status;
    if (atomic_load(&context->server->draining))
        return qd_context_answer_constant(context->request, QD_UNAVAILABLE, &not_ready);
    qd_text_init(&text, &context->request->arena);
    qd_text_string(&text, "{\"name\":");
    qd_text_json_string(&text, context->request->model->signature.name);
    qd_text_string(&text, ",\"ready\":true}");
    return qd_context_answer_text(context->request, &text);
}

static enum qd_status answer_schema(const struct qd_request_context *context, struct qd_part schema,
                                    const char *content_type)
{
    struct qd_text text;
    qd_text_init(&text, &context->request->arena);
    qd_text_borrow(&text, schema.bytes, schema.count);
    enum qd_status status = qd_context_answer_text(context->request, &text);
    context->request->answer.content_type = content_type;
    return status;
}

enum qd_status qd_answer_schema_yaml(const struct qd_request_context *context)
{
    return answer_schema(context, QD_EMBEDDED(qd_schema_yaml_file), "application/yaml");
}

enum qd_status qd_answer_schema_json(const struct qd_request_context *context)
{
    return answer_schema(context, QD_EMBEDDED(qd_schema_json_file), "application/json");
}
