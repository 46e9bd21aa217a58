/* Writes a line for each request when it ends: into the access log or, if there is none, into the
 * log if that has the level debug. */
#pragma once

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

/* ---- Distributed traces: W3C Trace Context (Recommendation of 2021) ------------------------ */

/* Reads a traceparent such as "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", and gives
 * the request a span of its own in that trace. Returns false, and fills nothing, if the traceparent
 * is invalid. It is then ignored, together with its tracestate. */
bool qd_trace_read(const char *traceparent, struct qd_trace *trace);

/* Returns true if a header tracestate is valid. A request may have several of them. */
bool qd_trace_is_state(const char *tracestate);
