/* Who may begin to work, where memory is short. If all large requests that come at once began, each
 * would get a part of the memory that it needs, and all but one would be refused when most of their
 * work is done. So a request begins only if what it is expected to take fits beside what others
 * hold, and what those that have begun are still expected to take. All others wait, and hold
 * nothing but their bodies.
 *
 * Something always goes on: where nobody is at work, the first that asks begins, however much it is
 * expected to take, and the bodies of those that wait give way to it (QD_RESERVATION_WAITING in
 * arena.h). Only where answers still go out, whose memory comes back as fast as clients read, does
 * it wait until it fits, or until a second has brought none back. Those that did not read in that
 * second are not waited for again.
 *
 * A request calls try_begin until that is true; take, as it gets memory; end, when its work is
 * done; and forget, when its memory is back. qd_arena_try_begin and its kin (arena.h) do so.
 *
 * On any thread. */
#ifndef SERVER_MEMORY_ADMISSION_H
#define SERVER_MEMORY_ADMISSION_H

#include <stdbool.h>
#include <stddef.h>

struct qd_admission;
struct qd_memory;

struct qd_admission *qd_admission_create(struct qd_memory *memory); /* NULL: malloc failed */
void qd_admission_destroy(struct qd_admission *admission);

/* What to call, on any thread, whenever somebody who had to wait may be able to begin; NULL: nobody
 * waits any more. To be set while no other thread uses it. */
void qd_admission_on_room(struct qd_admission *admission, void (*on_room)(void *context),
                          void *context);

/* True: it has begun, and so many bytes are set aside for it. */
bool qd_admission_try_begin(struct qd_admission *admission, size_t bytes);
/* So many of those that were set aside have been taken, or are not wanted any more. */
void qd_admission_take(struct qd_admission *admission, size_t bytes);
/* Its work is done. What it holds, such as its answer, is not back yet. */
void qd_admission_end(struct qd_admission *admission);
/* Now that is back, too. */
void qd_admission_forget(struct qd_admission *admission);
/* Some memory is back, whoever had it: a body whose answer goes out, or whose client has left. */
void qd_admission_room(const struct qd_admission *admission);

/* In how many seconds to try again where there was no memory, at least 1: as long as all that is
 * there takes, one after another, by how fast work came to its end lately; and no less than the
 * oldest body has been there, since it may come for as long again. */
unsigned qd_admission_retry_after_s(struct qd_admission *admission);

#endif
