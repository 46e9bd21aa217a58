/* Makes a request's answer into what libmicrohttpd sends. */
#ifndef SERVER_HTTP_RESPONSE_H
#define SERVER_HTTP_RESPONSE_H

#include <microhttpd.h>
#include <stdbool.h>

#include "server/work/request.h"

/* Creates the response of a request. may_chunk: the answer may be sent in chunks. It may not for a
 * client of HTTP/1.0, which does not know chunks, or for a HEAD, for which 0.9.75 would send a last
 * chunk. An answer of unknown length then closes the connection. The response borrows the answer's
 * bytes, in the request's arena, until libmicrohttpd has completed the request. Returns NULL if
 * malloc failed, also for a header alone, because an answer that lacks one would be misread. */
struct MHD_Response *qd_response_create(struct qd_request *request, bool may_chunk);

/* Prints a short answer, its head and its body, into the request's arena, as it is sent if the
 * connection stays open. libmicrohttpd needs seven allocations for the same bytes, and as much time
 * as reading a small request takes. Returns false if the answer is not short, is streamed, or
 * closes the connection, or if there is no memory. */
bool qd_response_print(struct qd_request *request, struct qd_part *whole);

#endif
