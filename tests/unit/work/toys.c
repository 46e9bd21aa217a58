#include "tests/unit/work/toys.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/base/clock.h"

static void spin(uint64_t ns)
{
    uint64_t until = qd_clock_ns() + ns;
    while (qd_clock_ns() < until) {
    }
}

bool toy_wait_until(bool (*is_true)(struct toy *toy), struct toy *toy)
{
    for (int i = 0; i < 10000 && !is_true(toy); i++)
        usleep(1000);
    return is_true(toy);
}

static bool is_open(struct toy *toy)
{
    return atomic_load(&toy->gate);
}

static void note_thread(struct toy *toy)
{
    unsigned long self = (unsigned long)pthread_self();
    for (size_t i = 0; i < THREAD_COUNT_MAX; i++) {
        unsigned long none = 0;
        if (atomic_compare_exchange_strong(&toy->threads[i], &none, self) || none == self)
            return;
    }
    cr_assert_fail("more threads than there are");
}

size_t toy_thread_count(const struct toy *toy)
{
    size_t count = 0;
    while (count < THREAD_COUNT_MAX && atomic_load(&toy->threads[count]) != 0)
        count++;
    return count;
}

static void run(struct qd_job *job, void *workspace, size_t begin, size_t end)
{
    struct toy *toy = (struct toy *)job;
    atomic_uint *taken = workspace;
    cr_assert_eq(atomic_fetch_add(taken, 1), 0, "two workers in one slot");
    cr_assert(toy->is_running);
    cr_assert_lt(begin, end);
    cr_assert_leq(end, toy->units[toy->phase - 1]);
    note_thread(toy);
    atomic_fetch_add(&toy->run_count, 1);
    atomic_fetch_add(&toy->running, 1);
    for (size_t i = begin; i < end; i++) {
        spin(toy->unit_ns);
        if (toy->on_unit != NULL)
            toy->on_unit(toy);
        atomic_fetch_add(&toy->ran[toy->phase - 1][i], 1);
    }
    atomic_fetch_sub(&toy->running, 1);
    atomic_fetch_sub(taken, 1);
}

static bool then(struct qd_job *job);

static void set_phase(struct toy *toy)
{
    toy->job.phase = (struct qd_phase){
        .run = run,
        .then = then,
        .unit_count = toy->units[toy->phase],
        .unit_cost_ns = toy->claimed_ns != 0 ? toy->claimed_ns : toy->unit_ns,
        .units_share = toy->units_share,
        .ahead_ns = toy->ahead_ns,
        .slots = toy->slots,
        .slot_count = toy->slot_count,
    };
    if (++toy->phase == toy->expire_at_phase)
        toy->job.deadline_ns = qd_clock_ns() + 5 * QD_NS_PER_MS;
}

void toy_assert_units(const struct toy *toy, size_t phase_count)
{
    for (size_t phase = 0; phase < phase_count; phase++)
        for (size_t i = 0; i < toy->units[phase]; i++)
            cr_assert_eq(atomic_load(&toy->ran[phase][i]), 1, "phase %zu, unit %zu", phase, i);
}

static bool then(struct qd_job *job)
{
    struct toy *toy = (struct toy *)job;
    cr_assert_eq(atomic_load(&toy->running), 0);
    toy_assert_units(toy, toy->phase);
    if (toy->phase < toy->phase_count) {
        set_phase(toy);
        return true;
    }
    toy->finished++;
    if (toy->told_ns != 0)
        job->ended_ns = toy->since_ns + toy->told_ns;
    return false;
}

static bool start(struct qd_job *job)
{
    struct toy *toy = (struct toy *)job;
    atomic_store(&toy->starter, (unsigned long)pthread_self());
    toy->started_at = atomic_fetch_add(&toy->desk->starts, 1) + 1;
    spin(toy->start_ns);
    if (toy->gated)
        cr_assert(toy_wait_until(is_open, toy));
    if (toy->level != 0)
        job->level = toy->level;
    if (toy->wait_ns != 0)
        job->wait_until_ns = qd_clock_ns() + toy->wait_ns;
    job->may_run_inline = job->may_run_inline && !toy->takes_back;
    if (toy->phase_count > 0)
        set_phase(toy);
    return toy->phase_count > 0;
}

