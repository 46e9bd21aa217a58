/* The tokens with which clients authenticate, from the text of a file:
 *
 *     # a comment
 *     Vb3pXl0sQ2rT9wYz
 *     cGFzc3BocmFzZQ==   mobile-app   # the log shows this token's name
 *
 * Only the digests of the tokens are kept. A client's token is compared with all of them, each in
 * constant time, so the time does not tell how much of a token is right. Pure. */
#pragma once

#include <stddef.h>

#include "server/base/digest.h"
#include "server/base/status.h"
#include "server/work/request.h"

#define QD_TOKEN_COUNT_MAX 1024
#define QD_TOKEN_BYTES_MAX 4096
#define QD_TOKEN_SHORT_BYTES 16 /* guessing a shorter token may succeed */
#define QD_TOKEN_FILE_BYTES_MAX (1u << 20)

struct qd_token {
    struct qd_digest digest;
    size_t line;
    char name[QD_USER_BYTES]; /* "line-7" for a token without a name in line 7 */
};

struct qd_tokens {
    size_t count;
    size_t short_count; /* how many are shorter than QD_TOKEN_SHORT_BYTES */
    struct qd_token all[QD_TOKEN_COUNT_MAX];
};

/* Reads the tokens from the text of a file. free() frees them. Returns NULL on failure; `error`
 * then has the reason and the number of the line, but no part of a token. */
struct qd_tokens *qd_tokens_create(const char *text, size_t bytes, struct qd_error *error);

/* Returns the token's name, or NULL if the token is unknown. */
const char *qd_tokens_find(const struct qd_tokens *tokens, const char *token, size_t bytes);
