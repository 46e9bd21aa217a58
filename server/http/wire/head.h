/* Reads the headers of a request. framing.c has checked them, except on plain connections
 * (server/http/mhd/README.md). Pure. */
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
    bool is_chunked;
    bool is_http_1_1;

    /* How many there are of headers that may come once. */
    unsigned content_encoding_count;
    unsigned json_bytes_count;
    unsigned authorization_count;
    unsigned traceparent_count;
};

/* Begins a head. `target` has no query. `version` is as in the request line: "HTTP/1.1". */
void qd_head_init(struct qd_head *head, const char *method, const char *target,
                  const char *version);

/* Adds a header. All headers must be added, in any order. Name and value end with a NUL. The value
 * is borrowed for as long as the head is used. NULL is an empty value. */
void qd_head_add(struct qd_head *head, const char *name, size_t name_bytes, const char *value);

/* Refuses a head with several Inference-Header-Content-Length: two readers could disagree about
 * where the JSON of the body ends. Call it after the last header. */
enum qd_status qd_head_check(const struct qd_head *head, struct qd_error *error);

/* Returns true if the connection ends after this request's answer (RFC 9112, 9.3). Call it after
 * the last header. */
bool qd_head_closes_connection(const struct qd_head *head);

#endif
