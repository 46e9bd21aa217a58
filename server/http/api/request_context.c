#include "server/http/api/handlers.h"

#include <string.h>

#include "server/base/limits.h"
#include "server/json/reader.h"
#include "server/memory/arena.h"

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

enum qd_status qd_context_answer_constant(struct qd_request *request, enum qd_status status,
                                          const struct qd_part *part)
{
    return answer_bytes(request, status, part, 1, part->count);
}

enum qd_status qd_context_answer_text(struct qd_request *request, const struct qd_text *text)
{
    if (text->failed)
        return qd_refuse_memory(&request->arena, "the answer", &request->error);
    return answer_bytes(request, QD_OK, text->parts, text->part_count, text->bytes);
}

enum qd_status qd_context_find_model(const struct qd_request_context *context)
{
    struct qd_request *request = context->request;
    return qd_models_find(context->server->models, context->path->model, context->path->version,
                          &request->model, &request->error);
}

static enum qd_status refuse_encoding(const struct qd_request_context *context,
                                      const char *accepted, const char *expected)
{
    qd_request_add_header(context->request, "Accept-Encoding", accepted);
    if (context->head->content_encoding_count > 1) {
        return qd_fail(&context->request->error, QD_UNSUPPORTED_ENCODING,
                       "header Content-Encoding: expected at most one, got %u",
                       context->head->content_encoding_count);
    }
    return qd_fail(&context->request->error, QD_UNSUPPORTED_ENCODING,
                   "header Content-Encoding: expected %s, got \"%.64s\"", expected,
                   context->head->content_encoding);
}

enum qd_status qd_context_keep_name(const struct qd_request_context *context)
{
    struct qd_request *request = context->request;
    const char *name = context->path->model;
    enum qd_coding coding;
    if (context->head->content_encoding_count > 1 ||
        !qd_coding_read(context->head->content_encoding, &coding) || coding != QD_CODING_IDENTITY)
        return refuse_encoding(context, "identity", "identity");
    request->name = name == NULL ? NULL : qd_arena_copy(&request->arena, name);
    if (request->name == NULL && name != NULL)
        return qd_refuse_memory(&request->arena, "the name", &request->error);
    return QD_OK;
}

enum qd_status qd_context_read_encoding(const struct qd_request_context *context)
{
    if (context->head->content_encoding_count <= 1 &&
        qd_coding_read(context->head->content_encoding, &context->request->oip.coding))
        return QD_OK;
    return refuse_encoding(context, "gzip, deflate", "gzip or deflate");
}

enum qd_status qd_context_reserve(const struct qd_request_context *context)
{
    const struct qd_head *head = context->head;
    struct qd_request *request = context->request;
    if (head->json_bytes != NULL) {
        /* Blanks after a header's value are no part of it, but libmicrohttpd does not remove them.
         */
        const size_t bytes = qd_trimmed_bytes(head->json_bytes, strlen(head->json_bytes));
        char *copy = qd_arena_calloc(&request->arena, bytes + 1, 1);
        if (copy == NULL)
            return qd_refuse_memory(&request->arena, "the head", &request->error);
        qd_oip_message_set_header(&request->oip.message, memcpy(copy, head->json_bytes, bytes));
    }
    return qd_request_reserve_body(request, head->content_bytes);
}

enum qd_status qd_context_begin_call(const struct qd_request_context *context,
                                     bool (*end)(void *context, struct qd_request *request))
{
    struct qd_request *request = context->request;
    if (qd_context_keep_name(context) != QD_OK)
        return request->error.status;
    if (context->head->content_bytes > QD_CONTROL_BODY_BYTES_MAX) {
        return qd_fail(&request->error, QD_TOO_LARGE,
                       "the body: expected at most %u bytes for this call, got %llu",
                       QD_CONTROL_BODY_BYTES_MAX, (unsigned long long)context->head->content_bytes);
    }
    request->end = end;
    request->body.count_max = QD_CONTROL_BODY_BYTES_MAX;
    return qd_request_reserve_body(request, context->head->content_bytes);
}

enum qd_status qd_context_read_body(struct qd_request *request, const struct qd_json_value **tree)
{
    const size_t bytes = qd_trimmed_bytes(request->body.bytes, (size_t)request->body.count);
    *tree = NULL;
    if (bytes == 0)
        return QD_OK;
    enum qd_status status =
        qd_json_read(request->body.bytes, bytes, &request->arena, tree, &request->error);
    if (status != QD_OK || qd_json_is_object(*tree))
        return status;
    return qd_fail(&request->error, QD_INVALID, "the body: expected a JSON object, or nothing");
}
