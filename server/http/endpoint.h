/* An endpoint is an address that a loop listens on: its socket, and libmicrohttpd's daemon for it.
 * Each socket has a daemon of its own, because a daemon listens on one socket only. */
#ifndef SERVER_HTTP_ENDPOINT_H
#define SERVER_HTTP_ENDPOINT_H

#include <microhttpd.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/config/config.h"
#include "server/http/wire/socket.h"
#include "server/http/wire/tls.h"
#include "server/work/scheduler/loop.h"

struct qd_endpoint {
    struct qd_socket socket;
    struct MHD_Daemon *mhd;
    struct qd_loop *loop;
    qd_callback *on_ready;
    void *context;           /* passed to on_ready */
    struct qd_handle *watch; /* NULL while the endpoint is paused */
    struct qd_handle *pause_timer;
    size_t connection_count;
    bool is_https;
    bool short_of_files; /* the log has said that descriptors ran out, and no connection was
                            accepted since */
};

/* The settings that all endpoints of a loop share. */
struct qd_endpoint_settings {
    const struct qd_config *config;
    struct qd_tls *tls; /* for TCP addresses; NULL without TLS */
    struct qd_loop *loop;
    unsigned silence_s; /* libmicrohttpd closes a connection that was silent this long; 0: never */
    MHD_AccessHandlerCallback on_access;
    MHD_NotifyConnectionCallback on_connection;
    MHD_RequestCompletedCallback on_completed;
    void *(*on_request_line)(void *context, const char *line, struct MHD_Connection *connection);
    qd_callback *on_ready; /* called when qd_endpoint_run has something to do */
    void *context;         /* passed to all of these callbacks */
};

/* Opens an endpoint. `first` is another loop's endpoint for the same address, or NULL if this is
 * the first one. On failure, returns false with the reason in `error`, and there is nothing to
 * close. */
bool qd_endpoint_open(struct qd_endpoint *endpoint, const char *address,
                      const struct qd_endpoint *first, const struct qd_endpoint_settings *settings,
                      struct qd_error *error);
/* Closes an endpoint. No connection may be suspended. */
void qd_endpoint_close(struct qd_endpoint *endpoint);

/* Runs libmicrohttpd a few times while it has something to do. Returns after how many milliseconds
 * it must run again, or UINT64_MAX if only an event makes that necessary. */
uint64_t qd_endpoint_run(struct qd_endpoint *endpoint);

/* Accepts the clients that have already connected, and then closes the socket. */
void qd_endpoint_drain(struct qd_endpoint *endpoint);

#endif
