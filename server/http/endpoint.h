/* One address to listen on, for one loop: its socket, and libmicrohttpd's daemon on it. There is
 * one daemon for each socket: the library knows no other way. */
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
    void *context;           /* of on_ready */
    struct qd_handle *watch; /* NULL: it pauses */
    struct qd_handle *pause_timer;
    size_t connection_count;
    bool is_https;
    bool short_of_files; /* that has been told, and nobody was accepted since */
};

/* What all of them share. */
struct qd_endpoint_settings {
    const struct qd_config *config;
    struct qd_tls *tls; /* for TCP; NULL: none */
    struct qd_loop *loop;
    unsigned silence_s; /* after which the library closes a connection; 0: never */
    MHD_AccessHandlerCallback on_access;
    MHD_NotifyConnectionCallback on_connection;
    MHD_RequestCompletedCallback on_completed;
    void *(*on_request_line)(void *context, const char *line, struct MHD_Connection *connection);
    qd_callback *on_ready; /* qd_endpoint_run has something to do */
    void *context;         /* of all of them */
};

/* `first`: another loop's, of the same address; NULL: it is the first. False: `error` says why,
 * and there is nothing to close. */
bool qd_endpoint_open(struct qd_endpoint *endpoint, const char *address,
                      const struct qd_endpoint *first, const struct qd_endpoint_settings *settings,
                      struct qd_error *error);
/* No connection is suspended. */
void qd_endpoint_close(struct qd_endpoint *endpoint);

/* Runs the library while it has something to do. Its time until a timeout, in ms; UINT64_MAX: none.
 */
uint64_t qd_endpoint_run(struct qd_endpoint *endpoint);

/* Takes those who have connected already, and then nobody any more. */
void qd_endpoint_drain(struct qd_endpoint *endpoint);

#endif
