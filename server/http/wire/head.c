#include "server/http/wire/head.h"

#include <string.h>
#include <strings.h>

#include "server/memory/text.h"

void qd_head_init(struct qd_head *head, const char *method, const char *target, const char *version)
{
    *head = (struct qd_head){.method = method, .path = target};
    qd_accepted_init(&head->accepted);
    head->is_http_1_1 = strcmp(version, "HTTP/1.0") != 0;
    if (target[0] != '/') { /* absolute-form, as sent to a proxy: http://host/path */
        const char *authority = strstr(target, "://");
        const char *path = authority == NULL ? NULL : strchr(authority + 3, '/');
        head->path = path != NULL ? path : authority != NULL ? "/" : target;
    }
}

/* Returns true if the list contains the token. Upper and lower case are equal. */
static bool has_token(const char *list, const char *token)
{
    static const char blanks[] = " \t,";
    for (const char *at = list + strspn(list, blanks); *at != '\0'; at += strspn(at, blanks)) {
        const size_t bytes = strcspn(at, blanks);
        if (bytes == strlen(token) && strncasecmp(at, token, bytes) == 0)
            return true;
        at += bytes;
    }
    return false;
}

/* Compares names without regard to case, lengths first, because most names differ in length. */
static inline bool is_named(const char *name, size_t bytes, const char *wanted)
{
    return bytes == strlen(wanted) && strcasecmp(name, wanted) == 0;
}

void qd_head_add(struct qd_head *head, const char *name, size_t name_bytes, const char *value)
{
    value = value == NULL ? "" : value;
    if (is_named(name, name_bytes, "Content-Length")) {
        qd_read_decimal(value, &head->content_bytes);
    } else if (is_named(name, name_bytes, "Transfer-Encoding")) {
        head->is_chunked = true;
    } else if (is_named(name, name_bytes, "Content-Encoding")) {
        head->content_encoding = value;
        head->content_encoding_count++;
    } else if (is_named(name, name_bytes, "Accept-Encoding")) {
        qd_accepted_add(&head->accepted, value);
    } else if (is_named(name, name_bytes, "Inference-Header-Content-Length")) {
        head->json_bytes = value;
        head->json_bytes_count++;
    } else if (is_named(name, name_bytes, "Authorization")) {
        head->authorization = value;
        head->authorization_count++;
    } else if (is_named(name, name_bytes, "Origin")) {
        head->origin = value;
    } else if (is_named(name, name_bytes, "If-None-Match")) {
        head->if_none_match = value;
    } else if (is_named(name, name_bytes, "traceparent")) {
        head->traceparent = value;
        head->traceparent_count++;
    } else if (is_named(name, name_bytes, "tracestate")) {
        if (head->tracestate_count < QD_TRACESTATE_COUNT_MAX)
            head->tracestates[head->tracestate_count++] = value;
    } else if (is_named(name, name_bytes, "Expect")) {
        head->expects_continue = strcasecmp(value, "100-continue") == 0;
    } else if (is_named(name, name_bytes, "Connection")) {
        head->asks_close = head->asks_close || has_token(value, "close");
        head->asks_keep_alive = head->asks_keep_alive || has_token(value, "keep-alive");
    }
}

enum qd_status qd_head_check(const struct qd_head *head, struct qd_error *error)
{
    if (head->json_bytes_count <= 1)
        return QD_OK;
    return qd_fail(error, QD_INVALID,
                   "header Inference-Header-Content-Length: expected at most one, got %u",
                   head->json_bytes_count);
}

bool qd_head_closes_connection(const struct qd_head *head)
{
    return head->asks_close || (!head->is_http_1_1 && !head->asks_keep_alive);
}
