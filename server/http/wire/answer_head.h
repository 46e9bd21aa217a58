/* Makes the head of an answer: its headers one by one, for libmicrohttpd, or the whole head as
 * text, for answers that are sent past libmicrohttpd. */
#pragma once

#include <stdbool.h>

#include "server/work/request.h"

/* Calls `put` for each header except Content-Length and "Connection: Keep-Alive", in the order in
 * which they are sent. Stops and returns false as soon as `put` returns false. */
typedef bool qd_put_header(void *context, const char *name, const char *value);
bool qd_answer_put_headers(const struct qd_request *request, qd_put_header *put, void *context);

/* Prints the whole head, with the empty line that ends it, into `text`, which has room for
 * QD_ANSWER_HEAD_BYTES. `reason` is the phrase of the status line. Returns the end of the head, or
 * NULL if it does not fit. */
#define QD_ANSWER_HEAD_BYTES 2048
char *qd_answer_print_head(const struct qd_request *request, const char *reason, char *text);
