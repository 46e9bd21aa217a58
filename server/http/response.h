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

#endif
