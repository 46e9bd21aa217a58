/* Hooks into libmicrohttpd's reads and writes, to check bytes before it sees them, to receive large
 * bodies without a copy, and to send short answers without its overhead.
 *
 * Every byte that the library reads passes through framing.c first, so its rules hold for all bytes
 * that the library sees.
 *
 * The library does not see the bytes of a large body, except the first piece. They are read
 * straight into the request's memory (qd_request_body_room), so they are not copied. The library is
 * only told how many bytes it has read. It then passes on as many bytes of its own buffer
 * (qd_io_hooks_take_body), whose contents mean nothing. Chunked bodies, and bodies over TLS, are
 * read by the library.
 *
 * The library reads with recv, and over TLS with gnutls_record_recv. Both functions belong to other
 * libraries. Calls of such functions go to the first definition that the loader finds, which is the
 * program's (error_hook.h says more). io_hooks.c defines recv, and handshake.c defines
 * gnutls_record_recv.
 *
 * In the other direction, we send a short answer in place of the library's
 * (connection->io.outgoing). The library is given an answer without a body. When the library calls
 * send for the head of that answer, our send, which io_hooks.c defines, sends the short answer
 * instead. As long as some of the short answer is left, send reports a full socket. After that, it
 * reports that the library's head has been sent.
 *
 * An interim answer of ours (direct_response.h) may not fit into a full socket. The rest is sent
 * before all later bytes, whichever function sends these. io_hooks.c therefore also defines
 * sendmsg, and handshake.c gnutls_record_send.
 *
 * All functions run on the connection's loop's thread. */
#ifndef SERVER_HTTP_WIRE_IO_HOOKS_H
#define SERVER_HTTP_WIRE_IO_HOOKS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "server/http/wire/connection.h"

/* The bytes of an interim answer, ours and the library's. */
#define QD_INTERIM "HTTP/1.1 100 Continue\r\n\r\n"
#define QD_INTERIM_BYTES (sizeof(QD_INTERIM) - 1)

/* Hooks a connection without TLS. A connection with TLS is hooked by qd_tls_begin. Returns false if
 * malloc failed. */
bool qd_io_hooks_add(struct qd_connection *connection);
void qd_io_hooks_remove(const struct qd_connection *connection);
bool qd_io_hooks_has(const struct qd_connection *connection);

/* Frees this thread's table. Call it after the last connection was removed. */
void qd_io_hooks_deinit(void);

enum {
    /* These are lower than any error of recv or GnuTLS. */
    QD_IO_HOOKS_LATER = -100001, /* there is nothing to read now */
    QD_IO_HOOKS_CLOSE = -100002, /* the connection is over */
};

/* Takes up to `count` bytes of the request's body, which the library offers. Returns how many were
 * taken, like qd_request_take_body. */
size_t qd_io_hooks_take_body(struct qd_connection *connection, const char *bytes, size_t count);

/* Calls `read` in place of the library, and returns what the library is to take for its result, or
 * one of the values above. If framing.c finds a fault in a request, the library gets no more bytes
 * of it. connection->all->on_fault answers that request once all requests before it have been
 * answered. */
ssize_t qd_io_hooks_read(struct qd_connection *connection,
                         ssize_t (*read)(void *source, void *bytes, size_t count), void *source,
                         void *bytes, size_t count);

#endif
