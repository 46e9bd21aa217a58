/* The order of jobs, and jobs that are cancelled. */
#include "server/work/scheduler/queue.h"

#include <criterion/criterion.h>
#include <stdlib.h>

#include "server/base/clock.h"
#include "tests/unit/work/toys.h"

enum { LONG_UNITS = 100000 };

/* ---- The queue by itself ------------------------------------------------------------------ */

Test(queue, a_lower_level_comes_first_and_none_starves)
{
    enum { COUNT = 2 * QD_QUEUE_OLDEST_EVERY + 4 };
    static struct qd_job jobs[COUNT];
    struct qd_queue queue = {.count = 0};
    for (unsigned i = 0; i < COUNT; i++) { /* 0 and 1 are the oldest, and of the last level */
        jobs[i] = (struct qd_job){.taken = true, .level = i < 2 ? QD_LEVEL_LAST : QD_LEVEL_FIRST};
        qd_queue_append(&queue, &jobs[i]);
    }
    cr_assert_eq(atomic_load(&queue.count), COUNT);
    unsigned old = 0;
    unsigned first = 2;
    for (unsigned turn = 1; turn <= COUNT; turn++) {
        const bool is_oldest = turn % QD_QUEUE_OLDEST_EVERY == 0;
        cr_assert_eq(qd_queue_take(&queue), &jobs[is_oldest ? old++ : first++], "turn %u", turn);
    }
    cr_assert_eq(old, 2);
    cr_assert_null(qd_queue_take(&queue));
    cr_assert_eq(atomic_load(&queue.count), 0);
}

Test(queue, who_is_new_waits_among_the_new_whatever_its_level)
{
    struct qd_queue queue = {.count = 0};
    struct qd_job taken = {.taken = true, .level = QD_LEVEL_FIRST};
    struct qd_job jobs[] = {{.level = QD_LEVEL_UNREAD}, {.started = true, .level = QD_LEVEL_LAST}};
    qd_queue_append(&queue, &taken);
    cr_assert_eq(atomic_load(&queue.new_count), 0);
    for (size_t i = 0; i < 2; i++)
        qd_queue_append(&queue, &jobs[i]);
    cr_assert_eq(atomic_load(&queue.new_count), 2);
    for (size_t i = 0; i < 2; i++) {
        cr_assert_eq(qd_queue_first(&queue), &jobs[i]);
        cr_assert_eq(qd_queue_take(&queue), &jobs[i]);
    }
    cr_assert_eq(atomic_load(&queue.new_count), 0);
    cr_assert_eq(qd_queue_take(&queue), &taken);
    cr_assert_null(qd_queue_first(&queue));
}

Test(queue, who_steps_back_for_whom)
{
    struct qd_queue queue = {.count = 0};
    struct qd_job job = {.taken = true, .level = QD_LEVEL_DEFAULT};
    for (unsigned level = 0; level < QD_LEVEL_COUNT; level++)
        cr_assert_not(qd_queue_has_before(&queue, level));
    qd_queue_append(&queue, &job);
    cr_assert_not(qd_queue_has_before(&queue, QD_LEVEL_FIRST));
    cr_assert_not(qd_queue_has_before(&queue, QD_LEVEL_DEFAULT));
    cr_assert(qd_queue_has_before(&queue, QD_LEVEL_LAST));
    qd_queue_remove(&queue, &job);
    job.level = QD_LEVEL_UNREAD;
    qd_queue_append(&queue, &job);
    cr_assert_not(qd_queue_has_before(&queue, QD_LEVEL_DEFAULT));
    cr_assert(qd_queue_has_before(&queue, QD_LEVEL_DEFAULT + 1));
}

/* ---- Levels ------------------------------------------------------------------------------- */

static bool has_started(struct toy *toy)
{
    return atomic_load(&toy->desk->starts) > 0;
}

/* Returns a desk whose toy 0 holds the only worker until all other toys wait. */
static struct desk *desk_held(void)
{
    struct desk *desk = desk_create(1, 100);
    desk->toys[0].gated = true;
    cr_assert(desk_submit(desk, 0, 0, 0));
    cr_assert(toy_wait_until(has_started, &desk->toys[0]));
    return desk;
}

static void release(struct desk *desk)
{
    atomic_store(&desk->toys[0].gate, true);
    qd_loop_run(desk->loop);
}

