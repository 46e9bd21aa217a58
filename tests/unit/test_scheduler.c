#include "server/scheduler.h"

#include <criterion/criterion.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "server/clock.h"

enum { JOB_COUNT_MAX = 64, SLOT_COUNT_MAX = 4 };

struct desk;

/* A job that only takes time, and notes what happened to it. */
struct toy {
    struct qd_job job;
    struct desk *desk;
    uint64_t start_ns; /* of work in start */
    size_t units;      /* 0: start does it all */
    uint64_t unit_ns;
    size_t slot_count;
    uint64_t deadline_ns; /* 0: none */
    struct qd_slot slots[SLOT_COUNT_MAX];
    atomic_uchar *ran; /* how often each unit ran */
    atomic_uint running;
    atomic_uint finished;
    bool is_running; /* as on_running said */
    unsigned switches;
    unsigned started_at; /* its place among all starts; from 1 */
    unsigned done_at;
    bool cancelled;
};

struct desk {
    struct qd_loop *loop;
    struct qd_scheduler *scheduler;
    struct qd_handle *timer;
    struct toy toys[JOB_COUNT_MAX];
    unsigned left;
    atomic_uint starts;
    unsigned dones;
};

static void spin(uint64_t ns)
{
    uint64_t until = qd_clock_ns() + ns;
    while (qd_clock_ns() < until) {
    }
}

static bool start(struct qd_job *job)
{
    struct toy *toy = (struct toy *)job;
    toy->started_at = atomic_fetch_add(&toy->desk->starts, 1) + 1;
    spin(toy->start_ns);
    job->units = toy->units;
    job->chunk_units = 3;
    job->slots = toy->slots;
    job->slot_count = toy->units == 0 ? 0 : toy->slot_count;
    job->deadline_ns = toy->deadline_ns == 0 ? UINT64_MAX : toy->deadline_ns;
    return toy->units == 0;
}

static void run(struct qd_job *job, void *workspace, size_t begin, size_t end)
{
    struct toy *toy = (struct toy *)job;
    cr_assert_eq(workspace, toy);
    cr_assert_lt(begin, end);
    cr_assert_leq(end, toy->units);
    atomic_fetch_add(&toy->running, 1);
    for (size_t i = begin; i < end; i++) {
        spin(toy->unit_ns);
        atomic_fetch_add(&toy->ran[i], 1);
    }
    atomic_fetch_sub(&toy->running, 1);
}

static void on_running(struct qd_job *job, bool running)
{
    struct toy *toy = (struct toy *)job;
    cr_assert_neq(toy->is_running, running);
    toy->is_running = running;
    toy->switches++;
}

static void finish(struct qd_job *job)
{
    struct toy *toy = (struct toy *)job;
    cr_assert_eq(atomic_load(&toy->running), 0);
    atomic_fetch_add(&toy->finished, 1);
}

static void cancel(struct qd_job *job)
{
    ((struct toy *)job)->cancelled = true;
}

static void done(struct qd_job *job)
{
    struct toy *toy = (struct toy *)job;
    cr_assert_eq(toy->done_at, 0, "done twice");
    toy->done_at = ++toy->desk->dones;
    if (--toy->desk->left == 0)
        qd_loop_stop(toy->desk->loop);
}

static const struct qd_job_code code = {start, run, on_running, finish, cancel, done};

static struct desk *desk_create(unsigned thread_count, size_t queue_max)
{
    struct desk *desk = calloc(1, sizeof(*desk));
    qd_pool_set_threads(thread_count);
    desk->loop = qd_loop_create();
    desk->scheduler = qd_scheduler_create(desk->loop, thread_count, queue_max);
    return desk;
}

static void desk_destroy(struct desk *desk)
{
    qd_scheduler_destroy(desk->scheduler);
    qd_loop_destroy(desk->loop);
    for (size_t i = 0; i < JOB_COUNT_MAX; i++)
        free(desk->toys[i].ran);
    free(desk);
}

static bool submit(struct desk *desk, size_t index, size_t units, uint64_t unit_ns)
{
    struct toy *toy = &desk->toys[index];
    toy->desk = desk;
    toy->units = units;
    toy->unit_ns = unit_ns;
    toy->slot_count = toy->slot_count == 0 ? 2 : toy->slot_count;
    toy->ran = calloc(units + 1, sizeof(*toy->ran));
    for (size_t i = 0; i < SLOT_COUNT_MAX; i++)
        toy->slots[i].workspace = toy;
    bool taken = qd_scheduler_submit(desk->scheduler, &toy->job, &code);
    desk->left += taken;
    return taken;
}

static void assert_whole(const struct toy *toy)
{
    cr_assert_gt(toy->done_at, 0);
    cr_assert_not(toy->cancelled);
    for (size_t i = 0; i < toy->units; i++)
        cr_assert_eq(atomic_load(&toy->ran[i]), 1, "unit %zu ran %d times", i, toy->ran[i]);
    cr_assert_eq(atomic_load(&toy->finished), toy->units > 0);
}

