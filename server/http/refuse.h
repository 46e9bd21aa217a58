/* Makes all refusals for exchange.c, also of requests whose client is too slow, has left, or sent
 * bytes that cannot be read. All functions must be called on the connection's loop. */
#ifndef SERVER_HTTP_REFUSE_H
#define SERVER_HTTP_REFUSE_H

#include "server/http/exchange.h"

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

#endif