Test(queue, jobs_come_by_their_level)
{
    static const unsigned levels[] = {0, 5, 4, 3, 1};
    struct desk *desk = desk_held();
    for (size_t i = 1; i < 5; i++) {
        desk->toys[i].level = levels[i];
        cr_assert(desk_submit(desk, i, 60, 100000)); /* 6 ms, so they give way */
    }
    release(desk);
    for (size_t i = 1; i < 5; i++) {
        toy_assert_whole(&desk->toys[i]);
        cr_assert_eq(desk->toys[i].started_at, i + 1, "each is looked at in order");
    }
    cr_assert_eq(desk->toys[4].done_at, 2);
    cr_assert_lt(desk->toys[3].done_at, desk->toys[2].done_at);
    cr_assert_lt(desk->toys[2].done_at, desk->toys[1].done_at);
    desk_destroy(desk);
}

Test(queue, the_last_level_gets_its_turns)
{
    struct desk *desk = desk_held();
    desk->toys[1].level = QD_LEVEL_LAST;
    cr_assert(desk_submit(desk, 1, 1, 100000)); /* one time slice is enough */
    for (size_t i = 2; i < 60; i++) {
        desk->toys[i].level = QD_LEVEL_FIRST;
        cr_assert(desk_submit(desk, i, 10, 200000)); /* two time slices each */
    }
    release(desk);
    cr_assert_lt(desk->toys[1].done_at, 50);
    desk_destroy(desk);
}

/* The job gives way after its first quantum or before, and is resumed too late. */
Test(queue, a_job_waits_no_longer_than_it_wants)
{
    struct desk *desk = desk_held();
    desk->toys[1].wait_ns = QD_NS_PER_MS;
    cr_assert(desk_submit(desk, 1, 100, 100000));
    desk->toys[2].start_ns = 10 * QD_NS_PER_MS;
    cr_assert(desk_submit(desk, 2, 0, 0));
    release(desk);
    cr_assert(desk->toys[1].expired);
    cr_assert_eq(desk->toys[1].finished, 0);
    toy_assert_whole(&desk->toys[2]);
    desk_destroy(desk);
}

Test(queue, a_job_that_waited_beyond_its_deadline_does_not_start)
{
    struct desk *desk = desk_held();
    desk->toys[1].submit_deadline_ns = qd_clock_ns() + QD_NS_PER_MS;
    cr_assert(desk_submit(desk, 1, 1, 1000));
    while (qd_clock_ns() < desk->toys[1].submit_deadline_ns) {
    }
    release(desk);
    cr_assert(desk->toys[1].expired);
    cr_assert_eq(desk->toys[1].started_at, 0);
    desk_destroy(desk);
}

/* ---- Cancelled ---------------------------------------------------------------------------- */

static void assert_cancelled(const struct toy *toy)
{
    cr_assert_gt(toy->done_at, 0);
    cr_assert(toy->cancelled);
    cr_assert_not(toy->expired);
    cr_assert_not(toy->is_running);
    cr_assert_eq(toy->finished, 0);
}

Test(queue, who_waits_is_cancelled_at_once)
{
    struct desk *desk = desk_held();
    for (size_t i = 1; i < 4; i++)
        cr_assert(desk_submit(desk, i, 1, 1000));
    qd_scheduler_cancel(desk->scheduler, &desk->toys[2].job);
    qd_scheduler_cancel(desk->scheduler, &desk->toys[2].job); /* cancelling twice is allowed */
    cr_assert_eq(qd_scheduler_queue_count(desk->scheduler), 2);
    cr_assert_eq(desk->toys[2].done_at, 0, "not within the call");
    release(desk);
    assert_cancelled(&desk->toys[2]);
    cr_assert_eq(desk->toys[2].started_at, 0);
    for (size_t i = 1; i < 4; i += 2)
        toy_assert_whole(&desk->toys[i]);
    desk_destroy(desk);
}

/* Cancels toy 0 as soon as its long phase has begun. */
static void cancel_first(void *context)
{
    struct desk *desk = context;
    struct toy *toy = &desk->toys[0];
    for (size_t phase = 0; phase < PHASE_COUNT_MAX; phase++)
        if (toy->units[phase] == LONG_UNITS && atomic_load(&toy->ran[phase][0]) != 0)
            qd_scheduler_cancel(desk->scheduler, &toy->job);
}

