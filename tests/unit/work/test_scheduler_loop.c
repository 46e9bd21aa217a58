/* What the loop's thread itself computes. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <unistd.h>

#include "server/work/scheduler/scheduler.h"
#include "tests/unit/work/toys.h"

/* ---- Inline ------------------------------------------------------------------------------- */

static _Atomic pthread_t unit_thread; /* the thread that ran the last unit */

static void note_thread(struct toy *toy)
{
    (void)toy;
    atomic_store(&unit_thread, pthread_self());
}

static bool is_here(void)
{
    return pthread_equal(atomic_load(&unit_thread), pthread_self());
}

/* Returns a desk whose only worker is held by the first job, while the second job waits. */
static struct desk *desk_busy_with(size_t queue_max)
{
    struct desk *desk = desk_create(1, queue_max);
    desk_hold_worker(desk);
    cr_assert(desk_submit(desk, 1, 1, 1000));
    return desk;
}

static struct desk *desk_busy(void)
{
    return desk_busy_with(JOB_COUNT_MAX);
}

/* Submits a short job of `phases` phases, with one unit each. */
static struct toy *submit_inline(struct desk *desk, size_t index, size_t phases,
                                 uint64_t claimed_ns)
{
    struct toy *toy = &desk->toys[index];
    toy->may_run_inline = true;
    toy->phase_count = phases;
    for (size_t i = 0; i < phases; i++)
        toy->units[i] = 1;
    toy->claimed_ns = claimed_ns;
    toy->on_unit = note_thread;
    cr_assert(desk_submit(desk, index, 0, 0));
    return toy;
}

/* Lets the worker go. Asserts that all jobs complete. */
static void release(struct desk *desk, size_t count)
{
    desk_let_worker_go(desk);
    qd_loop_run(desk->loop);
    for (size_t i = 0; i < count; i++)
        toy_assert_whole(&desk->toys[i]);
    desk_destroy(desk);
}

Test(scheduler_loop, the_loop_computes_a_short_job_inline)
{
    struct desk *desk = desk_busy();
    struct toy *toy = submit_inline(desk, 2, PHASE_COUNT_MAX, QD_INLINE_NS / PHASE_COUNT_MAX);
    cr_assert_gt(toy->done_at, 0, "within the call, whoever waits");
    cr_assert(is_here());
    cr_assert_eq(toy_thread_count(toy), 1);
    release(desk, 3);
}

/* Asserts that a job which the loop has begun and left waits like a new one. */
static void assert_left_inline(size_t phases, uint64_t claimed_ns, bool takes_back)
{
    struct desk *desk = desk_busy();
    desk->toys[2].takes_back = takes_back;
    struct toy *toy = submit_inline(desk, 2, phases, claimed_ns);
    cr_assert_gt(toy->started_at, 0);
    cr_assert_eq(toy->done_at, 0);
    cr_assert_eq(qd_scheduler_queue_count(desk->scheduler), 2);
    desk_let_worker_go(desk);
    qd_loop_run(desk->loop);
    cr_assert_not(is_here(), "its last unit was a worker's");
    cr_assert_gt(toy->done_at, desk->toys[1].done_at, "in order");
    for (size_t i = 0; i < 3; i++)
        toy_assert_whole(&desk->toys[i]);
    desk_destroy(desk);
}

Test(scheduler_loop, what_takes_longer_is_left_to_workers)
{
    assert_left_inline(1, QD_INLINE_NS + 1, false);
}

Test(scheduler_loop, phases_that_take_longer_in_all_are_left_to_workers)
{
    assert_left_inline(3, QD_INLINE_NS / 2, false);
}

Test(scheduler_loop, what_may_not_run_inline_any_more_is_left_to_workers)
{
    assert_left_inline(1, 1000, true);
}

Test(scheduler_loop, what_the_loop_computes_inline_needs_no_room_in_the_queue)
{
    struct desk *desk = desk_busy_with(1);
    cr_assert_not(desk_submit(desk, 2, 1, 1000), "the queue is full");
    cr_assert_not(submit_inline(desk, 3, 2, 1000)->cancelled);
    toy_assert_whole(&desk->toys[3]);
    cr_assert_eq(qd_scheduler_queue_count(desk->scheduler), 1);
    desk_let_worker_go(desk);
    qd_loop_run(desk->loop);
    toy_assert_whole(&desk->toys[1]);
    desk_destroy(desk);
}

/* The job's second phase is too long for the loop. */
Test(scheduler_loop, what_the_loop_leaves_needs_room_in_the_queue)
{
    struct desk *desk = desk_busy_with(1);
    struct toy *toy = submit_inline(desk, 2, 2, QD_INLINE_NS * 2 / 3);
    cr_assert(toy->cancelled);
    cr_assert_gt(toy->done_at, 0);
    cr_assert_not(toy->is_running);
    cr_assert_eq(toy->phase, 2);
    cr_assert_eq(qd_scheduler_queue_count(desk->scheduler), 1);
    desk_let_worker_go(desk);
    qd_loop_run(desk->loop);
    desk_destroy(desk);
}