static void on_running(struct qd_job *job, bool running)
{
    struct toy *toy = (struct toy *)job;
    cr_assert(toy->is_running != running || (!running && toy->phase == 1),
              "or it is left, or steps back, right after its start");
    toy->is_running = running;
    toy->switches++;
}

static void expire(struct qd_job *job)
{
    struct toy *toy = (struct toy *)job;
    cr_assert_eq(atomic_load(&toy->running), 0);
    toy->expired = true;
}

static void cancel(struct qd_job *job)
{
    ((struct toy *)job)->cancelled = true;
}

static void done(struct qd_job *job)
{
    struct toy *toy = (struct toy *)job;
    cr_assert_eq(toy->done_at, 0, "done twice");
    cr_assert_eq(atomic_load(&toy->running), 0);
    toy->done_at = ++toy->desk->dones;
    if (toy->on_done != NULL)
        toy->on_done(toy);
    else if (--toy->desk->left == 0)
        qd_loop_stop(toy->desk->loop);
}

static const struct qd_job_code code = {start, on_running, expire, cancel, done, NULL};

struct desk *desk_create_with(const struct qd_scheduler_settings *settings)
{
    struct desk *desk = calloc(1, sizeof(*desk));
    desk->loop = qd_loop_create();
    desk->scheduler = qd_scheduler_create(settings);
    return desk;
}

struct desk *desk_create(unsigned threads, size_t queue_max)
{
    return desk_create_with(&(struct qd_scheduler_settings){
        .thread_count = threads, .queue_max = queue_max, .loop_computes = true});
}

void desk_destroy(struct desk *desk)
{
    qd_scheduler_destroy(desk->scheduler);
    qd_loop_destroy(desk->loop);
    for (size_t i = 0; i < JOB_COUNT_MAX; i++)
        for (size_t phase = 0; phase < PHASE_COUNT_MAX; phase++)
            free(desk->toys[i].ran[phase]);
    free(desk);
}

bool desk_submit_toy(struct desk *desk, struct toy *toy, size_t units, uint64_t unit_ns)
{
    toy->desk = desk;
    toy->unit_ns = unit_ns;
    if (toy->phase_count == 0 && units > 0) {
        toy->phase_count = 1;
        toy->units[0] = units;
    }
    if (toy->slot_count == 0)
        toy->slot_count = 2;
    memset(toy->slots, 0xff, sizeof(toy->slots)); /* so that use of later slots fails */
    for (size_t phase = 0; phase < toy->phase_count; phase++)
        toy->ran[phase] = calloc(toy->units[phase] + 1, sizeof(**toy->ran));
    for (size_t i = 0; i < SLOT_COUNT_MAX; i++)
        toy->slots[i].workspace = &toy->slot_taken[i];
    toy->since_ns = qd_clock_ns();
    bool taken = qd_scheduler_submit(
        desk->scheduler, desk->loop, &toy->job, &code, toy->may_run_inline ? toy->since_ns : 0,
        toy->submit_deadline_ns == 0 ? UINT64_MAX : toy->submit_deadline_ns);
    desk->left += taken;
    return taken;
}

bool desk_submit(struct desk *desk, size_t index, size_t units, uint64_t unit_ns)
{
    return desk_submit_toy(desk, &desk->toys[index], units, unit_ns);
}

static bool has_started(struct toy *toy)
{
    return atomic_load(&toy->desk->starts) > 0;
}

void desk_hold_worker(struct desk *desk)
{
    desk->toys[0].gated = true;
    cr_assert(desk_submit(desk, 0, 0, 0));
    cr_assert(toy_wait_until(has_started, &desk->toys[0]));
}

void desk_let_worker_go(struct desk *desk)
{
    atomic_store(&desk->toys[0].gate, true);
}

void toy_assert_whole(const struct toy *toy)
{
    cr_assert_gt(toy->done_at, 0);
    cr_assert_not(toy->cancelled);
    cr_assert_not(toy->expired);
    cr_assert_eq(toy->finished, toy->phase_count > 0);
    toy_assert_units(toy, toy->phase_count);
}
