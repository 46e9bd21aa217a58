/* Runs time slices for the scheduler. A time slice is what one thread, a worker or the loop,
 * computes of a job without a break. The thread takes a slot of the job's phase and computes units
 * in batches, until none is left or the thread has to leave. The functions here decide whether a
 * slice may compute a job's phase, and when the slice ends. The scheduler decides what happens to
 * the job then.
 *
 * A worker that took the job from the queue computes any phase. It leaves when QD_QUANTUM_NS are
 * over and another job waits in the queue. A helper, which joins a phase that another thread began,
 * leaves as soon as a job waits there. Both yield their CPU between two batches (cpu_yield.h).
 *
 * Inline, the loop computes phases of a job that may run inline, as long as all of them together
 * take QD_INLINE_NS at most, by their estimates. If the estimates were far too low, the loop leaves
 * when QD_QUANTUM_NS are over. Instead of falling asleep, the loop computes phases of such a job
 * whose units take QD_BATCH_NS at most. It leaves when there is something else for it to do, or
 * QD_QUANTUM_NS are over. */
#ifndef SERVER_WORK_SCHEDULER_TIME_SLICE_H
#define SERVER_WORK_SCHEDULER_TIME_SLICE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "server/work/scheduler/loop.h"
#include "server/work/scheduler/queue.h"
#include "server/work/scheduler/scheduler.h"
#include "server/work/scheduler/straggler.h"

enum qd_time_slice_kind {
    QD_TIME_SLICE_WORKER,
    QD_TIME_SLICE_HELPER,
    QD_TIME_SLICE_INLINE,
    QD_TIME_SLICE_IDLE_LOOP,
};

struct qd_time_slice {
    struct qd_job *job; /* NULL if there is none */
    struct qd_worker_slot *slot;
    enum qd_time_slice_kind kind;
    uint64_t until_ns;    /* not used for a helper */
    uint64_t budget_ns;   /* inline: how much estimated work is still allowed */
    struct qd_loop *loop; /* the loop that computes; NULL for a worker */
};

/* What a thread checks between two batches. */
struct qd_time_slice_signs {
    struct qd_queue queue;               /* under the scheduler's lock, except for its count */
    atomic_bool abandoned;               /* every job ends without another unit */
    struct qd_straggler_backoff backoff; /* under the scheduler's lock */
};

/* Returns whether the job has to end without another unit. */
bool qd_time_slice_is_stopped(const struct qd_time_slice_signs *signs, const struct qd_job *job);

/* Returns whether the slice may compute the job's phase, which has not begun, or a part of it. If
 * an inline slice may, subtracts the phase's cost from its budget. */
bool qd_time_slice_suits(struct qd_time_slice *slice);

/* Returns whether the thread has to leave although units are left. */
bool qd_time_slice_gives_way(const struct qd_time_slice_signs *signs,
                             const struct qd_time_slice *slice);

/* Prepares a new phase of the job: all its slots are free, and no unit has run. */
void qd_time_slice_open_phase(struct qd_job *job);

/* Take a slot, of which one must be free, and give it back. Under the scheduler's lock if other
 * threads may know the job. */
void qd_time_slice_take_slot(struct qd_time_slice *slice);
void qd_time_slice_leave_slot(struct qd_time_slice_signs *signs, struct qd_time_slice *slice);

/* Computes units until none is left, the thread has to leave, or the job is stopped or past its
 * deadline. An inline job has just begun, so its deadline is not checked. */
void qd_time_slice_run(const struct qd_time_slice_signs *signs, const struct qd_time_slice *slice);

/* Calls on_running if the value changes. It stays true from one phase to the next. */
void qd_time_slice_set_running(struct qd_job *job, bool running);

/* Returns whether the rest of the phase, or the phases ahead of it, are worth waking a worker, if
 * worker_count workers may compute them. Under the scheduler's lock. */
bool qd_time_slice_wants_help(const struct qd_time_slice_signs *signs, struct qd_job *job,
                              size_t worker_count);

/* Returns how many units of the phase are not taken yet. */
size_t qd_time_slice_units_left(struct qd_job *job);

/* Prevents further units of the job from starting. If any were left, `expire` follows. */
void qd_time_slice_expire(struct qd_job *job);

#endif
