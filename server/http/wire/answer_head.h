/* The head of an answer: its headers one by one, for libmicrohttpd, or as text. */
#ifndef SERVER_HTTP_WIRE_ANSWER_HEAD_H
#define SERVER_HTTP_WIRE_ANSWER_HEAD_H

#include <stdbool.h>

#include "server/work/request.h"

/* Gives each header but Content-Length and "Connection: Keep-Alive" to `put`, in the order in which
 * they go out. False: `put` was, and has not got those behind. */
typedef bool qd_put_header(void *context, const char *name, const char *value);
bool qd_answer_put_headers(const struct qd_request *request, qd_put_header *put, void *context);

/* Prints all of it, up to the empty line behind. `reason`: of the status line. Returns where it
 * ends; NULL: it does not fit into so many bytes. */
#define QD_ANSWER_HEAD_BYTES 2048
char *qd_answer_print_head(const struct qd_request *request, const char *reason, char *text);

#endif
