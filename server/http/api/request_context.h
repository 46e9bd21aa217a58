/* What each handler of route.c's table is given, and functions that several handlers need. */
#ifndef SERVER_HTTP_API_REQUEST_CONTEXT_H
#define SERVER_HTTP_API_REQUEST_CONTEXT_H

#include "server/http/api/server.h"
#include "server/http/path.h"
#include "server/http/wire/head.h"
#include "server/memory/text.h"
#include "server/work/request.h"

struct qd_json_value;

struct qd_request_context {
    struct qd_server *server;
    const struct qd_path *path;
    const struct qd_head *head;
    struct qd_request *request;
};

/* Fill the answer with JSON: a constant one with the HTTP code of `status`, or a text that was just
 * made, with 200. qd_context_answer_text fails if the text ran out of memory. */
enum qd_status qd_context_answer_constant(struct qd_request *request, enum qd_status status,
                                          const struct qd_part *part);
enum qd_status qd_context_answer_text(struct qd_request *request, const struct qd_text *text);

/* Finds the model that the path names. The request gets a reference to it. */
enum qd_status qd_context_find_model(const struct qd_request_context *context);

/* Refuses a compressed body. Copies the name that the path has for {m}, if it has one, into the
 * request's arena, as request->name. */
enum qd_status qd_context_keep_name(const struct qd_request_context *context);

/* Reads how an inference's body is compressed, if it is. Refuses a coding that is unknown. */
enum qd_status qd_context_read_encoding(const struct qd_request_context *context);

/* Keeps the body, with room for all of it if its size is known, and the value of
 * Inference-Header-Content-Length. */
enum qd_status qd_context_reserve(const struct qd_request_context *context);

/* Begins a call without tensors: keeps its name and its body, which is not compressed. Refuses a
 * body larger than QD_CONTROL_BODY_BYTES_MAX, before it comes if its size is known. `end` becomes
 * request->end. */
enum qd_status qd_context_begin_call(const struct qd_request_context *context,
                                     bool (*end)(void *context, struct qd_request *request));

/* Parses the body, which must be a JSON object or empty. *tree is NULL if it is empty. */
enum qd_status qd_context_read_body(struct qd_request *request, const struct qd_json_value **tree);

#endif
