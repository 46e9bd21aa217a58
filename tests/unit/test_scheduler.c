#include "server/work/scheduler.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "server/base/clock.h"
#include "tests/unit/toys.h"

/* A failure would not end otherwise: libuv waits for its threads at exit. */
TestSuite(scheduler, .timeout = 60);

/* ---- What it is worth --------------------------------------------------------------------- */

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

/* ---- The loop computes in passing --------------------------------------------------------- */

static _Atomic pthread_t unit_thread; /* that ran a unit last */

static void note_thread(struct toy *toy)
{
    (void)toy;
    atomic_store(&unit_thread, pthread_self());
}

static bool is_here(void)
{
    return pthread_equal(atomic_load(&unit_thread), pthread_self());
}

static bool has_started(struct toy *toy)
{
    return atomic_load(&toy->desk->starts) > 0;
}

static void open_first_gate(struct toy *toy)
{
    atomic_store(&toy->desk->toys[0].gate, true);
}

/* Its one worker is held by the first job, and the second waits. */
static struct desk *desk_busy(void)
{
    struct desk *desk = desk_create(1, 100);
    desk->toys[0].gated = true;
    cr_assert(desk_submit(desk, 0, 0, 0));
    cr_assert(toy_wait_until(has_started, &desk->toys[0]));
    cr_assert(desk_submit(desk, 1, 1, 1000));
    return desk;
}

/* A brief job of so many phases, of one unit each. */
static struct toy *submit_brief(struct desk *desk, size_t index, size_t phases, uint64_t claimed_ns)
{
    struct toy *toy = &desk->toys[index];
    toy->brief = true;
    toy->phase_count = phases;
    for (size_t i = 0; i < phases; i++)
        toy->units[i] = 1;
    toy->claimed_ns = claimed_ns;
    toy->on_unit = note_thread;
    cr_assert(desk_submit(desk, index, 0, 0));
    return toy;
}

/* Opens the gate; all jobs come to their ends. */
static void release(struct desk *desk, size_t count)
{
    open_first_gate(&desk->toys[0]);
    qd_loop_run(desk->loop);
    for (size_t i = 0; i < count; i++)
        toy_assert_whole(&desk->toys[i]);
    desk_destroy(desk);
}

Test(scheduler, the_loop_computes_a_brief_job_in_passing)
{
    struct desk *desk = desk_busy();
    struct toy *toy = submit_brief(desk, 2, PHASE_COUNT_MAX, QD_PASSING_NS / PHASE_COUNT_MAX);
    cr_assert_gt(toy->done_at, 0, "within the call, whoever waits");
    cr_assert(is_here());
    cr_assert_eq(toy_thread_count(toy), 1);
    release(desk, 3);
}

/* What the loop has begun and left waits as all that is new. */
static void assert_left_in_passing(size_t phases, uint64_t claimed_ns, bool takes_back)
{
    struct desk *desk = desk_busy();
    desk->toys[2].takes_back = takes_back;
    struct toy *toy = submit_brief(desk, 2, phases, claimed_ns);
    cr_assert_gt(toy->started_at, 0);
    cr_assert_eq(toy->done_at, 0);
    cr_assert_eq(qd_scheduler_queue_count(desk->scheduler), 2);
    open_first_gate(toy);
    qd_loop_run(desk->loop);
    cr_assert_not(is_here(), "its last unit was a worker's");
    cr_assert_gt(toy->done_at, desk->toys[1].done_at, "in its turn");
    for (size_t i = 0; i < 3; i++)
        toy_assert_whole(&desk->toys[i]);
    desk_destroy(desk);
}

Test(scheduler, what_takes_longer_is_left_in_passing)
{
    assert_left_in_passing(1, QD_PASSING_NS + 1, false);
}

Test(scheduler, phases_that_take_longer_in_all_are_left_in_passing)
{
    assert_left_in_passing(3, QD_PASSING_NS / 2, false);
}

