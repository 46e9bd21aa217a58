/* Triton's logging extension: what the log has, and in which form, seen and changed by calls. The
 * access log is not touched by it. */
#ifndef SERVER_HTTP_API_LOGGING_H
#define SERVER_HTTP_API_LOGGING_H

#include "server/http/api/visit.h"

enum qd_status qd_answer_logging(const struct qd_visit *visit);
enum qd_status qd_begin_logging(const struct qd_visit *visit);

#endif
