#include "server/http/wire/head.h"

#include <string.h>
#include <strings.h>

#include "server/base/limits.h"
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

/* RFC 9110: a name is a token, a value has no control characters but tabs. */
static bool is_token_character(unsigned char c)
{
    if (c == '-' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))
        return true; /* the fast path for nearly all characters */
    return c > ' ' && c < 0x7f && strchr("\"(),/:;<=>?@[\\]{}", c) == NULL;
}

static bool is_name(const char *name, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (!is_token_character((unsigned char)name[i]))
            return false;
    return bytes > 0;
}

static bool is_value(const char *value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        unsigned char c = (unsigned char)value[i];
        if ((c < ' ' && c != '\t') || c == 0x7f)
            return false;
    }
    return true;
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

void qd_head_add(struct qd_head *head, const char *name, size_t name_bytes, const char *value,
                 size_t value_bytes)
{
    value = value == NULL ? "" : value;
    head->field_count++;
    if (!is_name(name, name_bytes)) {
        head->bad_name = name;
    } else if (!is_value(value, value_bytes)) {
        head->bad_value = name;
    } else if (is_named(name, name_bytes, "Content-Length")) {
        head->content_length = value;
        head->content_length_count++;
    } else if (is_named(name, name_bytes, "Transfer-Encoding")) {
        head->transfer_encoding = value;
        head->transfer_encoding_count++;
    } else if (is_named(name, name_bytes, "Host")) {
        head->host_count++;
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

void qd_head_add_cookie(struct qd_head *head, size_t name_bytes, size_t value_bytes)
{
    head->field_count++;
    head->cookie_bytes += name_bytes + value_bytes;
}

enum qd_status qd_head_check_size(const struct qd_head *head, size_t bytes, size_t target_bytes,
                                  struct qd_error *error)
{
    if (target_bytes > QD_HEAD_BYTES_MAX) {
        return qd_fail(error, QD_LINE_TOO_LONG,
                       "the first line: expected a target of at most %u bytes, got %zu",
                       QD_HEAD_BYTES_MAX, target_bytes);
    }
    bytes += QD_HEAD_FIELD_BYTES * head->field_count + 2 * head->cookie_bytes;
    if (bytes > QD_HEAD_BYTES_MAX) {
        return qd_fail(error, QD_HEAD_TOO_LARGE,
                       "the head: expected at most %u bytes, %u more for each field and cookie and "
                       "cookies three times, got %zu",
                       QD_HEAD_BYTES_MAX, QD_HEAD_FIELD_BYTES, bytes);
    }
    return QD_OK;
}

bool qd_head_closes_connection(const struct qd_head *head)
{
    return head->asks_close || (!head->is_http_1_1 && !head->asks_keep_alive);
}

enum qd_status qd_head_check(struct qd_head *head, struct qd_error *error)
{
    if (head->bad_name != NULL) {
        return qd_fail(
            error, QD_INVALID,
            "a header's name: expected letters, digits and !#$%%&'*+-.^_`|~, got \"%.64s\"",
            head->bad_name);
    }
    if (head->bad_value != NULL) {
        return qd_fail(error, QD_INVALID, "header %.64s: expected no control character, got one",
                       head->bad_value);
    }
    if (head->host_count > 1 || (head->host_count == 0 && head->is_http_1_1)) {
        return qd_fail(error, QD_INVALID, "header Host: expected exactly one, got %u",
                       head->host_count);
    }
    if (head->content_length_count > 1) {
        return qd_fail(error, QD_INVALID, "header Content-Length: expected at most one, got %u",
                       head->content_length_count);
    }
    if (head->json_bytes_count > 1) {
        return qd_fail(error, QD_INVALID,
                       "header Inference-Header-Content-Length: expected at most one, got %u",
                       head->json_bytes_count);
    }
    if (head->transfer_encoding_count > 0) {
        if (head->content_length_count > 0) {
            return qd_fail(error, QD_INVALID,
                           "headers Content-Length and Transfer-Encoding: expected one, got both");
        }
        if (!head->is_http_1_1) {
            return qd_fail(
                error, QD_INVALID,
                "header Transfer-Encoding: expected none in an HTTP/1.0 request, got one");
        }
        if (head->transfer_encoding_count > 1 ||
            strcasecmp(head->transfer_encoding, "chunked") != 0) {
            return qd_fail(error, QD_NOT_IMPLEMENTED,
                           "header Transfer-Encoding: expected chunked, got \"%.64s\"",
                           head->transfer_encoding);
        }
    }
    if (head->content_length_count > 0 &&
        !qd_read_decimal(head->content_length, &head->content_bytes)) {
        return qd_fail(error, QD_INVALID,
                       "header Content-Length: expected a number of bytes, got \"%.64s\"",
                       head->content_length);
    }
    return QD_OK;
}