Test(scheduler, what_is_not_brief_any_more_is_left_in_passing)
{
    assert_left_in_passing(1, 1000, true);
}

/* It takes longer than it says. */
Test(scheduler, in_one_turn_of_its_own_the_loop_computes_for_a_quantum)
{
    struct desk *desk = desk_busy();
    desk->toys[2].start_ns = QD_QUANTUM_NS;
    cr_assert_gt(submit_brief(desk, 2, 1, 1000)->done_at, 0);
    cr_assert_eq(submit_brief(desk, 3, 1, 1000)->started_at, 0);
    cr_assert_not(qd_scheduler_help(desk->scheduler, desk->loop), "others wait, too");
    cr_assert_gt(submit_brief(desk, 4, 1, 1000)->done_at, 0);
    release(desk, 5);
}

Test(scheduler, the_loop_may_be_told_not_to_compute)
{
    struct desk *desk =
        desk_create_with(&(struct qd_scheduler_settings){.thread_count = 1, .queue_max = 100});
    for (size_t i = 0; i < 3; i++) {
        struct toy *toy = submit_brief(desk, i, 1, 1000);
        cr_assert_not(qd_scheduler_help(desk->scheduler, desk->loop));
        qd_loop_run(desk->loop);
        toy_assert_whole(toy);
        cr_assert_not(is_here());
        usleep(10000); /* the worker sleeps then, more likely than not */
    }
    desk_destroy(desk);
}

/* ---- The loop computes instead of falling asleep ------------------------------------------ */

/* Submits the same job until all workers sleep, so that the loop takes it. Others are whole. */
static struct toy *submit_until_helped(struct desk *desk, size_t units, uint64_t unit_ns,
                                       void (*on_unit)(struct toy *toy))
{
    for (size_t i = 0; i < JOB_COUNT_MAX; i++) {
        struct toy *toy = &desk->toys[i];
        toy->brief = true;
        toy->seat_count = 1; /* nobody joins */
        toy->on_unit = on_unit;
        cr_assert(desk_submit(desk, i, units, unit_ns));
        if (qd_scheduler_help(desk->scheduler, desk->loop)) {
            if (toy->done_at > 0)
                qd_loop_run(desk->loop); /* only takes notice of qd_loop_stop */
            return toy;
        }
        qd_loop_run(desk->loop);
        toy_assert_whole(toy);
        usleep(10000 * (unsigned)(i + 1));
    }
    cr_assert_fail("the loop never helps");
    return NULL;
}

/* What the loop has left, the workers end. */
static void finish(struct desk *desk, struct toy *toy)
{
    if (toy->done_at == 0)
        qd_loop_run(desk->loop);
    toy_assert_whole(toy);
}

Test(scheduler, the_loop_computes_a_lone_job_that_is_longer)
{
    struct desk *desk = desk_create(2, 100);
    struct toy *toy = submit_until_helped(desk, 2, QD_PORTION_NS, note_thread);
    cr_assert_eq(atomic_load(&toy->threads[0]), (unsigned long)pthread_self());
    finish(desk, toy);
    desk_destroy(desk);
}

static void make_loop_ready(struct toy *toy)
{
    note_thread(toy);
    if (atomic_load(&toy->ran[0][0]) == 0)
        qd_async_send(toy->desk->async);
}

static void ignore(void *context)
{
    (void)context;
}

Test(scheduler, the_loop_leaves_a_job_for_its_own_work)
{
    struct desk *desk = desk_create(2, 100);
    desk->async = qd_loop_async(desk->loop, ignore, NULL);
    struct toy *toy = submit_until_helped(desk, 100, 20000, make_loop_ready);
    finish(desk, toy);
    cr_assert_not(is_here());
    qd_handle_destroy(desk->async);
    desk_destroy(desk);
}

Test(scheduler, the_loop_leaves_a_job_after_a_while)
{
    struct desk *desk = desk_create(1, 100);
    struct toy *toy = submit_until_helped(desk, 1000, 20000, note_thread);
    finish(desk, toy);
    cr_assert_eq(toy_thread_count(toy), 2);
    cr_assert_not(is_here());
    desk_destroy(desk);
}

