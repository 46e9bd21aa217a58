#include "server/work/scheduler/scheduler.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "server/base/clock.h"
#include "tests/unit/work/toys.h"

/* ---- When helpers are worth it ------------------------------------------------------------ */

Test(scheduler, shares_are_worth_a_hand_over)
{
    const uint64_t half = QD_HANDOVER_NS / 2;
    cr_assert_eq(qd_scheduler_shares(0, half, 8), 1);
    cr_assert_eq(qd_scheduler_shares(1, 100 * half, 8), 1, "one unit is one worker's");
    cr_assert_eq(qd_scheduler_shares(1000, 1, 8), 1, "a trifle");
    cr_assert_eq(qd_scheduler_shares(3, half, 8), 1);
    cr_assert_eq(qd_scheduler_shares(4, half, 8), 2);
    cr_assert_eq(qd_scheduler_shares(8, half, 8), 4);
    cr_assert_eq(qd_scheduler_shares(1000, half, 8), 8);
    cr_assert_eq(qd_scheduler_shares(3, 100 * half, 8), 3);
    cr_assert_eq(qd_scheduler_shares(1000, half, 1), 1);
    cr_assert_eq(qd_scheduler_shares(SIZE_MAX, UINT64_MAX, 8), 8);
}

Test(scheduler, shares_of_workers_that_are_awake_are_worth_joining)
{
    cr_assert_eq(qd_scheduler_awake_shares(1, QD_HANDOVER_NS, 8), 1);
    cr_assert_eq(qd_scheduler_awake_shares(2, QD_JOIN_NS - 1, 8), 1);
    cr_assert_eq(qd_scheduler_awake_shares(2, QD_JOIN_NS, 8), 2);
    cr_assert_eq(qd_scheduler_awake_shares(100, QD_JOIN_NS, 8), 8);
}

/* ---- Batches ------------------------------------------------------------------------------ */

/* Submits a phase of `units` units to the only worker, while another job waits. Returns in how many
 * calls the worker computes them, or 0 if it had to give way meanwhile, as it does if the system
 * takes its CPU for long. Seven units fit into a batch of units that share work. */
static unsigned try_calls(size_t units, size_t slots, bool units_share)
{
    struct desk *desk = desk_create(1, 100);
    desk_hold_worker(desk);
    struct toy *toy = &desk->toys[1];
    toy->slot_count = slots;
    toy->units_share = units_share;
    toy->claimed_ns = QD_SHARED_BATCH_NS / 8;
    cr_assert(desk_submit(desk, 1, units, 1000));
    cr_assert(desk_submit(desk, 2, 1, 1000));
    desk_let_worker_go(desk);
    qd_loop_run(desk->loop);
    toy_assert_whole(toy);
    const unsigned calls = toy->switches == 1 ? atomic_load(&toy->run_count) : 0;
    desk_destroy(desk);
    return calls;
}

static unsigned calls_alone(size_t units, size_t slots, bool units_share)
{
    unsigned calls = 0;
    for (unsigned i = 0; i < 100 && calls == 0; i++)
        calls = try_calls(units, slots, units_share);
    return calls;
}

Test(scheduler, a_worker_alone_takes_units_that_share_work_at_once)
{
    cr_assert_eq(calls_alone(2, 1, true), 1);
    cr_assert_eq(calls_alone(7, 1, true), 1);
    cr_assert_eq(calls_alone(14, 1, true), 2);
}

Test(scheduler, a_worker_expects_no_helpers_while_jobs_wait)
{
    cr_assert_eq(calls_alone(7, 2, true), 1);
    cr_assert_eq(calls_alone(14, 2, true), 2);
}

Test(scheduler, a_worker_looks_for_jobs_between_units_that_share_nothing)
{
    cr_assert_eq(calls_alone(7, 1, false), 7);
    cr_assert_eq(calls_alone(7, 2, false), 7);
}

/* ---- Helpers ------------------------------------------------------------------------------ */

static bool has_four_threads(struct toy *toy)
{
    return toy_thread_count(toy) == 4;
}

static void wait_for_four_threads(struct toy *toy)
{
    cr_assert(toy_wait_until(has_four_threads, toy), "nobody comes to help");
}

Test(scheduler, idle_workers_help)
{
    struct desk *desk = desk_create(4, 100);
    struct toy *toy = &desk->toys[0];
    toy->slot_count = SLOT_COUNT_MAX;
    toy->on_unit = wait_for_four_threads;
    cr_assert(desk_submit(desk, 0, 50, 100000));
    qd_loop_run(desk->loop);
    toy_assert_whole(toy);
    cr_assert_eq(toy->switches, 1);
    desk_destroy(desk);
}

