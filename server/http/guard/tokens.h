/* The tokens of those who may come in, from the text of a file:
 *
 *     # a comment
 *     Vb3pXl0sQ2rT9wYz
 *     cGFzc3BocmFzZQ==   mobile-app   # its name stands in the log
 *
 * Only their digests are kept, and all are compared, each in constant time: how long it takes does
 * not tell how much of a token is right. Pure. */
#ifndef SERVER_HTTP_GUARD_TOKENS_H
#define SERVER_HTTP_GUARD_TOKENS_H

#include <stddef.h>

#include "server/base/status.h"

#define QD_TOKEN_COUNT_MAX 1024
#define QD_TOKEN_BYTES_MAX 4096
#define QD_TOKEN_SHORT_BYTES 16 /* below it, guessing may succeed */
#define QD_TOKEN_FILE_BYTES_MAX (1u << 20)

struct qd_tokens;

/* NULL: `error` says why, with a line's number, but without anything of a token. */
struct qd_tokens *qd_tokens_create(const char *text, size_t bytes, struct qd_error *error);
void qd_tokens_destroy(struct qd_tokens *tokens); /* NULL is fine */

size_t qd_tokens_count(const struct qd_tokens *tokens);
size_t qd_tokens_short_count(const struct qd_tokens *tokens);

/* Its name, "line-7" for the one without in line 7; NULL: it is none of them. */
const char *qd_tokens_find(const struct qd_tokens *tokens, const char *token, size_t bytes);

#endif