Test(scheduler, the_loop_does_not_help_where_more_is_to_do)
{
    struct desk *desk = desk_create(2, 100);
    struct toy *toy = submit_until_helped(desk, 2, QD_PORTION_NS, note_thread);
    finish(desk, toy);
    struct toy *more = toy + 1;
    for (size_t i = 0; i < 2; i++) {
        more[i].brief = true;
        cr_assert(desk_submit_toy(desk, &more[i], 2, QD_PORTION_NS));
    }
    qd_scheduler_help(desk->scheduler, desk->loop); /* one of them may be over by now */
    qd_loop_run(desk->loop);
    for (size_t i = 0; i < 2; i++)
        toy_assert_whole(&more[i]);
    desk_destroy(desk);
}

/* ---- Who helps ---------------------------------------------------------------------------- */

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
    toy->seat_count = SEAT_COUNT_MAX;
    toy->on_unit = wait_for_four_threads;
    cr_assert(desk_submit(desk, 0, 50, 100000));
    qd_loop_run(desk->loop);
    toy_assert_whole(toy);
    cr_assert_eq(toy->switches, 1);
    desk_destroy(desk);
}

static atomic_uint helped; /* the phases in which two worked at a time, as bits */

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

/* Who helped is awake for a while, and asleep later: both come to the next phase. */
Test(scheduler, idle_workers_help_in_each_phase)
{
    struct desk *desk = desk_create(3, 100);
    for (size_t i = 0; i < 20; i++) {
        struct toy *toy = &desk->toys[i];
        toy->phase_count = PHASE_COUNT_MAX;
        for (size_t phase = 0; phase < PHASE_COUNT_MAX; phase++)
            toy->units[phase] = phase == 1 && i % 2 ? 1 : 50;
        toy->seat_count = 2;
        toy->claimed_ns = QD_NS_PER_MS;
        toy->on_unit = wait_for_help;
    }
    for (size_t i = 0; i < 20; i++) {
        atomic_store(&helped, i % 2 ? 1U << 2 : 0); /* a phase of one unit is one worker's */
        cr_assert(desk_submit(desk, i, 0, i % 2 ? 200000 : 1000));
        qd_loop_run(desk->loop);
        toy_assert_whole(&desk->toys[i]);
    }
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

/* The one that is busy goes on when the other has done everything. */
Test(scheduler, busy_workers_do_not_help)
{
    struct desk *desk = desk_create(2, 100);
    desk->toys[0].gated = true;
    cr_assert(desk_submit(desk, 0, 0, 0));
    cr_assert(toy_wait_until(has_started, &desk->toys[0]));
    cr_assert(desk_submit(desk, 1, 1, 100000));
    desk->toys[2].on_unit = open_first_gate;
    cr_assert(desk_submit(desk, 2, 1, 100000));
    qd_loop_run(desk->loop);
    for (size_t i = 0; i < 3; i++)
        toy_assert_whole(&desk->toys[i]);
    cr_assert_eq(toy_thread_count(&desk->toys[1]), 1);
    cr_assert_eq(desk->toys[0].done_at, 3);
    desk_destroy(desk);
}

static bool has_two_starts(struct toy *toy)
{
    return atomic_load(&toy->desk->starts) == 2;
}

/* Who began it is stuck until the other job has started, so only a helper can start that. */
static void wait_if_first(struct toy *toy)
{
    if (atomic_load(&toy->threads[0]) == (unsigned long)pthread_self())
        cr_assert(toy_wait_until(has_two_starts, toy));
    usleep(1000);
}

static void submit_second(void *context)
{
    struct desk *desk = context;
    if (toy_thread_count(&desk->toys[0]) == 2 && desk->toys[1].desk == NULL)
        cr_assert(desk_submit(desk, 1, 0, 0));
}

static void expect_little_done(struct toy *toy)
{
    unsigned ran = 0;
    for (size_t i = 0; i < 2000; i++)
        ran += atomic_load(&toy->desk->toys[0].ran[0][i]);
    cr_assert_lt(ran, 1000);
    toy->desk->left--;
}

Test(scheduler, helpers_give_way_at_once)
{
    struct desk *desk = desk_create(2, 100);
    desk->toys[0].on_unit = wait_if_first;
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

/* Nothing of it is left when the helper comes that it called. */
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
        toy->seat_count = 1 + i % SEAT_COUNT_MAX;
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
    desk->toys[0].gated = true;
    cr_assert(desk_submit(desk, 0, 0, 0));
    cr_assert(toy_wait_until(has_started, &desk->toys[0]));
    for (size_t i = 1; i <= 3; i++)
        cr_assert(desk_submit(desk, i, 10, 1000));
    cr_assert_not(desk_submit(desk, 4, 0, 0));
    cr_assert_eq(qd_scheduler_queue_count(desk->scheduler), 3);
    cr_assert_not(qd_scheduler_has_room(desk->scheduler));
    open_first_gate(&desk->toys[0]);
    qd_loop_run(desk->loop);
    cr_assert_eq(qd_scheduler_queue_count(desk->scheduler), 0);
    cr_assert(qd_scheduler_has_room(desk->scheduler));
    desk_destroy(desk);
}

Test(scheduler, a_large_job_gives_way)
{
    struct desk *desk = desk_create(1, 100);
    cr_assert(desk_submit(desk, 0, 600, 100000)); /* 60 ms */
    cr_assert(desk_submit(desk, 1, 600, 100000));
    for (size_t i = 2; i < 10; i++)
        cr_assert(desk_submit(desk, i, 0, 0));
    qd_loop_run(desk->loop);
    for (size_t i = 0; i < 10; i++)
        toy_assert_whole(&desk->toys[i]);
    for (size_t i = 2; i < 10; i++)
        cr_assert_lt(desk->toys[i].done_at, desk->toys[0].done_at);
    cr_assert_gt(desk->toys[0].switches, 10, "the two large ones take turns");
    cr_assert_gt(desk->toys[1].switches, 10);
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

/* Three phases, of which the one numbered `phase`, from 1, takes 10 s. */
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

static void on_timer(void *context)
{
    struct desk *desk = context;
    cr_assert(!qd_scheduler_is_abandoned(desk->scheduler));
    qd_scheduler_abandon(desk->scheduler);
    cr_assert(qd_scheduler_is_abandoned(desk->scheduler));
    cr_assert_not(qd_scheduler_has_room(desk->scheduler));
}

static void run_and_abandon(struct desk *desk, uint64_t after_ms)
{
    desk->timer = qd_loop_timer(desk->loop, on_timer, desk);
    qd_timer_start(desk->timer, after_ms, 0);
    uint64_t begin_ns = qd_clock_ns();
    qd_loop_run(desk->loop);
    cr_assert_lt(qd_clock_ns() - begin_ns, 5 * QD_NS_PER_S);
    qd_handle_destroy(desk->timer);
}

Test(scheduler, abandoned_jobs_end_in_each_phase)
{
    struct desk *desk = desk_create(3, 100);
    for (size_t i = 0; i < PHASE_COUNT_MAX; i++) {
        make_endless_in(&desk->toys[i], i + 1);
        cr_assert(desk_submit(desk, i, 0, 100000));
    }
    run_and_abandon(desk, 200);
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
    run_and_abandon(desk, 30);
    unsigned cancelled = 0;
    for (size_t i = 0; i < 20; i++) {
        cr_assert_gt(desk->toys[i].done_at, 0, "job %zu", i);
        cr_assert_not(desk->toys[i].is_running);
        cancelled += desk->toys[i].cancelled;
    }
    cr_assert_geq(cancelled, 4);
    cr_assert_not(desk_submit(desk, 20, 0, 0));
    desk_destroy(desk);
}
