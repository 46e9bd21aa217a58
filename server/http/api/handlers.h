/* The handlers of the paths in route.c's table. A handler is called when a request's head has come.
 * It fills the answer, or it decides how the body is taken and what happens after that. It returns
 * QD_OK, or why the request is refused. A handler qd_print_ prints the answer, which is refused if
 * it sets text->failed. A handler qd_end_ is called when a call's body has come, with the
 * server as its context. It answers, and returns true. All handlers run on the connection's loop.
 */
#ifndef SERVER_HTTP_API_HANDLERS_H
#define SERVER_HTTP_API_HANDLERS_H

#include "server/http/api/request_context.h"

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

#endif
