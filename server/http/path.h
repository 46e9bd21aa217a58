/* Splits a request's path into segments, for the table of paths (route.c): "/v2/models/a%20b"
 * becomes "v2", "models", "a b". Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "server/base/status.h"

/* The longest path that means something has a third of this length, and escapes triple it. */
#define QD_PATH_BYTES_MAX 1024
#define QD_PATH_SEGMENT_COUNT_MAX 8

struct qd_path {
    char bytes[QD_PATH_BYTES_MAX];
    const char *segments[QD_PATH_SEGMENT_COUNT_MAX];
    size_t count;
    const char *model; /* what {m} and {v} stand for; NULL: not in the path */
    const char *version;
};

/* Splits a path. Decodes each segment only afterwards, so that an escaped slash is part of a name.
 * Returns QD_INVALID for an escape that is broken or stands for NUL. Returns QD_NOT_FOUND for a
 * path that begins without a slash or is longer than any path that means something. */
enum qd_status qd_path_split(const char *text, struct qd_path *path, struct qd_error *error);

/* Refuses a path that no pattern matches. Returns QD_NOT_FOUND. */
enum qd_status qd_path_refuse(const char *text, struct qd_error *error);

/* Returns true if the path matches a pattern such as "/v2/models/{m}/versions/{v}", and fills
 * path->model and path->version. {m} and {v} match any segment that is not empty. */
bool qd_path_matches(struct qd_path *path, const char *pattern);

/* Returns true if the path, as the client sent it, asks whether the server lives or is ready. That
 * is answered to all clients, also without a token and beyond the quota. */
bool qd_path_is_health(const char *text);
