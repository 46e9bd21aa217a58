/* A line for each request, when it is over: into the access log, or, where there is none and the
 * log has everything, into that. */
#ifndef SERVER_HTTP_API_ACCESS_LOG_H
#define SERVER_HTTP_API_ACCESS_LOG_H

#include <stdbool.h>

#include "server/http/wire/head.h"
#include "server/telemetry/log_file.h"
#include "server/work/request.h"

struct qd_access_log {
    struct qd_log_file *file; /* NULL: there is no access log */
    enum qd_line_format format;
};

/* The head came, right or wrong: keeps of it what the line will say, and answers its trace. */
void qd_access_log_open(const struct qd_access_log *log, const struct qd_head *head,
                        struct qd_request *request);

/* `client`: its address. `delivered`: all of the answer was sent. */
void qd_access_log_close(const struct qd_access_log *log, const struct qd_request *request,
                         const char *client, bool delivered,
                         const uint64_t stage_ns[QD_STAGE_COUNT]);

/* Whether anybody will see what is given to the two. */
bool qd_access_log_is_read(const struct qd_access_log *log);

#endif