static atomic_uint helped; /* bits: the phases in which two workers worked at the same time */

static bool is_helped(struct toy *toy)
{
    if (atomic_load(&toy->running) > 1)
        atomic_fetch_or(&helped, 1U << toy->phase);
    return atomic_load(&helped) >> toy->phase & 1;
}

static void wait_for_help(struct toy *toy)
{
    cr_assert(toy_wait_until(is_helped, toy), "nobody helps in phase %zu", toy->phase);
}

/* A helper stays awake for a while, and later sleeps. In both cases it must join the next phase. */
Test(scheduler, idle_workers_help_in_each_phase)
{
    struct desk *desk = desk_create(3, 100);
    for (size_t i = 0; i < 20; i++) {
        struct toy *toy = &desk->toys[i];
        toy->phase_count = PHASE_COUNT_MAX;
        for (size_t phase = 0; phase < PHASE_COUNT_MAX; phase++)
            toy->units[phase] = phase == 1 && i % 2 ? 1 : 50;
        toy->slot_count = 2;
        toy->claimed_ns = QD_NS_PER_MS;
        toy->on_unit = wait_for_help;
    }
    for (size_t i = 0; i < 20; i++) {
        atomic_store(&helped, i % 2 ? 1U << 2 : 0); /* one worker does a phase of one unit */
        cr_assert(desk_submit(desk, i, 0, i % 2 ? 200000 : 1000));
        qd_loop_run(desk->loop);
        toy_assert_whole(&desk->toys[i]);
    }
    desk_destroy(desk);
}

/* A phase is too short to wake a worker for, but the phases after it are not. */
Test(scheduler, a_worker_is_woken_for_what_lies_ahead)
{
    struct desk *desk = desk_create(2, 100);
    struct toy *toy = &desk->toys[0];
    toy->claimed_ns = QD_JOIN_NS;
    toy->ahead_ns = 4 * QD_HANDOVER_NS;
    toy->on_unit = wait_for_help;
    usleep(10000); /* the workers are probably asleep then */
    cr_assert(desk_submit(desk, 0, 4, 1000));
    qd_loop_run(desk->loop);
    toy_assert_whole(toy);
    desk_destroy(desk);
}

Test(scheduler, no_more_help_than_there_are_seats)
{
    struct desk *desk = desk_create(4, 100);
    cr_assert(desk_submit(desk, 0, 300, 100000));
    qd_loop_run(desk->loop);
    toy_assert_whole(&desk->toys[0]);
    cr_assert_leq(toy_thread_count(&desk->toys[0]), 2);
    desk_destroy(desk);
}

static void let_other_go(struct toy *toy)
{
    toy->desk->left--;
    if (toy->desk->dones == 2)
        desk_let_worker_go(toy->desk);
}

/* The busy worker continues when the other jobs are done, in whatever order. */
Test(scheduler, busy_workers_do_not_help)
{
    struct desk *desk = desk_create(2, 100);
    desk_hold_worker(desk);
    for (size_t i = 1; i < 3; i++) {
        desk->toys[i].on_done = let_other_go; /* not on_unit: the busy worker could be done first */
        cr_assert(desk_submit(desk, i, 1, 100000));
    }
    qd_loop_run(desk->loop);
    for (size_t i = 0; i < 3; i++)
        toy_assert_whole(&desk->toys[i]);
    cr_assert_eq(toy_thread_count(&desk->toys[1]), 1);
    cr_assert_eq(desk->toys[0].done_at, 3);
    desk_destroy(desk);
}

static atomic_bool second_waits; /* the second job has been submitted */
static atomic_bool second_is_done;

static bool has_two_starts(struct toy *toy)
{
    return atomic_load(&toy->desk->starts) == 2;
}

static bool has_second_waiting(struct toy *toy)
{
    (void)toy;
    return atomic_load(&second_waits);
}

static bool has_second_done(struct toy *toy)
{
    (void)toy;
    return atomic_load(&second_is_done);
}

/* The first unit of each worker ends when there is a second job. The worker that began the first
 * job then waits until the second one has started, so only the helper can start it. No further unit
 * ends before the second job is done. */
