/* Turns a request's answer into a response that libmicrohttpd sends, or into text that is sent in
 * place of one. */
#ifndef SERVER_HTTP_RESPONSE_H
#define SERVER_HTTP_RESPONSE_H

#include <microhttpd.h>
#include <stdbool.h>

#include "server/work/request.h"

/* Creates the response of a request. may_chunk: the answer may be sent in chunks. It may not for a
 * client of HTTP/1.0, which does not know chunks, or for a HEAD, for which libmicrohttpd 0.9.75
 * would send a last chunk. If it may not and its length is unknown, it closes the connection. The
 * response borrows the answer's bytes, in the request's arena, until libmicrohttpd has completed
 * the request. Returns NULL if malloc failed, even if only for one header, because an answer that
 * lacks a header would be misread. */
struct MHD_Response *qd_response_create(struct qd_request *request, bool may_chunk);

/* Prints a short answer, head and body, into the request's arena, for a connection that stays open.
 * It is then sent past libmicrohttpd (mhd/hooks.h), which needs seven allocations for the same
 * bytes, and as much time as reading a small request takes. Returns false if the answer is not
 * short, is streamed, or closes the connection, or if there is no memory. */
bool qd_response_print(struct qd_request *request, struct qd_part *whole);

#endif
