/* Reads the headers by which a request is part of a distributed trace: W3C Trace Context
 * (Recommendation of 2021). */
#ifndef SERVER_HTTP_API_TRACE_H
#define SERVER_HTTP_API_TRACE_H

#include <stdbool.h>

#include "server/work/request.h"

/* Reads a traceparent such as "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", and gives
 * the request a span of its own in that trace. Returns false, and fills nothing, if the traceparent
 * is invalid. It is then ignored, together with its tracestate. */
bool qd_trace_read(const char *traceparent, struct qd_trace *trace);

/* Returns true if a header tracestate is valid. A request may have several of them. */
bool qd_trace_is_state(const char *tracestate);

#endif