static void wait_for_second(struct toy *toy)
{
    cr_assert(toy_wait_until(has_second_waiting, toy));
    if (atomic_load(&toy->starter) == (unsigned long)pthread_self())
        cr_assert(toy_wait_until(has_two_starts, toy), "the helper does not give way");
    if (has_two_starts(toy))
        cr_assert(toy_wait_until(has_second_done, toy));
}

static void submit_second(void *context)
{
    struct desk *desk = context;
    if (toy_thread_count(&desk->toys[0]) == 2 && desk->toys[1].desk == NULL) {
        cr_assert(desk_submit(desk, 1, 0, 0));
        atomic_store(&second_waits, true);
    }
}

static void expect_little_done(struct toy *toy)
{
    unsigned ran = 0;
    for (size_t i = 0; i < 2000; i++)
        ran += atomic_load(&toy->desk->toys[0].ran[0][i]);
    cr_assert_leq(ran, 1, "only the helper's first unit");
    toy->desk->left--;
    atomic_store(&second_is_done, true);
}

Test(scheduler, helpers_give_way_at_once)
{
    struct desk *desk = desk_create(2, 100);
    desk->toys[0].on_unit = wait_for_second;
    desk->toys[0].claimed_ns = QD_NS_PER_MS;
    desk->toys[1].on_done = expect_little_done;
    cr_assert(desk_submit(desk, 0, 2000, 0));
    desk->timer = qd_loop_timer(desk->loop, submit_second, desk);
    qd_timer_start(desk->timer, 1, 1);
    qd_loop_run(desk->loop);
    toy_assert_whole(&desk->toys[0]);
    toy_assert_whole(&desk->toys[1]);
    qd_handle_destroy(desk->timer);
    desk_destroy(desk);
}

enum { LATE_COUNT = 300 };

static void submit_late(struct desk *desk);

/* Frees the toy, so that nothing of it is left when the helper comes that it called. */
static void free_late(struct toy *toy)
{
    struct desk *desk = toy->desk;
    toy_assert_whole(toy);
    free(toy->ran[0]);
    free(toy);
    if (desk->dones < LATE_COUNT)
        submit_late(desk);
    else
        qd_loop_stop(desk->loop);
}

static void submit_late(struct desk *desk)
{
    struct toy *toy = calloc(1, sizeof(*toy));
    toy->claimed_ns = QD_NS_PER_MS;
    toy->on_done = free_late;
    cr_assert(desk_submit_toy(desk, toy, 1 + desk->dones % 5, 0));
}

Test(scheduler, helpers_may_be_late)
{
    struct desk *desk = desk_create(4, 100);
    submit_late(desk);
    qd_loop_run(desk->loop);
    desk_destroy(desk);
}

static bool is_two(struct toy *toy)
{
    return toy_thread_count(toy) == 2;
}

/* Each thread has one unit. The second thread, usually the helper, takes far longer. */
static void let_helper_be_late(struct toy *toy)
{
    if (atomic_exchange(&toy->gate, true))
        usleep(50000);
    else
        cr_assert(toy_wait_until(is_two, toy), "nobody helps");
}

static void give_time_to_come(struct toy *toy)
{
    for (int i = 0; i < 20 && !is_two(toy); i++)
        usleep(1000);
}

/* After that, no worker is woken for a short job. If this process gets no CPU for a tenth of a
 * second, the pause may be over by then, so there are many tries. The first one usually does. */
Test(scheduler, who_was_late_is_not_asked_again)
{
    struct desk *desk = desk_create(2, 100);
    bool alone = false;
    for (size_t i = 0; i < JOB_COUNT_MAX && !alone; i += 2) {
        desk->toys[i].on_unit = let_helper_be_late;
        desk->toys[i + 1].on_unit = give_time_to_come;
        for (size_t j = i; j < i + 2; j++) {
            desk->toys[j].slot_count = 2;
            desk->toys[j].claimed_ns = 300000;
            cr_assert(desk_submit(desk, j, 2, 1000));
            qd_loop_run(desk->loop);
            toy_assert_whole(&desk->toys[j]);
            while (qd_scheduler_workers(desk->scheduler).used > 0)
                usleep(1000);
        }
        alone = toy_thread_count(&desk->toys[i + 1]) == 1;
        usleep(alone ? 0 : 200000); /* after that, workers help again */
    }
    cr_assert(alone);
    desk_destroy(desk);
}

