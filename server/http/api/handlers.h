/* The handlers of the paths in route.c's table. Each fills the answer of a request whose head has
 * come, or says how its body is to be taken and what happens then. QD_OK, or why the request is
 * refused. All run on the connection's loop. */
#ifndef SERVER_HTTP_API_HANDLERS_H
#define SERVER_HTTP_API_HANDLERS_H

#include "server/http/api/request_context.h"

/* answers.c: what there is, and how it is. Answered at once. */
enum qd_status qd_answer_live(const struct qd_request_context *context);
enum qd_status qd_answer_ready(const struct qd_request_context *context);
enum qd_status qd_answer_server(const struct qd_request_context *context);
enum qd_status qd_answer_model(const struct qd_request_context *context);
enum qd_status qd_answer_model_ready(const struct qd_request_context *context);
enum qd_status qd_answer_config(const struct qd_request_context *context);
enum qd_status qd_answer_schema_yaml(const struct qd_request_context *context);
enum qd_status qd_answer_schema_json(const struct qd_request_context *context);

/* scrape.c: the answers that grow with the number of models, metrics and statistics. They are
 * printed while they are sent (stream.h), and the first QD_SCRAPE_SPARE_COUNT at a time take no
 * memory of requests: when that is at its bound, one wants to see it. */
enum qd_status qd_answer_stats(const struct qd_request_context *context);
enum qd_status qd_answer_metrics(const struct qd_request_context *context);

/* console.c: GET /; 404 where the server has no console. */
enum qd_status qd_answer_console(const struct qd_request_context *context);

/* control.c: calls about models, which there are, to load one, to unload one. */
enum qd_status qd_begin_index(const struct qd_request_context *context);
enum qd_status qd_begin_load(const struct qd_request_context *context);
enum qd_status qd_begin_unload(const struct qd_request_context *context);

/* logging.c: Triton's logging extension. What the log has, and in which form, is seen and changed
 * by calls. The access log is not touched by them. */
enum qd_status qd_answer_logging(const struct qd_request_context *context);
enum qd_status qd_begin_logging(const struct qd_request_context *context);

/* shared_memory.c: Triton's calls that register shared memory; what they do is in oip/regions.h. Of
 * CUDA's there is never any. */
enum qd_status qd_answer_regions(const struct qd_request_context *context);
enum qd_status qd_begin_register(const struct qd_request_context *context);
enum qd_status qd_answer_unregister(const struct qd_request_context *context);
enum qd_status qd_answer_no_regions(const struct qd_request_context *context);
enum qd_status qd_refuse_cuda(const struct qd_request_context *context);

#endif
