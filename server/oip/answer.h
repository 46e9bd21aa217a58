/* The answer to an HTTP request, as handlers and inferences fill it and the listener sends it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "server/memory/text.h"

struct qd_header {
    const char *name;
    const char *value;
};

struct qd_answer {
    unsigned http_status;
    const char *content_type; /* for errors exactly "application/json", because OIP clients compare
                                 it; NULL: not sent */
    const struct qd_part *parts; /* the body, borrowed until it is sent */
    size_t part_count;
    size_t taken_bytes;     /* how much of the first part libmicrohttpd has fetched already */
    size_t bytes;           /* the bytes of all parts; of a stream, the bytes read so far */
    size_t json_bytes;      /* Inference-Header-Content-Length; 0: header not sent */
    const char *coding;     /* Content-Encoding; NULL: not sent */
    const char *allow;      /* Allow, with 405; NULL: not sent */
    unsigned retry_after_s; /* Retry-After, with 503; 0: not sent */
    bool close;             /* Connection: close */
    const char *keep_alive; /* Keep-Alive, if the connection stays open; NULL: not sent */
};
