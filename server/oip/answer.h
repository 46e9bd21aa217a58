/* What goes back to the client. */
#ifndef SERVER_OIP_ANSWER_H
#define SERVER_OIP_ANSWER_H

#include <stdbool.h>
#include <stddef.h>

#include "server/memory/text.h"

struct qd_header {
    const char *name;
    const char *value;
};

struct qd_answer {
    unsigned http_status;
    const char *content_type;    /* of errors exactly "application/json", as OIP clients
                                  * compare; NULL: none */
    const struct qd_part *parts; /* the body: borrowed until sent */
    size_t part_count;
    size_t taken_bytes;     /* of the first, where they are fetched one by one */
    size_t bytes;           /* of all parts; of a stream as many as were read */
    bool is_stream;         /* it comes from the request's stream, and has no parts */
    size_t json_bytes;      /* Inference-Header-Content-Length; 0: header not sent */
    const char *coding;     /* Content-Encoding; NULL: not sent */
    const char *allow;      /* Allow, with 405; NULL: not sent */
    unsigned retry_after_s; /* Retry-After, with 503; 0: not sent */
    bool close;             /* Connection: close */
    const char *keep_alive; /* Keep-Alive, where the connection stays open; NULL: not sent */
};

#endif
