/* Makes requests of what libmicrohttpd reads, and gives it their answers. One exchange serves all
 * connections of a loop. It consists of libmicrohttpd's callbacks, and of the calls that give it
 * answers. All functions must be called on the connection's loop. */
#pragma once

#include <microhttpd.h>
#include <stdbool.h>
#include <stddef.h>

#include "server/http/listener.h"
#include "server/http/wire/connection.h"
#include "server/http/wire/tls.h"

struct qd_exchange {
    struct qd_connections connections;
    struct qd_loop *loop;
    struct qd_listener_settings settings;
    struct MHD_Response
        *stand_in;          /* an empty response, for answers that mhd/socket_hooks.c sends */
    const char *keep_alive; /* the value of Keep-Alive; NULL: not sent */
    char keep_alive_text[40];
    bool pump_needed; /* libmicrohttpd has something to do that no event announces */
};

/* Return a connection's exchange and its TLS session (gnutls_session_t; NULL without TLS). */
struct qd_exchange *qd_exchange_of(const struct qd_connection *connection);
void *qd_exchange_session_of(const struct qd_connection *connection);

/* Returns false if there is no memory or no descriptor. qd_exchange_deinit may be called in any
 * case. */
bool qd_exchange_init(struct qd_exchange *exchange, struct qd_loop *loop,
                      const struct qd_listener_settings *settings);
void qd_exchange_deinit(struct qd_exchange *exchange);

/* Opens the context of a new connection, which the listener with that index in config->listen has
 * accepted. Returns NULL if malloc failed; then the connection is closed at its first request. */
struct qd_connection *qd_exchange_open(struct qd_exchange *exchange, struct MHD_Connection *mhd,
                                       size_t listener, bool is_https);
/* Closes the context of a connection. libmicrohttpd closes its descriptor afterwards. NULL is fine.
 */
void qd_exchange_close(struct qd_exchange *exchange, struct qd_connection *connection);

/* Makes connection->request if there is none. A refusal before the head is complete needs a
 * request, too. Returns false if malloc failed. */
bool qd_exchange_ensure_request(struct qd_connection *connection);

/* Callbacks for MHD_start_daemon; their context is the exchange. */
void *qd_exchange_on_request_line(void *context, const char *uri, struct MHD_Connection *mhd);
enum MHD_Result qd_exchange_on_access(void *context, struct MHD_Connection *mhd, const char *target,
                                      const char *method, const char *version, const char *bytes,
                                      size_t *count, void **request_slot);
void qd_exchange_on_completed(void *context, struct MHD_Connection *mhd, void **request_slot,
                              enum MHD_RequestTerminationCode code);

/* ---- Refusals: refuse.c ------------------------------------------------------------------- */

/* Sets the callbacks of `connections` for clients that are too slow, have left, or sent bytes that
 * cannot be read. */
void qd_refuse_watch(struct qd_connections *connections);

/* Returns true if the connection is beyond --max-connections or --max-connections-per-address. */
bool qd_refuse_is_over_quota(const struct qd_connection *connection);

/* Makes the answer from the request's error. If the error is QD_UNAVAILABLE, the answer gets the
 * handler's Retry-After. */
void qd_refuse_make(struct qd_connection *connection);

/* Sends the refusal, after which the connection ends, straight to the socket (direct_response.h),
 * and frees what the request held. Returns MHD_NO, with which libmicrohttpd closes the connection.
 */
enum MHD_Result qd_refuse_past_library(struct qd_connection *connection);

/* Refuses the bytes that the client sent after the request that has just been answered. */
void qd_refuse_what_follows(struct qd_connection *connection);

/* ---- Responses: response.c ---------------------------------------------------------------- */

/* Creates the response of a request. may_chunk: the answer may be sent in chunks. It may not for a
 * client of HTTP/1.0, which does not know chunks, or for a HEAD, for which libmicrohttpd 0.9.75
 * would send a last chunk. If it may not and its length is unknown, it closes the connection. The
 * response borrows the answer's bytes, in the request's arena, until libmicrohttpd has completed
 * the request. Returns NULL if malloc failed, even if only for one header, because an answer that
 * lacks a header would be misread. */
struct MHD_Response *qd_response_create(struct qd_request *request, bool may_chunk);

/* Prints a short answer, head and body, into the request's arena, for a connection that stays open.
 * It is then sent past libmicrohttpd (mhd/hooks.h), which needs seven allocations for the same
 * bytes, and as much time as reading a small request takes. Returns false if the answer is not
 * short, is streamed, or closes the connection, or if there is no memory. */
bool qd_response_print(struct qd_request *request, struct qd_part *whole);
