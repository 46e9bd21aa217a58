/* Writes a line for each request when it ends: into the access log or, if there is none, into the
 * log if that has the level debug. */
#ifndef SERVER_HTTP_API_ACCESS_LOG_H
#define SERVER_HTTP_API_ACCESS_LOG_H

#include <stdbool.h>

#include "server/http/wire/head.h"
#include "server/telemetry/log_file.h"
#include "server/work/request.h"

struct qd_access_log {
    struct qd_log_file *file; /* NULL without an access log */
    enum qd_line_format format;
};

/* Keeps what the line will say of the request's head, and adds the answer's header if the request
 * is part of a trace. Called when the head has come, even if it is refused. */
void qd_access_log_open(const struct qd_access_log *log, const struct qd_head *head,
                        struct qd_request *request);

/* Writes the line. `client` is the client's address. `delivered`: the whole answer was sent. */
void qd_access_log_close(const struct qd_access_log *log, struct qd_request *request,
                         const char *client, bool delivered,
                         const uint64_t stage_ns[QD_STAGE_COUNT]);

/* Returns true if the lines are written to any log. */
bool qd_access_log_is_read(const struct qd_access_log *log);

#endif