/* The job takes longer than it claims. */
Test(scheduler_loop, in_one_turn_of_its_own_the_loop_computes_for_a_quantum)
{
    struct desk *desk = desk_busy();
    desk->toys[2].start_ns = QD_GIVING_NS + QD_QUANTUM_NS;
    cr_assert_gt(submit_inline(desk, 2, 1, 1000)->done_at, 0);
    cr_assert_eq(submit_inline(desk, 3, 1, 1000)->started_at, 0);
    cr_assert_not(qd_scheduler_on_idle(desk->scheduler, desk->loop), "others wait, too");
    cr_assert_gt(submit_inline(desk, 4, 1, 1000)->done_at, 0);
    release(desk, 5);
}

/* In one iteration, the loop computes a hundred jobs although they are longer than a quantum in
 * total. Each says how long it took, so that it does not matter how long it really took. */
Test(scheduler_loop, what_takes_no_longer_than_giving_it_away_is_never_left)
{
    enum { FIRST = 2, COUNT = 100 };
    struct desk *desk = desk_busy();
    cr_assert_not(qd_scheduler_on_idle(desk->scheduler, desk->loop)); /* the iteration begins */
    for (size_t i = FIRST; i < FIRST + COUNT; i++) {
        desk->toys[i].told_ns = QD_GIVING_NS * 3 / 4;
        cr_assert_gt(submit_inline(desk, i, 1, 1000)->done_at, 0, "job %zu", i);
    }
    release(desk, FIRST + COUNT);
}

Test(scheduler_loop, the_loop_may_be_told_not_to_compute)
{
    struct desk *desk =
        desk_create_with(&(struct qd_scheduler_settings){.thread_count = 1, .queue_max = 100});
    for (size_t i = 0; i < 3; i++) {
        struct toy *toy = submit_inline(desk, i, 1, 1000);
        cr_assert_not(qd_scheduler_on_idle(desk->scheduler, desk->loop));
        qd_loop_run(desk->loop);
        toy_assert_whole(toy);
        cr_assert_not(is_here());
        usleep(10000); /* the worker is probably asleep then */
    }
    desk_destroy(desk);
}

/* ---- Instead of falling asleep ------------------------------------------------------------- */

/* Submits the same job until all workers are asleep, so that the loop takes it. The other runs
 * complete. */
static struct toy *submit_until_helped(struct desk *desk, size_t units, uint64_t unit_ns,
                                       void (*on_unit)(struct toy *toy))
{
    for (size_t i = 0; i < JOB_COUNT_MAX; i++) {
        struct toy *toy = &desk->toys[i];
        toy->may_run_inline = true;
        toy->slot_count = 1; /* no worker joins */
        toy->on_unit = on_unit;
        cr_assert(desk_submit(desk, i, units, unit_ns));
        if (qd_scheduler_on_idle(desk->scheduler, desk->loop)) {
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

/* Lets the workers complete what the loop has left. */
static void finish(struct desk *desk, struct toy *toy)
{
    if (toy->done_at == 0)
        qd_loop_run(desk->loop);
    toy_assert_whole(toy);
}

Test(scheduler_loop, the_loop_computes_a_lone_job_that_is_longer)
{
    struct desk *desk = desk_create(2, 100);
    struct toy *toy = submit_until_helped(desk, 2, QD_BATCH_NS, note_thread);
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

Test(scheduler_loop, the_loop_leaves_a_job_for_its_own_work)
{
    struct desk *desk = desk_create(2, 100);
    desk->async = qd_loop_async(desk->loop, ignore, NULL);
    struct toy *toy = submit_until_helped(desk, 100, 20000, make_loop_ready);
    finish(desk, toy);
    cr_assert_not(is_here());
    qd_handle_destroy(desk->async);
    desk_destroy(desk);
}

Test(scheduler_loop, the_loop_leaves_a_job_after_a_while)
{
    struct desk *desk = desk_create(1, 100);
    struct toy *toy = submit_until_helped(desk, 1000, 20000, note_thread);
    finish(desk, toy);
    cr_assert_eq(toy_thread_count(toy), 2);
    cr_assert_not(is_here());
    desk_destroy(desk);
}

Test(scheduler_loop, the_loop_does_not_help_where_more_is_to_do)
{
    struct desk *desk = desk_create(2, 100);
    struct toy *toy = submit_until_helped(desk, 2, QD_BATCH_NS, note_thread);
    finish(desk, toy);
    struct toy *more = toy + 1;
    for (size_t i = 0; i < 2; i++) {
        more[i].may_run_inline = true;
        cr_assert(desk_submit_toy(desk, &more[i], 2, QD_BATCH_NS));
    }
    qd_scheduler_on_idle(desk->scheduler, desk->loop); /* one of the jobs may be done by now */
    qd_loop_run(desk->loop);
    for (size_t i = 0; i < 2; i++)
        toy_assert_whole(&more[i]);
    desk_destroy(desk);
}
