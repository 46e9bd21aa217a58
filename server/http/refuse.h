/* Refuses requests whose client is too slow, has left, or sent what cannot be read, and makes the
 * request that such a refusal belongs to. On the connection's loop. */
#ifndef SERVER_HTTP_REFUSE_H
#define SERVER_HTTP_REFUSE_H

#include "server/http/exchange.h"

/* Sets the callbacks of `connections` that say who is late, has left, or cannot be read. */
void qd_refuse_watch(struct qd_connections *connections);

/* Makes connection->request if there is none. A request that is refused before its head is there
 * needs one, too. Returns false if malloc failed. */
bool qd_refuse_have_request(struct qd_connection *connection);

/* Destroys a request, or keeps its memory for the next one. */
void qd_refuse_end_request(struct qd_exchange *exchange, struct qd_request *request);

/* Returns true if the connection is one more than --max-connections or its like allow. */
bool qd_refuse_is_over_quota(const struct qd_connection *connection);

/* Makes the answer from the request's error. A 503 says when trying again makes sense, as far as
 * the queue knows it. */
void qd_refuse_make(struct qd_connection *connection);

/* Sends the refusal straight to the socket, because libmicrohttpd takes no answer now, and frees
 * what the request held. Returns MHD_NO, with which libmicrohttpd closes the connection. */
enum MHD_Result qd_refuse_past_library(struct qd_connection *connection);

/* Refuses what the client sent behind the request that has just been answered. */
void qd_refuse_what_follows(struct qd_connection *connection);

#endif
