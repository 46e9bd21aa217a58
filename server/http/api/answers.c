#include "server/http/api/handlers.h"

#include "server/http/api/embed.h"
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

void qd_print_server(const struct qd_request_context *context, struct qd_text *text)
{
    char kernels[QK_KERNELS_TEXT_BYTES];
    qk_kernels_describe(context->server->tools.kernels, kernels, sizeof(kernels));
    qd_oip_encode_server_metadata(text, context->server->config, kernels);
}

/* Lists the versions that the path means: all versions of the name, or one. */
void qd_print_model(const struct qd_request_context *context, struct qd_text *text)
{
    struct qd_request *request = context->request;
    const struct qd_signature *signature = &request->model->signature;
    const uint64_t *versions = &signature->version;
    size_t count = 1;
    if (context->path->version == NULL)
        versions =
            qd_models_versions(context->server->models, signature->name, &request->arena, &count);
    text->failed |= versions == NULL;
    if (!text->failed)
        qd_oip_encode_model_metadata(text, signature, versions, count,
                                     request->model->resident_bytes);
}

void qd_print_config(const struct qd_request_context *context, struct qd_text *text)
{
    qd_oip_encode_model_config(text, &context->request->model->signature);
}

/* The nodes were printed when the model was loaded. A built-in model has none. */
void qd_print_nodes(const struct qd_request_context *context, struct qd_text *text)
{
    const struct qd_model *model = context->request->model;
    qd_text_string(text, "{\"name\":");
    qd_text_json_string(text, model->signature.name);
    qd_text_string(text, ",\"version\":\"");
    qd_text_decimal(text, model->signature.version);
    qd_text_string(text, "\",");
    if (model->nodes.count > 0)
        qd_text_borrow(text, model->nodes.bytes, model->nodes.count);
    else
        qd_text_string(text, "\"nodes\":[]");
    qd_text_string(text, "}");
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
