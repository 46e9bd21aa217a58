/* Reads the headers of a request. framing.c has checked them, except on plain connections
 * (server/http/mhd/README.md). Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/base/status.h"
#include "server/work/compression.h"

/* ---- Compression (RFC 9110, 8.4 and 12.5.3): coding.c -------------------------------------- */

/* Reads the value of Content-Encoding; NULL: there is no such header. Returns false if the coding
 * is not supported, or if there are several codings. */
bool qd_coding_read(const char *content_encoding, enum qd_coding *coding);

/* The weights that Accept-Encoding gives, in thousandths. -1, as after qd_accepted_init: the header
 * does not name the coding. */
struct qd_accepted {
    int gzip, deflate, identity, any;
};

void qd_accepted_init(struct qd_accepted *accepted);
/* Reads one Accept-Encoding header. Several such headers form one list. Entries that cannot be read
 * are skipped. */
void qd_accepted_add(struct qd_accepted *accepted, const char *accept_encoding);
/* Returns the coding with the highest weight. Of equal weights, gzip comes before deflate, and
 * deflate before no coding. */
enum qd_coding qd_accepted_choose(const struct qd_accepted *accepted);

/* ---- All headers --------------------------------------------------------------------------- */

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
