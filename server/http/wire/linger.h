/* Sockets whose connection is over, with an answer that the client may not have read yet.
 *
 * A client that is refused may still be sending. If the socket were closed with bytes in it that
 * nobody has read, or got some afterwards, the kernel would send a reset, and the client's would
 * throw away the answer. So what comes is read and thrown away, for a while and to a bound, until
 * the client closes its end. */
#ifndef SERVER_HTTP_WIRE_LINGER_H
#define SERVER_HTTP_WIRE_LINGER_H

#include <stddef.h>
#include <stdint.h>

#include "server/work/scheduler/loop.h"

struct qd_lingers;

/* NULL: malloc failed. */
struct qd_lingers *qd_lingers_create(struct qd_loop *loop);
void qd_lingers_destroy(struct qd_lingers *lingers); /* closes them all; NULL is fine */

/* Says that nothing more comes, and keeps a duplicate of fd until deadline_ns at the latest. If
 * that cannot be, fd is closed as any other. */
void qd_lingers_add(struct qd_lingers *lingers, int fd, uint64_t deadline_ns);

/* Closes those that are over. */
void qd_lingers_sweep(struct qd_lingers *lingers, uint64_t now_ns);
uint64_t qd_lingers_next_ns(const struct qd_lingers *lingers); /* UINT64_MAX: there are none */

size_t qd_lingers_count(const struct qd_lingers *lingers);

#endif
