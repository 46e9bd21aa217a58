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
 * Each struct qd_memory has an admission. Only blocks.c calls these functions, with the memory's
 * lock held: try_begin until it returns true, end when the request's work is done, and forget when
 * the request has freed its memory. All other sources use qd_arena_try_begin and qd_arena_end_work
 * (arena.h). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Zeros at first. */
struct qd_admission {
    size_t bytes_spoken;  /* set aside for requests at work that have not taken it yet */
    size_t begun_count;   /* requests that have begun and whose memory is not back yet */
    size_t work_count;    /* of these, requests whose work is not done yet */
    size_t stalled_count; /* of these, about how many freed no memory for a second */
    uint64_t begun_ns;    /* when the last request began */
    uint64_t ended_ns;    /* when the last request ended */
    uint64_t back_ns;     /* when memory last came back */
    uint64_t interval_ns; /* the average time from one end to the next */
};

/* Begins a request that is expected to take `bytes`, and sets this amount of memory aside.
 * `bytes_left` is how many bytes nobody uses. Returns false if the request has to wait. */
bool qd_admission_try_begin(struct qd_admission *admission, size_t bytes, size_t bytes_left);
/* Records that a request's work is done, which leaves `bytes` that were set aside for it. The
 * request still holds memory, such as its answer. */
void qd_admission_end(struct qd_admission *admission, size_t bytes);
/* Records that a request that has ended has freed all its memory, too. */
void qd_admission_forget(struct qd_admission *admission);

/* Returns how long all requests at work and `body_count` more need, one after another, at the rate
 * at which work ended lately. */
uint64_t qd_admission_time_ns(const struct qd_admission *admission, size_t body_count,
                              uint64_t now_ns);