Test(scheduler, nobody_works_when_there_is_nothing_to_do)
{
    struct desk *desk = desk_create(4, 100);
    cr_assert(desk_submit(desk, 0, 100, 100000));
    qd_loop_run(desk->loop);
    struct rusage before;
    struct rusage after;
    getrusage(RUSAGE_SELF, &before);
    usleep(300000);
    getrusage(RUSAGE_SELF, &after);
    cr_assert_lt((after.ru_utime.tv_sec - before.ru_utime.tv_sec) * 1000000 +
                     after.ru_utime.tv_usec - before.ru_utime.tv_usec,
                 20000, "in us");
    desk_destroy(desk);
}

/* ---- Order -------------------------------------------------------------------------------- */

Test(scheduler, small_jobs_start_in_order)
{
    struct desk *desk = desk_create(1, 100);
    for (size_t i = 0; i < 50; i++)
        cr_assert(desk_submit(desk, i, 0, 0));
    qd_loop_run(desk->loop);
    for (size_t i = 0; i < 50; i++) {
        toy_assert_whole(&desk->toys[i]);
        cr_assert_eq(desk->toys[i].started_at, i + 1);
        cr_assert_eq(desk->toys[i].done_at, i + 1);
    }
    desk_destroy(desk);
}

Test(scheduler, phases_come_in_order_and_every_unit_runs_once)
{
    static const size_t units[] = {1, 0, 2, 3, 100, 1000, 7, 3001};
    struct desk *desk = desk_create(3, 100);
    for (size_t i = 0; i < 60; i++) {
        struct toy *toy = &desk->toys[i];
        toy->slot_count = 1 + i % SLOT_COUNT_MAX;
        toy->phase_count = 1 + i % PHASE_COUNT_MAX;
        toy->claimed_ns = i % 2 * QD_NS_PER_MS;
        for (size_t phase = 0; phase < toy->phase_count; phase++)
            toy->units[phase] = units[(i + phase * 3) % 8];
        cr_assert(desk_submit(desk, i, 0, i % 3 * 1000));
    }
    qd_loop_run(desk->loop);
    for (size_t i = 0; i < 60; i++)
        toy_assert_whole(&desk->toys[i]);
    desk_destroy(desk);
}

Test(scheduler, the_queue_has_a_bound)
{
    struct desk *desk = desk_create(1, 3);
    desk_hold_worker(desk);
    for (size_t i = 1; i <= 3; i++)
        cr_assert(desk_submit(desk, i, 10, 1000));
    cr_assert_not(desk_submit(desk, 4, 0, 0));
    cr_assert_eq(qd_scheduler_queue_count(desk->scheduler), 3);
    cr_assert_not(qd_scheduler_has_room(desk->scheduler));
    desk_let_worker_go(desk);
    qd_loop_run(desk->loop);
    cr_assert_eq(qd_scheduler_queue_count(desk->scheduler), 0);
    cr_assert(qd_scheduler_has_room(desk->scheduler));
    desk_destroy(desk);
}

/* All jobs wait before the worker takes the first one. */
Test(scheduler, a_large_job_gives_way)
{
    struct desk *desk = desk_create(1, 100);
    desk_hold_worker(desk);
    cr_assert(desk_submit(desk, 1, 600, 100000)); /* 60 ms */
    cr_assert(desk_submit(desk, 2, 600, 100000));
    for (size_t i = 3; i < 11; i++)
        cr_assert(desk_submit(desk, i, 0, 0));
    desk_let_worker_go(desk);
    qd_loop_run(desk->loop);
    for (size_t i = 0; i < 11; i++)
        toy_assert_whole(&desk->toys[i]);
    for (size_t i = 3; i < 11; i++)
        cr_assert_lt(desk->toys[i].done_at, desk->toys[1].done_at);
    cr_assert_gt(desk->toys[1].switches, 10, "the two large ones alternate");
    cr_assert_gt(desk->toys[2].switches, 10);
    desk_destroy(desk);
}

Test(scheduler, alone_a_large_job_is_not_interrupted)
{
    struct desk *desk = desk_create(1, 100);
    desk->toys[0].phase_count = 3;
    desk->toys[0].units[0] = desk->toys[0].units[1] = desk->toys[0].units[2] = 100;
    cr_assert(desk_submit(desk, 0, 0, 50000));
    qd_loop_run(desk->loop);
    toy_assert_whole(&desk->toys[0]);
    cr_assert_eq(desk->toys[0].switches, 1, "phases follow on each other");
    desk_destroy(desk);
}

/* ---- Ends before the end ------------------------------------------------------------------ */

