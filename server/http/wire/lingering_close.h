/* Lingering close: sockets whose connection is over, with an answer that the client may not have
 * read yet.
 *
 * A client that is refused may still be sending. If the socket were closed with bytes in it that
 * nobody has read, or got some afterwards, the kernel would send a reset, and the client's would
 * throw away the answer. So what comes is read and thrown away, for a while and to a bound, until
 * the client closes its end. */
#ifndef SERVER_HTTP_WIRE_LINGERING_CLOSE_H
#define SERVER_HTTP_WIRE_LINGERING_CLOSE_H

#include <stddef.h>
#include <stdint.h>

#include "server/work/scheduler/loop.h"

struct qd_lingering;

/* NULL: malloc failed. */
struct qd_lingering *qd_lingering_create(struct qd_loop *loop);
void qd_lingering_destroy(struct qd_lingering *lingering); /* closes them all; NULL is fine */

/* Says that nothing more comes, and keeps a duplicate of fd until deadline_ns at the latest. If
 * that cannot be, fd is closed as any other. */
void qd_lingering_add(struct qd_lingering *lingering, int fd, uint64_t deadline_ns);

/* Closes those that are over. */
void qd_lingering_sweep(struct qd_lingering *lingering, uint64_t now_ns);
/* UINT64_MAX: there are none. */
uint64_t qd_lingering_next_ns(const struct qd_lingering *lingering);

size_t qd_lingering_count(const struct qd_lingering *lingering);

#endif
