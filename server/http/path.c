#include "server/http/path.h"

#include <string.h>

#include "server/memory/text.h"

/* Decodes the escape at `at`. Returns 0 if it is broken, or stands for NUL. */
static char decode_escape(const char *at)
{
    int high = qd_hex_digit(at[1]);
    int low = high < 0 ? -1 : qd_hex_digit(at[2]);
    return low < 0 ? '\0' : (char)(high * 16 + low);
}

/* Decodes a segment in place. Returns its first broken escape, or NULL if there is none. */
static const char *decode_segment(char *segment)
{
    char *to = segment;
    for (const char *at = segment; *at != '/' && *at != '\0'; at++) {
        const bool escaped = *at == '%';
        const char c = escaped ? decode_escape(at) : *at;
        if (c == '\0')
            return at;
        *to++ = c;
        at += escaped ? 2 : 0;
    }
    *to = '\0';
    return NULL;
}

enum qd_status qd_path_refuse(const char *text, struct qd_error *error)
{
    return qd_fail(error, QD_NOT_FOUND,
                   "path: expected an endpoint that GET /openapi.yaml describes, got \"%.100s\"; "
                   "POST /v2/repository/index lists the models",
                   text);
}

enum qd_status qd_path_split(const char *text, struct qd_path *path, struct qd_error *error)
{
    const size_t bytes = strlen(text);
    /* The two arrays are large and not cleared: only what is written below is read. */
    path->count = 0;
    if (text[0] != '/' || bytes >= QD_PATH_BYTES_MAX)
        return qd_path_refuse(text, error);
    memcpy(path->bytes, text, bytes + 1);
    const bool escapes = memchr(text, '%', bytes) != NULL;
    for (char *at = path->bytes, *next; at != NULL; at = next) {
        if (path->count == QD_PATH_SEGMENT_COUNT_MAX)
            return qd_path_refuse(text, error);
        *at++ = '\0';
        next = strchr(at, '/');
        path->segments[path->count++] = at;
        const char *broken = escapes ? decode_segment(at) : NULL;
        if (broken != NULL) {
            return qd_fail(error, QD_INVALID,
                           "the path: expected %%01 to %%FF after '%%', got \"%.3s\"", broken);
        }
    }
    return QD_OK;
}

bool qd_path_matches(struct qd_path *path, const char *pattern)
{
    path->model = NULL;
    path->version = NULL;
    size_t i = 0;
    for (; *pattern == '/' && i < path->count; i++) {
        const char *segment = path->segments[i];
        pattern++;
        if (*pattern == '{' && *segment != '\0') {
            *(pattern[1] == 'm' ? &path->model : &path->version) = segment;
            pattern += sizeof("{m}") - 1;
            continue;
        }
        while (*segment == *pattern && *pattern != '/' && *pattern != '\0') {
            segment++;
            pattern++;
        }
        if (*segment != '\0' || (*pattern != '/' && *pattern != '\0'))
            return false;
    }
    return i == path->count && *pattern == '\0';
}

bool qd_path_is_health(const char *text)
{
    struct qd_path path;
    struct qd_error ignored;
    return qd_path_split(text, &path, &ignored) == QD_OK &&
           (qd_path_matches(&path, "/v2/health/live") ||
            qd_path_matches(&path, "/v2/health/ready"));
}
