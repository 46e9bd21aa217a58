/* A request at its path: what each handler of route.c's table is given, and what several need. */
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

/* The answer to a request that goes well: JSON that never changes, or that was just made. */
enum qd_status qd_context_answer_constant(struct qd_request *request, enum qd_status status,
                                          const struct qd_part *part);
enum qd_status qd_context_answer_text(struct qd_request *request, const struct qd_text *text);

/* The model that the path names; the request holds it. */
enum qd_status qd_context_find_model(const struct qd_request_context *context);

/* Keeps the name that the path has for {m}, as request->name. */
enum qd_status qd_context_keep_name(const struct qd_request_context *context);

/* Refuses a compressed body. */
enum qd_status qd_context_check_encoding(const struct qd_request_context *context);

/* How an inference's body is compressed, if it is. */
enum qd_status qd_context_read_encoding(const struct qd_request_context *context);

/* Keeps the body, with room for what comes, if it is known how much that is. */
enum qd_status qd_context_reserve(const struct qd_request_context *context);

/* The same of a call that brings no tensors; any larger body is refused before it comes. */
enum qd_status qd_context_reserve_small(const struct qd_request_context *context);

/* Parses it: a JSON object, or nothing (NULL). */
enum qd_status qd_context_read_body(struct qd_request *request, const struct qd_json_value **tree);

#endif
