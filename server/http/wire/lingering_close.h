/* Closes sockets in a way that lets the client read its last answer, when the connection is over
 * for us (a lingering close).
 *
 * A client that is refused may still be sending. If a socket is closed with unread bytes in it, or
 * if bytes arrive afterwards, the kernel sends a reset, and the client's kernel throws away the
 * answer. We therefore read and discard what the client sends until it closes its end, for a
 * limited time and up to a limited number of bytes.
 *
 * All functions run on the loop's thread. */
#ifndef SERVER_HTTP_WIRE_LINGERING_CLOSE_H
#define SERVER_HTTP_WIRE_LINGERING_CLOSE_H

#include <stddef.h>
#include <stdint.h>

#include "server/work/scheduler/loop.h"

struct qd_lingering;

/* Returns NULL if malloc failed. */
struct qd_lingering *qd_lingering_create(struct qd_loop *loop);
void qd_lingering_destroy(struct qd_lingering *lingering); /* closes all sockets; NULL is fine */

/* Shuts the sending side of `fd`, and keeps a duplicate of it until deadline_ns at the latest. The
 * caller closes `fd`. If there can be no duplicate, the socket does not linger. */
void qd_lingering_add(struct qd_lingering *lingering, int fd, uint64_t deadline_ns);

/* Closes all sockets whose deadline is not after now_ns. */
void qd_lingering_sweep(struct qd_lingering *lingering, uint64_t now_ns);
/* Returns the earliest deadline, or UINT64_MAX if no socket lingers. */
uint64_t qd_lingering_next_ns(const struct qd_lingering *lingering);

size_t qd_lingering_count(const struct qd_lingering *lingering);

#endif
