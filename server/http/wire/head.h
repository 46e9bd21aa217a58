/* A request's head, held to the rules that keep two readers of one connection from disagreeing
 * about where a request ends. Pure. */
#ifndef SERVER_HTTP_WIRE_HEAD_H
#define SERVER_HTTP_WIRE_HEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/base/status.h"
#include "server/http/wire/coding.h"

#define QD_TRACESTATE_COUNT_MAX 4 /* headers of that name; more are not read */

/* Strings are borrowed; NULL: no such header. */
struct qd_head {
    const char *method;
    const char *path; /* as it came, without scheme, authority and query */
    const char *content_encoding;
    struct qd_accepted accepted; /* Accept-Encoding */
    const char *json_bytes;      /* Inference-Header-Content-Length */
    const char *authorization;
    const char *origin;
    const char *if_none_match;
    const char *traceparent;
    const char *tracestates[QD_TRACESTATE_COUNT_MAX];
    size_t tracestate_count;
    uint64_t content_bytes; /* 0 when chunked */
    bool expects_continue;  /* the client waits for a word before it sends its body */
    bool asks_close;        /* Connection: close */
    bool asks_keep_alive;

    /* While it is read. */
    bool is_http_1_1;
    const char *content_length;
    const char *transfer_encoding;
    unsigned content_length_count;
    unsigned content_encoding_count;
    unsigned transfer_encoding_count;
    unsigned host_count;
    unsigned json_bytes_count;
    unsigned authorization_count;
    unsigned traceparent_count;
    size_t field_count;    /* with the cookies */
    size_t cookie_bytes;   /* of all of them */
    const char *bad_name;  /* of a field whose name is none; NULL: there is none */
    const char *bad_value; /* likewise: the field's name */
};

/* `target` without its query. `version` as in the request line: "HTTP/1.1". */
void qd_head_init(struct qd_head *head, const char *method, const char *target,
                  const char *version);

/* Every header, in any order. Name and value end with a NUL, and are borrowed until the last look
 * at the head: it may name what is wrong. */
void qd_head_add(struct qd_head *head, const char *name, size_t name_bytes, const char *value,
                 size_t value_bytes);

/* One of the pairs in Cookie, as the library has them. */
void qd_head_add_cookie(struct qd_head *head, size_t name_bytes, size_t value_bytes);

/* The head is too large: an answer may find no memory beside it. `bytes`: of all its lines, of
 * which the first has so many before its version. When all are added. */
enum qd_status qd_head_check_size(const struct qd_head *head, size_t bytes, size_t target_bytes,
                                  struct qd_error *error);

/* The connection ends with this request's answer (RFC 9112, 9.3). When all are added. */
bool qd_head_is_last(const struct qd_head *head);

/* When all are added. A failure means that nobody can say where the next request begins: answer,
 * and close. */
enum qd_status qd_head_check(struct qd_head *head, struct qd_error *error);

#endif
