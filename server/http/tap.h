/* What libmicrohttpd reads, seen before it does: framing.c's rules hold for every byte that it
 * gets.
 *
 * The library reads with recv, and over TLS with gnutls_record_recv. Its calls of other libraries'
 * functions go, as intercept.h says of its own, to the first definition that there is, and that is
 * the program's: tap.c has one of recv, handshake.c one of gnutls_record_recv. */
#ifndef SERVER_HTTP_TAP_H
#define SERVER_HTTP_TAP_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "server/http/connection.h"

/* From here on what the library reads from its socket is looked at. One over TLS is not added: see
 * qd_tls_begin. On its loop's thread, as all of this. False: malloc failed. */
bool qd_tap_add(struct qd_connection *connection);
void qd_tap_remove(const struct qd_connection *connection);

/* After the last of this thread's. */
void qd_tap_deinit(void);

enum {
    QD_TAP_LATER = -100001, /* nothing now: no error is as low as these */
    QD_TAP_CLOSE = -100002,
};

/* Reads with `read`, as if the library did. All that the connection has been refused for by now, or
 * is in this very call (connection->all->on_fault), is kept from it. */
ssize_t qd_tap_read(struct qd_connection *connection,
                    ssize_t (*read)(void *source, void *bytes, size_t count), void *source,
                    void *bytes, size_t count);

#endif
