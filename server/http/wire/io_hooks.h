/* Sees what libmicrohttpd reads before the library does, so framing.c's rules hold for every byte
 * that it gets.
 *
 * The bytes of a large body it does not get at all. They are read straight into the request's
 * memory (qd_request_body_room), so nobody copies them, and the library is only told how many it
 * has read. It then offers as many of its own buffer (qd_io_hooks_take_body), which mean nothing.
 *
 * The library reads with recv, and over TLS with gnutls_record_recv. Both are other libraries', and
 * such a call goes to the first definition that the loader finds, which is the program's
 * (error_hook.h says more): io_hooks.c defines recv, and handshake.c gnutls_record_recv.
 *
 * The other way, a short answer goes out in the library's stead (connection->io.outgoing). The
 * library is given an answer without a body, and when it sends the head of that, by send, which
 * io_hooks.c defines, too, the short one is sent. As long as some of it is left, the socket is full
 * to the library; then its own head has gone.
 *
 * An interim answer of ours (direct_response.h) may not fit into a full socket. What is left of it
 * goes before all that is sent later, by whomever: io_hooks.c defines sendmsg, too, and handshake.c
 * gnutls_record_send. */
#ifndef SERVER_HTTP_WIRE_IO_HOOKS_H
#define SERVER_HTTP_WIRE_IO_HOOKS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "server/http/wire/connection.h"

/* What an interim answer is made of, ours and the library's. */
#define QD_INTERIM "HTTP/1.1 100 Continue\r\n\r\n"
#define QD_INTERIM_BYTES (sizeof(QD_INTERIM) - 1)

/* From now on what the library reads from this connection's socket is seen. One over TLS is not
 * added: qd_tls_begin does that for it. On its loop's thread, as all of this. False: malloc failed.
 */
bool qd_io_hooks_add(struct qd_connection *connection);
void qd_io_hooks_remove(const struct qd_connection *connection);
bool qd_io_hooks_has(const struct qd_connection *connection);

/* Frees what this thread has, when its last connection is removed. */
void qd_io_hooks_deinit(void);

enum {
    /* Lower than any error of recv or GnuTLS. */
    QD_IO_HOOKS_LATER = -100001, /* there is nothing to read now */
    QD_IO_HOOKS_CLOSE = -100002, /* the connection is over */
};

/* The library offers so many bytes of the request's body. Returns how many were taken, as
 * qd_request_take_body does. */
size_t qd_io_hooks_take_body(struct qd_connection *connection, const char *bytes, size_t count);

/* Reads with `read` in the library's stead. Returns what that would, as far as the library shall
 * know, or one of the above. Of a request in which framing.c finds a fault the library gets no more
 * bytes: connection->all->on_fault answers it, once all requests before it have been answered. */
ssize_t qd_io_hooks_read(struct qd_connection *connection,
                         ssize_t (*read)(void *source, void *bytes, size_t count), void *source,
                         void *bytes, size_t count);

#endif
