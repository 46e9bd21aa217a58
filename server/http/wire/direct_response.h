/* Direct responses go straight to the socket, past the HTTP library, which takes none while it
 * reads a body. The connection is of no use afterwards. */
#ifndef SERVER_HTTP_WIRE_DIRECT_RESPONSE_H
#define SERVER_HTTP_WIRE_DIRECT_RESPONSE_H

#include <stdbool.h>

#include "server/http/wire/connection.h"

/* Sends the answer of connection->request. `session`: of TLS, a gnutls_session_t; NULL: none.
 * `reason`: of the status line. What is left of an interim answer goes first, ours or the
 * library's. Returns false if not all fits into the socket's buffer, as of a client that does not
 * read, or the client has gone. */
bool qd_direct_response(struct qd_connection *connection, void *session, const char *reason)
    __attribute__((warn_unused_result));

/* Tells a client that waits for its answer that it is still being made. Of a client over TCP that
 * sends nothing more, nobody can know whether it has closed its socket, or only its sending side,
 * and reads on: that it sends no more is all that it tells. But what comes for a closed socket the
 * client's system answers with a reset. So something has to be sent that no client minds, and
 * HTTP/1.1 has just that: an interim answer may come at any time. 100 (Continue) is the one that
 * every client skips; some take the 102 that was meant for it as final. What does not
 * fit into the socket goes before whatever is sent next: connection->io.interim_left. */
void qd_direct_response_interim(struct qd_connection *connection, void *session);

#endif
