/* Checks a request's head by the rules that keep two readers of a connection from disagreeing about
 * where a request ends. Pure. */
#ifndef SERVER_HTTP_WIRE_HEAD_H
#define SERVER_HTTP_WIRE_HEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/base/status.h"
#include "server/http/wire/coding.h"

#define QD_TRACESTATE_COUNT_MAX 4 /* how many tracestate headers are read */

/* The headers that the server reads. Strings are borrowed; NULL: there is no such header. */
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
    uint64_t content_bytes; /* 0 if the body is chunked */
    bool expects_continue;  /* the client waits for an interim answer before it sends the body */
    bool asks_close;        /* Connection: close */
    bool asks_keep_alive;

    /* For the checks of the head. */
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
    size_t field_count;    /* of fields and cookies */
    size_t cookie_bytes;   /* of all cookies together */
    const char *bad_name;  /* the name of a field whose name is invalid; NULL: there is none */
    const char *bad_value; /* the name of a field whose value is invalid; NULL: there is none */
};

/* Begins a head. `target` has no query. `version` is as in the request line: "HTTP/1.1". */
void qd_head_init(struct qd_head *head, const char *method, const char *target,
                  const char *version);

/* Adds a header. All headers must be added, in any order. Name and value end with a NUL. They are
 * borrowed for as long as the head is used, because error texts name them. */
void qd_head_add(struct qd_head *head, const char *name, size_t name_bytes, const char *value,
                 size_t value_bytes);

/* Adds one name=value pair of the Cookie header, into which the library has split it. */
void qd_head_add_cookie(struct qd_head *head, size_t name_bytes, size_t value_bytes);

/* Fails if the head is so large that the library might have no memory left for an answer. `bytes`
 * is the length of all lines, `target_bytes` that of the target. Call it after the last header. */
enum qd_status qd_head_check_size(const struct qd_head *head, size_t bytes, size_t target_bytes,
                                  struct qd_error *error);

/* Returns true if the connection ends after this request's answer (RFC 9112, 9.3). Call it after
 * the last header. */
bool qd_head_closes_connection(const struct qd_head *head);

/* Checks the head. Call it after the last header. After a failure it is unknown where the next
 * request begins, so the caller must answer and close. */
enum qd_status qd_head_check(struct qd_head *head, struct qd_error *error);

#endif
