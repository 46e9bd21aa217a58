/* An endpoint is an address that a loop listens on: its socket, and libmicrohttpd's daemon for it.
 * Each socket has a daemon of its own, because a daemon listens on one socket only. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/http/exchange.h"
#include "server/http/wire/socket.h"

struct qd_endpoint {
    struct qd_exchange *exchange; /* that of the loop */
    size_t index;                 /* of the address in config->listen */
    struct qd_socket socket;
    struct MHD_Daemon *mhd;
    struct qd_handle *watch; /* NULL while the endpoint is paused */
    struct qd_handle *pause_timer;
    size_t connection_count;
    bool is_https;
    bool short_of_files; /* the log has said that descriptors ran out, and no connection was
                            accepted since */
};

/* Opens an endpoint at config->listen[index]. Sets exchange->pump_needed whenever qd_endpoint_run
 * has something to do. `first` is another loop's endpoint for the same address, or NULL if this is
 * the first one. On failure, returns false with the reason in `error`, and there is nothing to
 * close. */
bool qd_endpoint_open(struct qd_endpoint *endpoint, struct qd_exchange *exchange, size_t index,
                      const struct qd_endpoint *first, struct qd_error *error);
/* Closes an endpoint. No connection may be suspended. */
void qd_endpoint_close(struct qd_endpoint *endpoint);

/* Runs libmicrohttpd a few times while it has something to do. Returns after how many milliseconds
 * it must run again, or UINT64_MAX if only an event makes that necessary. */
uint64_t qd_endpoint_run(struct qd_endpoint *endpoint);

/* Accepts the clients that have already connected, and then closes the socket. */
void qd_endpoint_drain(struct qd_endpoint *endpoint);