/* Runs toy 0, whose phase `phase` would take 10 s, and cancels it in that phase. */
static void cancel_in_phase(size_t phase, unsigned threads)
{
    struct desk *desk = desk_create(threads, 100);
    struct toy *toy = &desk->toys[0];
    toy->phase_count = PHASE_COUNT_MAX;
    for (size_t i = 0; i < PHASE_COUNT_MAX; i++)
        toy->units[i] = i == phase ? LONG_UNITS : 20;
    toy->slot_count = SLOT_COUNT_MAX;
    cr_assert(desk_submit(desk, 0, 0, 100000));
    for (size_t i = 1; i < 6; i++)
        cr_assert(desk_submit(desk, i, 50, 100000));
    desk->timer = qd_loop_timer(desk->loop, cancel_first, desk);
    qd_timer_start(desk->timer, 1, 1);
    qd_loop_run(desk->loop);
    assert_cancelled(toy);
    toy_assert_units(toy, phase);
    cr_assert_eq(atomic_load(&toy->ran[phase][LONG_UNITS - 1]), 0);
    for (size_t i = 1; i < 6; i++)
        toy_assert_whole(&desk->toys[i]);
    qd_handle_destroy(desk->timer);
    desk_destroy(desk);
}

Test(queue, who_runs_is_cancelled_in_each_phase)
{
    for (size_t phase = 0; phase < PHASE_COUNT_MAX; phase++) {
        cancel_in_phase(phase, 1);
        cancel_in_phase(phase, 3);
    }
}

static void cancel_itself(struct toy *toy)
{
    atomic_store(&toy->gate, true);
}

static void cancel_when_open(void *context)
{
    struct desk *desk = context;
    if (atomic_load(&desk->toys[0].gate))
        qd_scheduler_cancel(desk->scheduler, &desk->toys[0].job);
}

/* Whether the job completes or not, it is done exactly once. */
Test(queue, cancelling_races_with_the_end)
{
    struct desk *desk = desk_create(2, 100);
    desk->timer = qd_loop_timer(desk->loop, cancel_when_open, desk);
    qd_timer_start(desk->timer, 1, 1);
    for (unsigned i = 0; i < 20; i++) {
        memset(&desk->toys[0], 0, sizeof(desk->toys[0]));
        desk->toys[0].on_unit = cancel_itself;
        cr_assert(desk_submit(desk, 0, 1 + i, 100000));
        qd_loop_run(desk->loop);
        cr_assert_gt(desk->toys[0].done_at, 0);
        cr_assert_neq(desk->toys[0].cancelled, desk->toys[0].finished == 1);
        free(desk->toys[0].ran[0]);
        desk->toys[0].ran[0] = NULL;
        atomic_store(&desk->toys[0].gate, false);
    }
    qd_handle_destroy(desk->timer);
    desk_destroy(desk);
}

/* A job that was taken but had not begun does not begin any more. */
Test(queue, nothing_starts_after_the_scheduler_is_abandoned)
{
    struct desk *desk = desk_held();
    for (size_t i = 1; i < 20; i++)
        cr_assert(desk_submit(desk, i, 1, 1000));
    qd_scheduler_abandon(desk->scheduler);
    release(desk);
    cr_assert_eq(atomic_load(&desk->starts), 1);
    for (size_t i = 1; i < 20; i++)
        assert_cancelled(&desk->toys[i]);
    desk_destroy(desk);
}

/* ---- When to come back -------------------------------------------------------------------- */

Test(queue, retry_after_grows_with_the_queue)
{
    struct desk *desk = desk_create(1, 100);
    cr_assert_eq(qd_scheduler_retry_after_s(desk->scheduler), 1, "nothing is known yet");
    for (size_t i = 0; i < 20; i++)
        desk->toys[i].start_ns = 50 * QD_NS_PER_MS;
    for (size_t i = 0; i < 12; i++)
        cr_assert(desk_submit(desk, i, 0, 0));
    qd_loop_run(desk->loop);
    cr_assert_eq(qd_scheduler_retry_after_s(desk->scheduler), 1, "nobody waits");
    desk->toys[20].gated = true;
    cr_assert(desk_submit(desk, 20, 0, 0));
    for (size_t i = 21; i < 60; i++)
        cr_assert(desk_submit(desk, i, 0, 0));
    const unsigned seconds = qd_scheduler_retry_after_s(desk->scheduler);
    cr_assert_geq(seconds, 2, "39 wait, 40 ms each");
    atomic_store(&desk->toys[20].gate, true);
    qd_loop_run(desk->loop);
    desk_destroy(desk);
}
