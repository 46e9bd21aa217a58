/* A time slice: what one thread, a worker or the loop, computes of a job without a break. It takes
 * a slot of the job's phase and computes units in batches, until none is left or it has to leave.
 * Here is which slice suits which job, and when it ends. The scheduler decides what becomes of the
 * job then.
 *
 * A worker that took the job from the queue computes any phase. It leaves when QD_QUANTUM_NS are
 * over and another job waits in the queue. A helper, which joins a phase that another began, leaves
 * as soon as a job waits there. Both yield their CPU between two batches (cpu_yield.h).
 *
 * Inline the loop computes phases of a job that may run inline, as long as all of them, by their
 * estimates, take QD_INLINE_NS at most. It leaves when QD_QUANTUM_NS are over: the estimates were
 * far too low. Instead of falling asleep the loop computes phases of such a job whose units take
 * QD_BATCH_NS at most. It leaves when there is something else for it to do, or QD_QUANTUM_NS are
 * over.
 */
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
    struct qd_job *job; /* NULL: there is none */
    struct qd_worker_slot *slot;
    enum qd_time_slice_kind kind;
    uint64_t until_ns;    /* a helper's: not used */
    uint64_t budget_ns;   /* inline: of estimated work, that is left */
    struct qd_loop *loop; /* that computes; NULL: a worker does */
};

/* What is looked at between two batches. */
struct qd_time_slice_signs {
    struct qd_queue queue;               /* all but its count: under the scheduler's lock */
    atomic_bool abandoned;               /* every job ends without another unit */
    struct qd_straggler_backoff backoff; /* of helpers; under the lock, too */
};

/* The job ends without another unit. */
bool qd_time_slice_is_stopped(const struct qd_time_slice_signs *signs, const struct qd_job *job);

/* Whether the job's phase, which has not begun, or a part of it, is for such a slice. Inline, the
 * phase's cost is then taken from the budget. */
bool qd_time_slice_suits(struct qd_time_slice *slice);

/* Whether to leave, as there are units left. */
bool qd_time_slice_gives_way(const struct qd_time_slice_signs *signs,
                             const struct qd_time_slice *slice);

/* The job has a new phase: all its slots are free, no unit has run. */
void qd_time_slice_open_phase(struct qd_job *job);

/* Takes a slot, of which one is free, and gives it back. Under the scheduler's lock, where others
 * may know of the job. */
void qd_time_slice_take_slot(struct qd_time_slice *slice);
void qd_time_slice_leave_slot(struct qd_time_slice_signs *signs, struct qd_time_slice *slice);

/* Until no unit is left, or it gives way, or the job is stopped or past its deadline. An
 * inline job has just begun, so its deadline is not looked at. */
void qd_time_slice_run(const struct qd_time_slice_signs *signs, const struct qd_time_slice *slice);

/* Tells the job; from one phase to the next it stays so. */
void qd_time_slice_set_running(struct qd_job *job, bool running);

/* Under the lock: whether the rest of its phase is worth waking somebody, of so many workers. */
bool qd_time_slice_wants_help(const struct qd_time_slice_signs *signs, struct qd_job *job,
                              size_t worker_count);

/* Of the phase: units that nobody has taken. */
size_t qd_time_slice_units_left(struct qd_job *job);

/* No unit of it starts any more; its `expire` follows. */
void qd_time_slice_expire(struct qd_job *job);

#endif
