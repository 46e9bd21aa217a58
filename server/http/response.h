/* A request's answer as libmicrohttpd takes it. */
#ifndef SERVER_HTTP_RESPONSE_H
#define SERVER_HTTP_RESPONSE_H

#include <microhttpd.h>
#include <stdbool.h>

#include "server/work/request.h"

/* may_chunk: the answer may go in chunks. It may not for a client of HTTP/1.0, which does not know
 * them, nor for a HEAD, for which 0.9.75 would send a last chunk: then an answer of unknown length
 * closes the connection. The response borrows the answer's bytes, in the request's arena, until the
 * library has completed the request. Returns NULL if malloc failed; an answer that lacks one of its
 * headers would be misread. */
struct MHD_Response *qd_response_create(struct qd_request *request, bool may_chunk);

/* All of a short answer, its head and its body, as it goes out where the connection stays open: in
 * the request's arena. The library needs seven allocations and as much time as reading a small
 * request takes for the same bytes. False: it is no such answer, or there is no memory. */
bool qd_response_print(struct qd_request *request, struct qd_part *whole);

#endif
