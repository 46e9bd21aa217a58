/* The handlers of the paths in route.c's table. A handler is called when a request's head has come.
 * It fills the answer, or it decides how the body is taken and what happens after that. It returns
 * QD_OK, or why the request is refused. A handler qd_print_ prints the answer, which is refused if
 * it sets text->failed. A handler qd_end_ is called when a call's body has come, with the
 * server as its context. It answers, and returns true. All handlers run on the connection's loop.
 *
 * The functions before them are those that several handlers need (request_context.c). */
#pragma once

#include "server/http/api/server.h"
#include "server/http/path.h"
#include "server/http/wire/head.h"
#include "server/memory/text.h"
#include "server/work/request.h"

struct qd_json_value;

/* What each handler is given. */
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

/* ---- The handlers ------------------------------------------------------------------------- */

/* answers.c: what the server and its models are, and whether they are ready. Answered at once. */
enum qd_status qd_answer_live(const struct qd_request_context *context);
enum qd_status qd_answer_ready(const struct qd_request_context *context);
void qd_print_server(const struct qd_request_context *context, struct qd_text *text);
void qd_print_model(const struct qd_request_context *context, struct qd_text *text);
void qd_print_config(const struct qd_request_context *context, struct qd_text *text);
void qd_print_nodes(const struct qd_request_context *context, struct qd_text *text);
enum qd_status qd_answer_model_ready(const struct qd_request_context *context);
enum qd_status qd_answer_schema_yaml(const struct qd_request_context *context);
enum qd_status qd_answer_schema_json(const struct qd_request_context *context);

/* scrape.c: metrics and statistics, the answers that grow with the number of models. They are
 * printed while they are sent (stream.h). The first QD_SCRAPE_RESERVED_COUNT at a time use no
 * memory of requests, because operators want to see them when that memory is at its bound. */
enum qd_status qd_answer_stats(const struct qd_request_context *context);
enum qd_status qd_answer_metrics(const struct qd_request_context *context);

/* console.c: GET /. Answers 404 if the server has no console. */
enum qd_status qd_answer_console(const struct qd_request_context *context);

/* control.c: calls that list the models, load one, or unload one. */
bool qd_end_index(void *server, struct qd_request *request);
enum qd_status qd_begin_load(const struct qd_request_context *context);
enum qd_status qd_begin_unload(const struct qd_request_context *context);

/* logging.c: Triton's logging extension. Calls show and change which events are logged, and in
 * which format. They do not affect the access log. */
void qd_print_logging(const struct qd_request_context *context, struct qd_text *text);
bool qd_end_logging(void *server, struct qd_request *request);

/* shared_memory.c: Triton's calls that register shared memory (oip/regions.h). CUDA shared memory
 * is never registered. */
enum qd_status qd_answer_regions(const struct qd_request_context *context);
enum qd_status qd_begin_register(const struct qd_request_context *context);
enum qd_status qd_answer_unregister(const struct qd_request_context *context);
enum qd_status qd_answer_no_regions(const struct qd_request_context *context);
enum qd_status qd_refuse_cuda(const struct qd_request_context *context);
