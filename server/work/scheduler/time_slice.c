#include "server/work/scheduler/time_slice.h"

#include <assert.h>

#include "server/base/clock.h"
#include "server/work/scheduler/cpu_yield.h"

bool qd_time_slice_is_stopped(const struct qd_time_slice_signs *signs, const struct qd_job *job)
{
    return atomic_load(&signs->abandoned) || atomic_load(&job->stopped);
}

static bool is_afforded(struct qd_time_slice *slice)
{
    const struct qd_phase *phase = &slice->job->phase;
    uint64_t cost_ns;
    if (__builtin_mul_overflow(phase->unit_count, phase->unit_cost_ns, &cost_ns) ||
        cost_ns > slice->budget_ns)
        return false;
    slice->budget_ns -= cost_ns;
    return true;
}

bool qd_time_slice_suits(struct qd_time_slice *slice)
{
    const struct qd_job *job = slice->job;
    switch (slice->kind) {
    case QD_TIME_SLICE_INLINE:
        return job->may_run_inline && is_afforded(slice);
    case QD_TIME_SLICE_IDLE_LOOP:
        return job->may_run_inline && job->phase.unit_cost_ns <= QD_BATCH_NS;
    case QD_TIME_SLICE_WORKER:
    case QD_TIME_SLICE_HELPER:
        break;
    }
    return true;
}

bool qd_time_slice_gives_way(const struct qd_time_slice_signs *signs,
                             const struct qd_time_slice *slice)
{
    const bool others_wait = atomic_load(&signs->queue.count) > 0;
    switch (slice->kind) {
    case QD_TIME_SLICE_HELPER:
        return others_wait;
    case QD_TIME_SLICE_WORKER:
        return others_wait && qd_clock_ns() >= slice->until_ns;
    case QD_TIME_SLICE_INLINE:
        break;
    case QD_TIME_SLICE_IDLE_LOOP:
        if (qd_loop_is_ready(slice->loop))
            return true;
        break;
    }
    return qd_clock_ns() >= slice->until_ns;
}

void qd_time_slice_set_running(struct qd_job *job, bool running)
{
    if (job->running != running)
        job->code->on_running(job, running);
    job->running = running;
}

/* ---- Slots -------------------------------------------------------------------------------- */

void qd_time_slice_open_phase(struct qd_job *job)
{
    struct qd_phase *phase = &job->phase;
    assert(phase->slot_count > 0);
    for (size_t i = 0; i + 1 < phase->slot_count; i++)
        phase->slots[i].next = &phase->slots[i + 1];
    phase->slots[phase->slot_count - 1].next = NULL;
    job->free_slots = phase->slots;
    atomic_store(&job->next_unit, 0);
}

void qd_time_slice_take_slot(struct qd_time_slice *slice)
{
    struct qd_job *job = slice->job;
    slice->slot = job->free_slots;
    job->free_slots = slice->slot->next;
    job->worker_count++;
    qd_time_slice_set_running(job, true);
}

/* Notes how long the other threads have waited for this helper, if it is the last to leave. */
static void note_leaving(struct qd_straggler_backoff *backoff, const struct qd_time_slice *slice)
{
    struct qd_job *job = slice->job;
    const uint64_t now_ns = qd_clock_ns();
    const bool last = job->worker_count == 0;
    if (last && slice->kind == QD_TIME_SLICE_HELPER && job->idle_since_ns != 0)
        qd_straggler_note(backoff, now_ns - job->idle_since_ns, job->phase.unit_cost_ns, now_ns);
    job->idle_since_ns = !last && qd_time_slice_units_left(job) == 0 ? now_ns : 0;
}

void qd_time_slice_leave_slot(struct qd_time_slice_signs *signs, struct qd_time_slice *slice)
{
    struct qd_job *job = slice->job;
    slice->slot->next = job->free_slots;
    job->free_slots = slice->slot;
    job->worker_count--;
    if (job->phase.slot_count > 1)
        note_leaving(&signs->backoff, slice);
}

bool qd_time_slice_wants_help(const struct qd_time_slice_signs *signs, struct qd_job *job,
                              size_t worker_count)
{
    const size_t left = qd_time_slice_units_left(job);
    const uint64_t cost_ns = job->phase.unit_cost_ns;
    const uint64_t ahead_ns = job->phase.ahead_ns;
    const bool is_worth =
        qd_scheduler_shares(left, cost_ns, worker_count) > 1 ||
        qd_scheduler_shares(worker_count, ahead_ns / worker_count, worker_count) > 1;
    return left > 0 && is_worth &&
           qd_straggler_allows(&signs->backoff, left, cost_ns, qd_clock_ns());
}

/* ---- Units -------------------------------------------------------------------------------- */

size_t qd_time_slice_units_left(struct qd_job *job)
{
    size_t next = atomic_load(&job->next_unit);
    return next < job->phase.unit_count ? job->phase.unit_count - next : 0;
}

/* Returns how many units to take at once. They become fewer towards the end, so that all workers
 * end at the same time. */
static size_t batch_units(struct qd_job *job)
{
    uint64_t in_time = QD_BATCH_NS / (job->phase.unit_cost_ns + 1);
    size_t share = qd_time_slice_units_left(job) / (2 * job->phase.slot_count);
    size_t units = in_time < share ? (size_t)in_time : share;
    return units > 0 ? units : 1;
}

void qd_time_slice_expire(struct qd_job *job)
{
    const size_t count = job->phase.unit_count;
    if (atomic_exchange(&job->next_unit, count) < count)
        atomic_store(&job->expired, true);
}

void qd_time_slice_run(const struct qd_time_slice_signs *signs, const struct qd_time_slice *slice)
{
    struct qd_job *job = slice->job;
    const size_t count = job->phase.unit_count;
    const bool has_just_begun = slice->kind == QD_TIME_SLICE_INLINE; /* and is short */
    while (!qd_time_slice_is_stopped(signs, job)) {
        if (!has_just_begun && qd_clock_ns() >= job->deadline_ns) {
            qd_time_slice_expire(job);
            break;
        }
        size_t units = batch_units(job);
        size_t begin = atomic_fetch_add(&job->next_unit, units);
        if (begin >= count)
            break;
        job->phase.run(job, slice->slot->workspace, begin,
                       units < count - begin ? begin + units : count);
        if (slice->kind == QD_TIME_SLICE_WORKER || slice->kind == QD_TIME_SLICE_HELPER)
            qd_cpu_yield();
        if (qd_time_slice_units_left(job) > 0 && qd_time_slice_gives_way(signs, slice))
            break;
    }
}
