/* W3C Trace Context (Recommendation of 2021), of a request that is part of a distributed trace. */
#ifndef SERVER_HTTP_API_TRACE_H
#define SERVER_HTTP_API_TRACE_H

#include <stdbool.h>
#include <stddef.h>

#include "server/work/request.h"

/* traceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01". False, and nothing is
 * filled: it is not valid, and so is to be ignored, with its tracestate. Otherwise the request has
 * a span of its own in that trace. */
bool qd_trace_read(const char *traceparent, struct qd_trace *trace);

/* A header tracestate, which may be one of several. */
bool qd_trace_is_state(const char *tracestate);

#endif
