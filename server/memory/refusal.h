/* Refusals that several steps share, so that a client reads the same words everywhere. */
#ifndef SERVER_MEMORY_REFUSAL_H
#define SERVER_MEMORY_REFUSAL_H

#include "server/base/status.h"
#include "server/memory/arena.h"

/* The arena's last allocation, for `what` ("the output"), failed: QD_TOO_LARGE when it could never
 * fit, QD_UNAVAILABLE when it may fit later. */
enum qd_status qd_refuse_memory(const struct qd_arena *arena, const char *what,
                                struct qd_error *error);

#endif
