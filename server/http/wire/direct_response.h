/* Direct responses are written straight to the socket, past libmicrohttpd, which accepts no answer
 * while it reads a head or a body. A connection cannot be used after its direct response. An
 * interim response does not end the connection. */
#pragma once

#include <stdbool.h>

#include "server/http/wire/connection.h"

/* The bytes of an interim answer, ours and libmicrohttpd's. */
#define QD_INTERIM "HTTP/1.1 100 Continue\r\n\r\n"
#define QD_INTERIM_BYTES (sizeof(QD_INTERIM) - 1)

/* Sends the answer of connection->request, and then ends the sending side of the connection, so
 * that libmicrohttpd can add nothing. `session` is a gnutls_session_t, or NULL without TLS.
 * `reason` is the phrase of the status line. The rest of an interim answer, ours or the library's,
 * is sent first. Returns false if the socket's buffer does not take the whole answer, because the
 * client does not read or has gone. */
bool qd_direct_response(struct qd_connection *connection, void *session, const char *reason)
    __attribute__((warn_unused_result));

/* Tells a client that its answer is still being made, and so finds out whether the client has gone.
 *
 * After a TCP client has sent FIN, we cannot know whether it has closed its socket, or has shut
 * only its sending side and still reads. But if bytes arrive for a closed socket, the client's
 * system answers with a reset. We therefore have to send something that no client minds. HTTP/1.1
 * has interim answers, which may come at any time. We send 100 (Continue), because every client
 * skips it. Some clients take the 102 that was meant for this purpose as the final answer.
 *
 * Bytes that do not fit into the socket's buffer are sent before all later bytes
 * (connection->io.interim_left). */
void qd_direct_response_interim(struct qd_connection *connection, void *session);
