/* A turn at a job: a worker's, or the loop's. It sits at the job's phase, and computes units of it,
 * a few at a time, until none is left or it has to leave. Here is who may take which turn, and when
 * it leaves; what becomes of the job then is the scheduler's.
 *
 * A worker that took the job from the queue computes any phase. It leaves when QD_QUANTUM_NS are
 * over and somebody waits in the queue. A helper, which joins a phase that another began, leaves as
 * soon as somebody waits there. Both offer their CPU between two units (slice.h).
 *
 * The loop in passing computes phases of a brief job as long as all of them, by their estimates,
 * take QD_PASSING_NS at most. It leaves when QD_QUANTUM_NS are over: the estimates were far too
 * low. The loop instead of falling asleep computes phases of a brief job whose units take
 * QD_PORTION_NS at most. It leaves when there is something else for it to do, or QD_QUANTUM_NS are
 * over.
 */
#ifndef SERVER_WORK_SCHEDULER_TURN_H
#define SERVER_WORK_SCHEDULER_TURN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "server/work/scheduler/lateness.h"
#include "server/work/scheduler/loop.h"
#include "server/work/scheduler/queue.h"
#include "server/work/scheduler/scheduler.h"

enum qd_turn_kind {
    QD_TURN_WORKER,
    QD_TURN_HELPER,
    QD_TURN_PASSING,
    QD_TURN_IDLE_LOOP,
};

struct qd_turn {
    struct qd_job *job; /* NULL: there is none */
    struct qd_seat *seat;
    enum qd_turn_kind kind;
    uint64_t until_ns;    /* a helper's: not used */
    uint64_t budget_ns;   /* in passing: of estimated work, that is left */
    struct qd_loop *loop; /* whose turn it is; NULL: a worker's */
};

/* What turns look at between two units. */
struct qd_turn_signs {
    struct qd_queue queue;       /* all but its count: under the scheduler's lock */
    atomic_bool abandoned;       /* every job ends without another unit */
    struct qd_lateness lateness; /* of helpers; under the lock, too */
};

/* The job ends without another unit. */
bool qd_turn_is_stopped(const struct qd_turn_signs *signs, const struct qd_job *job);

/* Whether the job's phase, which has not begun, or a part of it, is for such a turn. In passing,
 * the phase then counts. */
bool qd_turn_suits(struct qd_turn *turn);

/* Whether to leave, as there are units left. */
bool qd_turn_gives_way(const struct qd_turn_signs *signs, const struct qd_turn *turn);

/* The job has a new phase: all its seats are free, no unit has run. */
void qd_turn_open_phase(struct qd_job *job);

/* Takes a seat, of which one is free, and gives it back. Under the scheduler's lock, where others
 * may know of the job. */
void qd_turn_sit_down(struct qd_turn *turn);
void qd_turn_stand_up(struct qd_turn_signs *signs, struct qd_turn *turn);

/* Until no unit is left, or it gives way, or the job is stopped or past its deadline. A job in
 * passing has just begun, so its deadline is not looked at. */
void qd_turn_run(const struct qd_turn_signs *signs, const struct qd_turn *turn);

/* Tells the job; from one phase to the next it stays so. */
void qd_turn_set_running(struct qd_job *job, bool running);

/* Under the lock: whether the rest of its phase is worth waking somebody, of so many workers. */
bool qd_turn_wants_help(const struct qd_turn_signs *signs, struct qd_job *job, size_t worker_count);

/* Of the phase: units that nobody has taken. */
size_t qd_turn_units_left(struct qd_job *job);

/* No unit of it starts any more; its `expire` follows. */
void qd_turn_expire(struct qd_job *job);

#endif
