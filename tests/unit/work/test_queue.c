/* The order of jobs, and jobs that are cancelled. */
#include "server/work/scheduler/queue.h"

#include <criterion/criterion.h>
#include <stdlib.h>

#include "server/base/clock.h"
#include "tests/unit/work/toys.h"

enum { LONG_UNITS = 100000 };

/* ---- The queue by itself ------------------------------------------------------------------ */

/* Makes a job that is read, has been taken, started at 1 ns, and takes left_ns to its end. */
static struct qd_job taken_job(unsigned level, uint64_t left_ns)
{
    return (struct qd_job){.level = level,
                           .taken = true,
                           .started = true,
                           .started_ns = 1,
                           .deadline_ns = UINT64_MAX,
                           .phase = {.ahead_ns = left_ns}};
}

Test(queue, a_lower_level_comes_first_and_none_starves)
{
    enum { COUNT = 2 * QD_PRECAUTION_SHARE + 4 };
    static struct qd_job jobs[COUNT];
    struct qd_queue queue = {.count = 0};
    for (unsigned i = 0; i < COUNT; i++) { /* 0 and 1 are the oldest, and of the last level */
        jobs[i] = taken_job(i < 2 ? QD_LEVEL_LAST : QD_LEVEL_FIRST, 0);
        qd_queue_put(&queue, &jobs[i]);
    }
    cr_assert_eq(atomic_load(&queue.count), COUNT);
    unsigned old = 0;
    unsigned first = 2;
    for (unsigned take = 1; take <= COUNT; take++) {
        const bool is_other = take % QD_PRECAUTION_SHARE == 0;
        cr_assert_eq(qd_queue_take(&queue, 1), &jobs[is_other ? old++ : first++], "take %u", take);
    }
    cr_assert_eq(old, 2);
    cr_assert_null(qd_queue_take(&queue, 1));
    cr_assert_eq(atomic_load(&queue.count), 0);
}

/* Jobs of the first level never end. */
Test(queue, all_other_levels_get_their_shares)
{
    enum { TAKES = 2 * (QD_LEVEL_COUNT - 2) * QD_PRECAUTION_SHARE };
    struct qd_queue queue = {.count = 0};
    struct qd_job jobs[QD_LEVEL_COUNT];
    unsigned counts[QD_LEVEL_COUNT] = {0};
    for (unsigned level = QD_LEVEL_FIRST; level < QD_LEVEL_COUNT; level++) {
        jobs[level] = taken_job(level, QD_NS_PER_S);
        qd_queue_put(&queue, &jobs[level]);
    }
    for (unsigned take = 0; take < TAKES; take++) {
        struct qd_job *job = qd_queue_take(&queue, 1 + take * QD_QUANTUM_NS);
        counts[job->level]++;
        qd_queue_put(&queue, job);
    }
    for (unsigned level = QD_LEVEL_FIRST + 1; level < QD_LEVEL_COUNT; level++)
        cr_assert_eq(counts[level], 2, "level %u: %u", level, counts[level]);
}

/* The last one was begun by the loop, which has read it. */
Test(queue, who_is_new_waits_among_the_new_whatever_its_level)
{
    struct qd_queue queue = {.count = 0};
    struct qd_job read = taken_job(QD_LEVEL_LAST, 0);
    struct qd_job jobs[] = {
        {.deadline_ns = UINT64_MAX},
        {.deadline_ns = UINT64_MAX, .started = true, .level = QD_LEVEL_LAST},
    };
    qd_queue_put(&queue, &read);
    for (size_t i = 0; i < 2; i++)
        qd_queue_put(&queue, &jobs[i]);
    for (size_t i = 0; i < 2; i++) {
        cr_assert_eq(qd_queue_first(&queue), &jobs[i]);
        cr_assert_eq(qd_queue_take(&queue, 1), &jobs[i]);
    }
    cr_assert_eq(qd_queue_take(&queue, 1), &read);
    cr_assert_null(qd_queue_first(&queue));
}

