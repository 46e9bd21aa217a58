/* Decides which requests may begin their work when memory is short. If all large requests that
 * arrive at once began, each would get a part of the memory that it needs, and all but one would be
 * refused after most of their work. A request therefore begins only if its expected memory fits
 * beside the memory in use and the memory that the requests at work are still expected to take. All
 * other requests wait, and hold nothing but their bodies.
 *
 * Some request always makes progress. If none is at work, the first one that asks begins, however
 * much memory it is expected to take. The bodies of waiting requests may then be revoked to make
 * room for it (QD_RESERVATION_WAITING in arena.h). There is one exception: while answers are still
 * being sent, their memory is freed as fast as clients read. The request then waits until it fits,
 * or until no memory has been freed for a second. Answers whose clients did not read in that second
 * do not delay requests again.
 *
 * A request calls try_begin until it returns true, take when it gets memory, end when its work is
 * done, and forget when it has freed its memory. qd_arena_try_begin and its relatives (arena.h)
 * make these calls.
 *
 * All functions may be called on any thread. */
#ifndef SERVER_MEMORY_ADMISSION_H
#define SERVER_MEMORY_ADMISSION_H

#include <stdbool.h>
#include <stddef.h>

struct qd_admission;
struct qd_memory;

struct qd_admission *
qd_admission_create(struct qd_memory *memory); /* returns NULL if malloc failed */
void qd_admission_destroy(struct qd_admission *admission);

/* Sets a function that is called, on any thread, when a waiting request may be able to begin. With
 * NULL, nothing is called. Call it while no other thread uses the admission. */
void qd_admission_on_room(struct qd_admission *admission, void (*on_room)(void *context),
                          void *context);

/* Begins a request that is expected to take `bytes`, and sets this amount of memory aside. Returns
 * false if the request has to wait. */
bool qd_admission_try_begin(struct qd_admission *admission, size_t bytes);
/* Records that `bytes` of the memory set aside have been taken, or are no longer needed. */
void qd_admission_take(struct qd_admission *admission, size_t bytes);
/* Records that a request's work is done. The request still holds memory, such as its answer. */
void qd_admission_end(struct qd_admission *admission);
/* Records that a request that has ended has freed all its memory, too. */
void qd_admission_forget(struct qd_admission *admission);
/* Reports that some memory was freed, for example the body of a request whose answer is being sent
 * or whose client has disconnected. */
void qd_admission_room(const struct qd_admission *admission);

/* Returns in how many seconds a client should try again after a refusal for lack of memory, at
 * least 1. This is the time that all present requests need one after another, at the rate at which
 * work ended lately. It is at least the age of the oldest body, because that body may need as much
 * time again. */
unsigned qd_admission_retry_after_s(struct qd_admission *admission);

#endif
