#include "server/work/scheduler/turn.h"

#include <assert.h>

#include "server/base/clock.h"
#include "server/work/scheduler/slice.h"

bool qd_turn_is_stopped(const struct qd_turn_signs *signs, const struct qd_job *job)
{
    return atomic_load(&signs->abandoned) || atomic_load(&job->stopped);
}

static bool is_afforded(struct qd_turn *turn)
{
    const struct qd_phase *phase = &turn->job->phase;
    uint64_t cost_ns;
    if (__builtin_mul_overflow(phase->unit_count, phase->unit_cost_ns, &cost_ns) ||
        cost_ns > turn->budget_ns)
        return false;
    turn->budget_ns -= cost_ns;
    return true;
}

bool qd_turn_suits(struct qd_turn *turn)
{
    const struct qd_job *job = turn->job;
    switch (turn->kind) {
    case QD_TURN_PASSING:
        return job->brief && is_afforded(turn);
    case QD_TURN_IDLE_LOOP:
        return job->brief && job->phase.unit_cost_ns <= QD_PORTION_NS;
    case QD_TURN_WORKER:
    case QD_TURN_HELPER:
        break;
    }
    return true;
}

bool qd_turn_gives_way(const struct qd_turn_signs *signs, const struct qd_turn *turn)
{
    const bool others_wait = atomic_load(&signs->queue.count) > 0;
    switch (turn->kind) {
    case QD_TURN_HELPER:
        return others_wait;
    case QD_TURN_WORKER:
        return others_wait && qd_clock_ns() >= turn->until_ns;
    case QD_TURN_PASSING:
        break;
    case QD_TURN_IDLE_LOOP:
        if (qd_loop_is_ready(turn->loop))
            return true;
        break;
    }
    return qd_clock_ns() >= turn->until_ns;
}

void qd_turn_set_running(struct qd_job *job, bool running)
{
    if (job->running != running)
        job->code->on_running(job, running);
    job->running = running;
}

/* ---- Seats -------------------------------------------------------------------------------- */

void qd_turn_open_phase(struct qd_job *job)
{
    struct qd_phase *phase = &job->phase;
    assert(phase->seat_count > 0);
    for (size_t i = 0; i + 1 < phase->seat_count; i++)
        phase->seats[i].next = &phase->seats[i + 1];
    phase->seats[phase->seat_count - 1].next = NULL;
    job->free_seats = phase->seats;
    atomic_store(&job->next_unit, 0);
}

void qd_turn_sit_down(struct qd_turn *turn)
{
    struct qd_job *job = turn->job;
    turn->seat = job->free_seats;
    job->free_seats = turn->seat->next;
    job->worker_count++;
    qd_turn_set_running(job, true);
}

/* Whether everybody else has waited for a helper. */
static void note_leaving(struct qd_lateness *lateness, const struct qd_turn *turn)
{
    struct qd_job *job = turn->job;
    const uint64_t now_ns = qd_clock_ns();
    const bool last = job->worker_count == 0;
    if (last && turn->kind == QD_TURN_HELPER && job->idle_since_ns != 0)
        qd_lateness_note(lateness, now_ns - job->idle_since_ns, job->phase.unit_cost_ns, now_ns);
    job->idle_since_ns = !last && qd_turn_units_left(job) == 0 ? now_ns : 0;
}

void qd_turn_stand_up(struct qd_turn_signs *signs, struct qd_turn *turn)
{
    struct qd_job *job = turn->job;
    turn->seat->next = job->free_seats;
    job->free_seats = turn->seat;
    job->worker_count--;
    if (job->phase.seat_count > 1)
        note_leaving(&signs->lateness, turn);
}

bool qd_turn_wants_help(const struct qd_turn_signs *signs, struct qd_job *job, size_t worker_count)
{
    const size_t left = qd_turn_units_left(job);
    const uint64_t cost_ns = job->phase.unit_cost_ns;
    return qd_scheduler_shares(left, cost_ns, worker_count) > 1 &&
           qd_lateness_allows(&signs->lateness, left, cost_ns, qd_clock_ns());
}

/* ---- Units -------------------------------------------------------------------------------- */

size_t qd_turn_units_left(struct qd_job *job)
{
    size_t next = atomic_load(&job->next_unit);
    return next < job->phase.unit_count ? job->phase.unit_count - next : 0;
}

/* How many to take at once: fewer towards the end, so that all end together. */
static size_t portion_units(struct qd_job *job)
{
    uint64_t in_time = QD_PORTION_NS / (job->phase.unit_cost_ns + 1);
    size_t share = qd_turn_units_left(job) / (2 * job->phase.seat_count);
    size_t units = in_time < share ? (size_t)in_time : share;
    return units > 0 ? units : 1;
}

void qd_turn_expire(struct qd_job *job)
{
    const size_t count = job->phase.unit_count;
    if (atomic_exchange(&job->next_unit, count) < count)
        atomic_store(&job->expired, true);
}

void qd_turn_run(const struct qd_turn_signs *signs, const struct qd_turn *turn)
{
    struct qd_job *job = turn->job;
    const size_t count = job->phase.unit_count;
    const bool has_just_begun = turn->kind == QD_TURN_PASSING; /* and is brief */
    while (!qd_turn_is_stopped(signs, job)) {
        if (!has_just_begun && qd_clock_ns() >= job->deadline_ns) {
            qd_turn_expire(job);
            break;
        }
        size_t units = portion_units(job);
        size_t begin = atomic_fetch_add(&job->next_unit, units);
        if (begin >= count)
            break;
        job->phase.run(job, turn->seat->workspace, begin,
                       units < count - begin ? begin + units : count);
        if (turn->kind == QD_TURN_WORKER || turn->kind == QD_TURN_HELPER)
            qd_slice_offer();
        if (qd_turn_units_left(job) > 0 && qd_turn_gives_way(signs, turn))
            break;
    }
}