Test(queue, who_steps_back_for_whom)
{
    struct qd_queue queue = {.count = 0};
    struct qd_job waiting = taken_job(QD_LEVEL_DEFAULT, 0);
    struct qd_job job = taken_job(0, 0);
    for (job.level = 0; job.level < QD_LEVEL_COUNT; job.level++)
        cr_assert(qd_queue_admits(&queue, &job));
    qd_queue_put(&queue, &waiting);
    for (job.level = 0; job.level < QD_LEVEL_COUNT; job.level++)
        cr_assert_eq(qd_queue_admits(&queue, &job), job.level <= QD_LEVEL_DEFAULT);
    qd_queue_remove(&queue, &waiting);
    waiting = taken_job(QD_LEVEL_UNREAD, 0);
    qd_queue_put(&queue, &waiting);
    for (job.level = 0; job.level < QD_LEVEL_COUNT; job.level++)
        cr_assert_eq(qd_queue_admits(&queue, &job), job.level <= QD_LEVEL_DEFAULT);
}

/* ---- Long jobs of one level --------------------------------------------------------------- */

#define MS QD_NS_PER_MS

/* Gives the next job a time slice and returns it. Removes the job from the queue if it ends then.
 * Threads of `busy` - 1 other processes share the CPU. */
static struct qd_job *give_busy_slice(struct qd_queue *queue, uint64_t *now_ns, unsigned busy)
{
    struct qd_job *job = qd_queue_take(queue, *now_ns);
    *now_ns += QD_QUANTUM_NS;
    job->had_ns += QD_QUANTUM_NS;
    job->run_ns += QD_QUANTUM_NS / busy;
    job->phase.ahead_ns -= job->phase.ahead_ns < MS ? job->phase.ahead_ns : MS;
    if (job->phase.ahead_ns > 0)
        qd_queue_put(queue, job);
    return job;
}

static struct qd_job *give_slice(struct qd_queue *queue, uint64_t *now_ns)
{
    return give_busy_slice(queue, now_ns, 1);
}

/* Makes jobs that have lined up, the first one first, and take so many ms each. */
static void line_up(struct qd_queue *queue, struct qd_job *jobs, size_t count, unsigned level,
                    const uint64_t *ms)
{
    for (size_t i = 0; i < count; i++) {
        jobs[i] = taken_job(level, ms[i] * MS);
        jobs[i].started_ns = 1 + i;
        qd_queue_put(queue, &jobs[i]);
    }
}

/* Runs three equal jobs. Each takes so many slices instead of the 12 of its estimate. */
static void run_equal_jobs(unsigned slices, unsigned busy)
{
    struct qd_queue queue = {.count = 0};
    struct qd_job jobs[3];
    uint64_t now_ns = 10;
    line_up(&queue, jobs, 3, QD_LEVEL_DEFAULT, (const uint64_t[]){12, 12, 12});
    for (size_t i = 0; i < 3; i++)
        for (unsigned ms = 0; ms < slices; ms++) {
            jobs[i].phase.ahead_ns = (ms + 1 < slices ? 12 : 1) * MS;
            cr_assert_eq(give_busy_slice(&queue, &now_ns, busy), &jobs[i], "job %zu at %u ms", i,
                         ms);
        }
}

/* Also if none of them ends when it should. */
Test(queue, equal_jobs_run_one_after_the_other)
{
    run_equal_jobs(30, 1);
}

Test(queue, equal_jobs_run_one_after_the_other_on_a_busy_cpu)
{
    run_equal_jobs(150, 5);
}

/* They have equal shares of the time before. */
Test(queue, no_job_waits_for_the_end_of_a_longer_one)
{
    struct qd_queue queue = {.count = 0};
    struct qd_job jobs[9];
    uint64_t now_ns = 500 * MS;
    line_up(&queue, jobs, 9, QD_LEVEL_DEFAULT,
            (const uint64_t[]){500, 500, 500, 500, 500, 500, 500, 500, 5});
    jobs[8].started_ns = now_ns;
    unsigned waited_ms = 0;
    while (give_slice(&queue, &now_ns) != &jobs[8])
        waited_ms++;
    cr_assert_leq(waited_ms, 9 * 5, "%u ms", waited_ms);
    for (unsigned ms = 1; ms < 5; ms++)
        cr_assert_eq(give_slice(&queue, &now_ns), &jobs[8], "nobody overtakes it again");
}