Test(scheduler, small_jobs_start_in_order)
{
    struct desk *desk = desk_create(1, 100);
    for (size_t i = 0; i < 50; i++)
        cr_assert(submit(desk, i, 0, 0));
    qd_loop_run(desk->loop);
    for (size_t i = 0; i < 50; i++) {
        assert_whole(&desk->toys[i]);
        cr_assert_eq(desk->toys[i].started_at, i + 1);
        cr_assert_eq(desk->toys[i].done_at, i + 1);
    }
    desk_destroy(desk);
}

Test(scheduler, every_unit_of_large_jobs_runs_once)
{
    static const size_t units[] = {1, 2, 3, 4, 100, 1000, 7, 3001};
    struct desk *desk = desk_create(3, 100);
    for (size_t i = 0; i < 40; i++) {
        desk->toys[i].slot_count = 1 + i % SLOT_COUNT_MAX;
        cr_assert(submit(desk, i, units[i % 8], i % 3 * 1000));
    }
    qd_loop_run(desk->loop);
    for (size_t i = 0; i < 40; i++)
        assert_whole(&desk->toys[i]);
    desk_destroy(desk);
}

Test(scheduler, the_queue_has_a_bound)
{
    struct desk *desk = desk_create(1, 3);
    size_t taken = 0;
    while (taken < JOB_COUNT_MAX && submit(desk, taken, 0, 0))
        taken++;
    cr_assert_eq(taken, 4 + 3, "four lie in the pool, three wait");
    cr_assert_eq(qd_scheduler_queue_count(desk->scheduler), 3);
    cr_assert_not(qd_scheduler_has_room(desk->scheduler));
    qd_loop_run(desk->loop);
    cr_assert_eq(qd_scheduler_queue_count(desk->scheduler), 0);
    cr_assert(qd_scheduler_has_room(desk->scheduler));
    desk_destroy(desk);
}

Test(scheduler, a_large_job_gives_way)
{
    struct desk *desk = desk_create(1, 100);
    cr_assert(submit(desk, 0, 600, 100000)); /* 60 ms */
    cr_assert(submit(desk, 1, 600, 100000));
    for (size_t i = 2; i < 10; i++)
        cr_assert(submit(desk, i, 0, 0));
    qd_loop_run(desk->loop);
    for (size_t i = 0; i < 10; i++)
        assert_whole(&desk->toys[i]);
    for (size_t i = 2; i < 10; i++)
        cr_assert_lt(desk->toys[i].done_at, desk->toys[0].done_at);
    cr_assert_gt(desk->toys[0].switches, 10, "the two large ones take turns");
    cr_assert_gt(desk->toys[1].switches, 10);
    desk_destroy(desk);
}

Test(scheduler, alone_a_large_job_is_not_interrupted)
{
    struct desk *desk = desk_create(1, 100);
    desk->toys[0].slot_count = 1;
    cr_assert(submit(desk, 0, 300, 50000));
    qd_loop_run(desk->loop);
    assert_whole(&desk->toys[0]);
    cr_assert_eq(desk->toys[0].switches, 1);
    desk_destroy(desk);
}

static void on_timer(void *context)
{
    struct desk *desk = context;
    qd_scheduler_abandon(desk->scheduler);
    cr_assert_not(qd_scheduler_has_room(desk->scheduler));
}

Test(scheduler, a_job_past_its_deadline_ends)
{
    struct desk *desk = desk_create(2, 100);
    desk->toys[0].deadline_ns = qd_clock_ns() + 5 * QD_NS_PER_MS;
    cr_assert(submit(desk, 0, 1000000, 100000));
    cr_assert(submit(desk, 1, 10, 1000));
    qd_loop_run(desk->loop);
    cr_assert(atomic_load(&desk->toys[0].job.expired));
    cr_assert_eq(atomic_load(&desk->toys[0].finished), 1);
    cr_assert_eq(atomic_load(&desk->toys[0].ran[999999]), 0);
    cr_assert_not(atomic_load(&desk->toys[1].job.expired));
    assert_whole(&desk->toys[1]);
    desk_destroy(desk);
}

Test(scheduler, abandoned_jobs_end)
{
    struct desk *desk = desk_create(2, 100);
    for (size_t i = 0; i < 4; i++)
        cr_assert(submit(desk, i, 100000, 100000)); /* 10 s each */
    for (size_t i = 4; i < 20; i++) {
        desk->toys[i].start_ns = 20 * QD_NS_PER_MS;
        cr_assert(submit(desk, i, 0, 0));
    }
    desk->timer = qd_loop_timer(desk->loop, on_timer, desk);
    qd_timer_start(desk->timer, 30, 0);
    uint64_t begin_ns = qd_clock_ns();
    qd_loop_run(desk->loop);
    cr_assert_lt(qd_clock_ns() - begin_ns, 2 * QD_NS_PER_S);
    unsigned cancelled = 0;
    for (size_t i = 0; i < 20; i++) {
        cr_assert_gt(desk->toys[i].done_at, 0, "job %zu", i);
        cr_assert_eq(desk->toys[i].is_running, false);
        cancelled += desk->toys[i].cancelled;
    }
    cr_assert_geq(cancelled, 4);
    cr_assert_not(submit(desk, 20, 0, 0));
    qd_handle_destroy(desk->timer);
    desk_destroy(desk);
}
