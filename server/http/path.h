/* A request's path in pieces: "/v2/models/a%20b" is "v2", "models", "a b". Pure. */
#ifndef SERVER_HTTP_PATH_H
#define SERVER_HTTP_PATH_H

#include <stdbool.h>
#include <stddef.h>

#include "server/base/status.h"

/* The longest one that means something is a third of it, escaped. */
#define QD_PATH_BYTES_MAX 1024
#define QD_PATH_SEGMENT_COUNT_MAX 8

struct qd_path {
    char bytes[QD_PATH_BYTES_MAX];
    const char *segments[QD_PATH_SEGMENT_COUNT_MAX];
    size_t count;
    const char *model; /* what {m} and {v} stand for; NULL: not there */
    const char *version;
};

/* Splits first and decodes then, so that an escaped slash is part of a name. QD_INVALID: a broken
 * escape, or one that stands for NUL. QD_NOT_FOUND: longer than any path that means something. */
enum qd_status qd_path_split(const char *text, struct qd_path *path, struct qd_error *error);

/* "/v2/models/{m}/versions/{v}": {m} and {v} take any segment that is not empty. */
bool qd_path_matches(struct qd_path *path, const char *pattern);

/* Of a path as it came: whether the server lives, or is ready. That is answered to all who ask,
 * also without a token, and where there are too many already. */
bool qd_path_is_health(const char *text);

#endif