/* As a job is whose shapes are new. */
Test(queue, who_is_longer_than_it_seemed_has_no_advantage)
{
    struct qd_queue queue = {.count = 0};
    struct qd_job jobs[2];
    uint64_t now_ns = 10;
    line_up(&queue, jobs, 2, QD_LEVEL_DEFAULT, (const uint64_t[]){2, 8});
    cr_assert_eq(give_slice(&queue, &now_ns), &jobs[0]);
    qd_queue_remove(&queue, &jobs[0]);
    jobs[0].phase.ahead_ns = 80 * MS;
    qd_queue_put(&queue, &jobs[0]);
    for (unsigned ms = 0; ms < 8; ms++)
        cr_assert_eq(give_slice(&queue, &now_ns), &jobs[1]);
}

/* As a load is whose files are slow. The other one comes to its end meanwhile. */
Test(queue, who_takes_far_longer_than_its_estimate_shares)
{
    struct qd_queue queue = {.count = 0};
    struct qd_job jobs[2];
    uint64_t now_ns = 10;
    line_up(&queue, jobs, 2, QD_LEVEL_DEFAULT, (const uint64_t[]){2, 80});
    while (jobs[1].phase.ahead_ns > 0) {
        jobs[0].phase.ahead_ns = 2 * MS;
        give_slice(&queue, &now_ns);
    }
    cr_assert_leq(now_ns, 800 * MS, "%llu ms", (unsigned long long)(now_ns / MS));
}

/* A short job comes whenever one has ended. */
Test(queue, a_long_job_comes_to_its_end_beside_shorter_ones)
{
    struct qd_queue queue = {.count = 0};
    struct qd_job long_job, job;
    uint64_t now_ns = 10;
    line_up(&queue, &long_job, 1, QD_LEVEL_DEFAULT, (const uint64_t[]){80});
    line_up(&queue, &job, 1, QD_LEVEL_DEFAULT, (const uint64_t[]){10});
    while (long_job.phase.ahead_ns > 0) {
        if (give_slice(&queue, &now_ns) != &job || job.phase.ahead_ns > 0)
            continue;
        cr_assert_leq(now_ns - job.started_ns, 40 * MS, "the short one does not wait long");
        job = taken_job(QD_LEVEL_DEFAULT, 10 * MS);
        job.started_ns = now_ns;
        qd_queue_put(&queue, &job);
    }
    cr_assert_leq(now_ns, 240 * MS, "%llu ms", (unsigned long long)(now_ns / MS));
}

/* The short one is of a lower priority. */
Test(queue, a_short_job_of_another_level_does_not_matter)
{
    struct qd_queue queue = {.count = 0};
    struct qd_job jobs[2], last;
    uint64_t now_ns = 10;
    line_up(&queue, jobs, 2, QD_LEVEL_DEFAULT, (const uint64_t[]){8, 8});
    line_up(&queue, &last, 1, QD_LEVEL_LAST, (const uint64_t[]){1});
    for (unsigned ms = 0; ms < 8; ms++)
        cr_assert_eq(give_slice(&queue, &now_ns), &jobs[0]);
}

Test(queue, who_is_interrupted_by_a_new_job_goes_on_after_it)
{
    struct qd_queue queue = {.count = 0};
    struct qd_job jobs[2];
    struct qd_job new = {.deadline_ns = UINT64_MAX};
    uint64_t now_ns = 10;
    line_up(&queue, jobs, 2, QD_LEVEL_DEFAULT, (const uint64_t[]){8, 8});
    cr_assert_eq(give_slice(&queue, &now_ns), &jobs[0]);
    qd_queue_put(&queue, &new);
    cr_assert_eq(qd_queue_take(&queue, now_ns), &new);
    cr_assert_eq(give_slice(&queue, &now_ns), &jobs[0]);
    cr_assert_eq(give_slice(&queue, &now_ns), &jobs[0]);
}

