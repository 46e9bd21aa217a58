/* A request's answer as libmicrohttpd takes it. */
#ifndef SERVER_HTTP_RESPONSE_H
#define SERVER_HTTP_RESPONSE_H

#include <microhttpd.h>
#include <stdbool.h>

#include "server/work/request.h"

/* is_head: of a HEAD. It borrows the answer's bytes, in the request's arena, until the library has
 * completed the request. NULL: malloc failed; an answer that lacks one of its headers would be
 * misread. */
struct MHD_Response *qd_response_create(struct qd_request *request, bool is_head);

/* All of a brief answer, its head and its body, as it goes out where the connection stays open: in
 * the request's arena. The library needs seven allocations and as much time as reading a small
 * request takes for the same bytes. False: it is no such answer, or there is no memory. */
bool qd_response_print(struct qd_request *request, struct qd_part *whole);

#endif