/* Gives the toy three phases, of which phase `phase`, from 1, takes 10 s. */
static void make_endless_in(struct toy *toy, size_t phase)
{
    toy->phase_count = PHASE_COUNT_MAX;
    for (size_t i = 0; i < PHASE_COUNT_MAX; i++)
        toy->units[i] = i + 1 == phase ? 100000 : 20;
}

static void assert_ended_in(const struct toy *toy, size_t phase)
{
    cr_assert_gt(toy->done_at, 0);
    cr_assert_eq(toy->phase, phase);
    cr_assert_eq(toy->finished, 0);
    toy_assert_units(toy, phase - 1);
    cr_assert_eq(atomic_load(&toy->ran[phase - 1][99999]), 0);
}

Test(scheduler, a_job_past_its_deadline_ends_in_each_phase)
{
    struct desk *desk = desk_create(2, 100);
    for (size_t i = 0; i < PHASE_COUNT_MAX; i++) {
        make_endless_in(&desk->toys[i], i + 1);
        desk->toys[i].expire_at_phase = i + 1;
        cr_assert(desk_submit(desk, i, 0, 100000));
    }
    cr_assert(desk_submit(desk, 3, 10, 1000));
    qd_loop_run(desk->loop);
    for (size_t i = 0; i < PHASE_COUNT_MAX; i++) {
        assert_ended_in(&desk->toys[i], i + 1);
        cr_assert(desk->toys[i].expired);
        cr_assert_not(desk->toys[i].cancelled);
    }
    toy_assert_whole(&desk->toys[3]);
    desk_destroy(desk);
}

static void abandon(void *context)
{
    struct desk *desk = context;
    qd_timer_stop(desk->timer);
    cr_assert(!qd_scheduler_is_abandoned(desk->scheduler));
    qd_scheduler_abandon(desk->scheduler);
    cr_assert(qd_scheduler_is_abandoned(desk->scheduler));
    cr_assert_not(qd_scheduler_has_room(desk->scheduler));
}

/* Abandons the jobs when the endless phase of each has begun. */
static void abandon_when_endless(void *context)
{
    struct desk *desk = context;
    for (size_t i = 0; i < PHASE_COUNT_MAX; i++)
        if (atomic_load(&desk->toys[i].ran[i][0]) == 0)
            return;
    abandon(desk);
}

static void run_with_timer(struct desk *desk, void (*on_timer)(void *context), uint64_t ms)
{
    desk->timer = qd_loop_timer(desk->loop, on_timer, desk);
    qd_timer_start(desk->timer, ms, ms);
    qd_loop_run(desk->loop);
    qd_handle_destroy(desk->timer);
}

Test(scheduler, abandoned_jobs_end_in_each_phase)
{
    struct desk *desk = desk_create(3, 100);
    for (size_t i = 0; i < PHASE_COUNT_MAX; i++) {
        make_endless_in(&desk->toys[i], i + 1);
        cr_assert(desk_submit(desk, i, 0, 100000));
    }
    run_with_timer(desk, abandon_when_endless, 1);
    for (size_t i = 0; i < PHASE_COUNT_MAX; i++) {
        assert_ended_in(&desk->toys[i], i + 1);
        cr_assert(desk->toys[i].cancelled);
        cr_assert_not(desk->toys[i].is_running);
    }
    desk_destroy(desk);
}

Test(scheduler, abandoned_jobs_end_wherever_they_are)
{
    struct desk *desk = desk_create(2, 100);
    for (size_t i = 0; i < 4; i++)
        cr_assert(desk_submit(desk, i, 100000, 100000)); /* 10 s each */
    for (size_t i = 4; i < 20; i++) {
        desk->toys[i].start_ns = 20 * QD_NS_PER_MS;
        cr_assert(desk_submit(desk, i, 0, 0));
    }
    run_with_timer(desk, abandon, 30);
    unsigned cancelled = 0;
    for (size_t i = 0; i < 20; i++) {
        cr_assert_gt(desk->toys[i].done_at, 0, "job %zu", i);
        cr_assert_not(desk->toys[i].is_running);
        cancelled += desk->toys[i].cancelled;
    }
    for (size_t i = 0; i < 4; i++)
        cr_assert_eq(atomic_load(&desk->toys[i].ran[0][99999]), 0, "job %zu ran to its end", i);
    cr_assert_geq(cancelled, 4);
    cr_assert_not(desk_submit(desk, 20, 0, 0));
    desk_destroy(desk);
}