/* A job that is being read gives way as a new one does, and comes before those that are read. */
static void read_in_slices(struct qd_queue *queue, struct qd_job *job, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        qd_queue_put(queue, job);
        cr_assert_eq(qd_queue_take(queue, 20), job);
        cr_assert(qd_queue_admits(queue, job));
    }
    job->started_ns = 20;
}

Test(queue, who_was_read_lines_up_however_often_it_gave_way)
{
    for (unsigned slices = 1; slices < 4; slices++) {
        struct qd_queue queue = {.count = 0};
        struct qd_job jobs[2];
        struct qd_job new = {.deadline_ns = UINT64_MAX};
        line_up(&queue, jobs, 2, QD_LEVEL_DEFAULT, (const uint64_t[]){8, 8});
        read_in_slices(&queue, &new, slices);
        new.level = QD_LEVEL_DEFAULT;
        cr_assert(qd_queue_admits(&queue, &new), "it is short");
        new.phase.ahead_ns = 8 * MS;
        cr_assert_not(qd_queue_admits(&queue, &new), "%u slices", slices);
        qd_queue_put(&queue, &new);
        for (size_t i = 0; i < 2; i++)
            cr_assert_eq(qd_queue_take(&queue, 30), &jobs[i]);
        cr_assert_eq(qd_queue_take(&queue, 30), &new);
        cr_assert(qd_queue_admits(&queue, &new), "it has lined up");
    }
}

/* The loop has read it. */
Test(queue, who_was_read_by_the_loop_lines_up)
{
    struct qd_queue queue = {.count = 0};
    struct qd_job job;
    struct qd_job new = {.started = true,
                         .started_ns = 20,
                         .level = QD_LEVEL_DEFAULT,
                         .deadline_ns = UINT64_MAX,
                         .phase.ahead_ns = MS};
    line_up(&queue, &job, 1, QD_LEVEL_DEFAULT, (const uint64_t[]){8});
    qd_queue_put(&queue, &new);
    cr_assert_eq(qd_queue_take(&queue, 30), &new, "it is short");
    new.taken = false;
    new.phase.ahead_ns = 8 * MS;
    qd_queue_put(&queue, &new);
    cr_assert_eq(qd_queue_take(&queue, 30), &job);
    cr_assert_eq(qd_queue_take(&queue, 30), &new);
}

Test(queue, who_finds_nobody_in_line_goes_on)
{
    struct qd_queue queue = {.count = 0};
    struct qd_job job = taken_job(QD_LEVEL_DEFAULT, 8 * MS);
    cr_assert(qd_queue_admits(&queue, &job));
}

/* It comes first when its level is looked at: at once, or after 16 takes. */
Test(queue, whose_time_is_over_is_noticed_soon)
{
    struct qd_queue queue = {.count = 0};
    struct qd_job jobs[4], last;
    uint64_t now_ns = 10;
    line_up(&queue, jobs, 4, QD_LEVEL_DEFAULT, (const uint64_t[]){50, 50, 50, 50});
    line_up(&queue, &last, 1, QD_LEVEL_LAST, (const uint64_t[]){50});
    jobs[2].wait_until_ns = 6 * MS;
    jobs[3].deadline_ns = 9 * MS;
    last.deadline_ns = 18 * MS;
    while (now_ns < 6 * MS)
        cr_assert_eq(give_slice(&queue, &now_ns), &jobs[0]);
    cr_assert_eq(qd_queue_take(&queue, now_ns), &jobs[2]);
    while (now_ns < 9 * MS)
        cr_assert_eq(give_slice(&queue, &now_ns), &jobs[0]);
    cr_assert_eq(qd_queue_take(&queue, now_ns), &jobs[3]);
    while (queue.takes < 2 * QD_PRECAUTION_SHARE - 1)
        give_slice(&queue, &now_ns);
    cr_assert_eq(qd_queue_take(&queue, now_ns), &last);
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
