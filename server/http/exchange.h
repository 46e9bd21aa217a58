/* Requests and their answers, on the connections of all that is listened on: what libmicrohttpd
 * calls, and what it is told. */
#ifndef SERVER_HTTP_EXCHANGE_H
#define SERVER_HTTP_EXCHANGE_H

#include <microhttpd.h>
#include <stdbool.h>
#include <stddef.h>

#include "server/http/listener.h"
#include "server/http/wire/connection.h"
#include "server/http/wire/lingering_close.h"
#include "server/http/wire/tls.h"

struct qd_exchange {
    struct qd_connections connections;
    struct qd_loop *loop;
    struct qd_memory *memory;
    const struct qd_config *config;
    struct qd_quota *quota;
    struct qd_tls *tls; /* NULL: none */
    struct qd_handler handler;
    struct qd_lingering *lingering;
    unsigned silence_s;            /* libmicrohttpd's own timeout, behind our deadlines; 0: none */
    struct qd_request *spare;      /* memory for the next request; NULL: there is none */
    struct MHD_Response *stand_in; /* without a body, for answers that io_hooks.c sends */
    const char *keep_alive;        /* what Keep-Alive says; NULL: it is not sent */
    char keep_alive_text[40];
    bool pump_needed; /* the library has something to do that no event tells of */
};

/* The exchange of a connection, and its TLS session (NULL: it has none). */
struct qd_exchange *qd_exchange_of(const struct qd_connection *connection);
void *qd_exchange_session_of(const struct qd_connection *connection);

/* False: no memory or no descriptor; deinit is fine all the same. */
bool qd_exchange_init(struct qd_exchange *exchange, struct qd_loop *loop,
                      const struct qd_listener_settings *settings);
void qd_exchange_deinit(struct qd_exchange *exchange);

/* A connection has come, to the listener of that index in config->listen: its context. NULL: malloc
 * failed, and its first request closes it. */
struct qd_connection *qd_exchange_open(struct qd_exchange *exchange, struct MHD_Connection *mhd,
                                       size_t listener, bool is_https);
/* The library forgets it now, and then closes the socket. NULL is fine. */
void qd_exchange_close(struct qd_exchange *exchange, struct qd_connection *connection);

/* Callbacks for MHD_start_daemon; their context is the exchange. */
void *qd_exchange_on_request_line(void *context, const char *uri, struct MHD_Connection *mhd);
enum MHD_Result qd_exchange_on_access(void *context, struct MHD_Connection *mhd, const char *target,
                                      const char *method, const char *version, const char *bytes,
                                      size_t *count, void **request_slot);
void qd_exchange_on_completed(void *context, struct MHD_Connection *mhd, void **request_slot,
                              enum MHD_RequestTerminationCode code);

/* Sends the answer of a request that is in REPLYING, and whose connection is PROCESSING. */
void qd_exchange_answer(struct qd_request *request);

#endif
