/* Who is connected, and until when the client has to have done its part.
 *
 * The HTTP library only knows how long a peer has been silent: one that sends a byte a second would
 * stay for ever. So deadlines are ours, and total. Whoever is late gets its socket shut down, which
 * the library sees as the peer's end. */
#ifndef SERVER_HTTP_CONNECTION_H
#define SERVER_HTTP_CONNECTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/base/config.h"
#include "server/work/request.h"

struct qd_connections {
    const struct qd_config *config;
    struct qd_connection *first;
    size_t count;
    bool draining; /* nobody new comes: whoever asks for nothing has to go */
    bool cutting;  /* and now everybody else, too */
};

struct qd_connection {
    struct qd_connections *all;
    struct qd_connection *next;
    struct qd_connection *previous;
    struct qd_request *request; /* NULL between requests */
    uint64_t first_byte_ns;     /* when the request's first line was there; 0: between requests */
    uint64_t since_ns;          /* when it was accepted, or its last request was over */
    uint64_t deadline_ns;       /* 0: it is our turn */
    int fd;
    bool kept;      /* has had a request */
    bool suspended; /* the library does not look at it */
    bool lingers;   /* its client may still send when it is closed */
    bool refused;   /* what the library could not read: its request ends with an error */
    void *http;     /* the library's own */
    struct qd_tls_identity *identity; /* that its TLS session holds; NULL: none */
};

/* Accepted: the first head has --receive-timeout. NULL: malloc failed. */
struct qd_connection *qd_connection_open(struct qd_connections *all, int fd, void *http);
void qd_connection_close(struct qd_connection *connection); /* NULL is fine */

void qd_connection_on_request_line(struct qd_connection *connection);
/* The body has --receive-timeout of its own. */
void qd_connection_on_head(struct qd_connection *connection);
/* From here it is our turn. */
void qd_connection_on_body_end(struct qd_connection *connection);
/* The client takes the answer, of so many bytes. */
void qd_connection_on_answer(struct qd_connection *connection, size_t bytes);
/* The answer is sent: the next request has --idle-timeout. */
void qd_connection_on_request_end(struct qd_connection *connection);

/* Shuts down who is late or has left, but never who is suspended. Call it a few times a second. */
void qd_connections_sweep(struct qd_connections *all);

#endif
