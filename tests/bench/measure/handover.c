#include "tests/bench/measure/handover.h"

#include <stdlib.h>

#include "server/base/clock.h"
#include "server/work/scheduler/scheduler.h"
#include "tests/bench/measure/buffer.h"

enum { TRIALS = 101, PAUSE_MS = 1, UNITS = 20 /* of a phase */ };

/* One job of two phases after another, with pauses in which the workers fall asleep. */
struct trials {
    struct qd_job job;
    struct qd_worker_slot *slots;
    size_t slot_count;
    uint64_t unit_ns[2]; /* of each phase */
    struct qd_loop *loop;
    struct qd_scheduler *scheduler;
    struct qd_handle *pause;
    uint64_t submitted_ns;
    uint64_t started_ns;
    uint64_t ended_ns;
    _Atomic(void *) first;      /* the workspace of the worker that ran the first units */
    _Atomic uint64_t joined_ns; /* when a second worker began; 0: not yet */
    bool again;                 /* this is the second phase */
    uint64_t took_ns[TRIALS];
    uint64_t again_ns[TRIALS];
    uint64_t wake_ns[TRIALS];
    uint64_t give_ns[TRIALS];
    uint64_t trip_ns[TRIALS];
    size_t count;
};

static void run(struct qd_job *job, void *workspace, size_t begin, size_t end)
{
    struct trials *trials = (struct trials *)job;
    const uint64_t now = qd_clock_ns();
    uint64_t never = 0;
    void *nobody = NULL;
    if (!atomic_compare_exchange_strong(&trials->first, &nobody, workspace) && nobody != workspace)
        atomic_compare_exchange_strong(&trials->joined_ns, &never, now);
    while (qd_clock_ns() < now + (end - begin) * trials->unit_ns[trials->again]) {
    }
}

static bool then(struct qd_job *job);

static void begin_phase(struct trials *trials, bool again)
{
    trials->again = again;
    trials->job.phase = (struct qd_phase){.run = run,
                                          .then = then,
                                          .unit_count = UNITS,
                                          .unit_cost_ns = trials->unit_ns[again],
                                          .slots = trials->slots,
                                          .slot_count = trials->slot_count};
    atomic_store(&trials->first, NULL);
    atomic_store(&trials->joined_ns, 0);
    trials->started_ns = qd_clock_ns();
}

static bool then(struct qd_job *job)
{
    struct trials *trials = (struct trials *)job;
    const uint64_t joined_ns = atomic_load(&trials->joined_ns);
    const size_t i = trials->count;
    trials->ended_ns = qd_clock_ns();
    (trials->again ? trials->again_ns : trials->took_ns)[i] = trials->ended_ns - trials->started_ns;
    if (trials->again)
        return false;
    trials->wake_ns[i] = joined_ns > 0 ? joined_ns - trials->started_ns : 0;
    begin_phase(trials, true);
    return true;
}

static bool start(struct qd_job *job)
{
    struct trials *trials = (struct trials *)job;
    for (size_t i = 0; i < trials->slot_count; i++)
        trials->slots[i].workspace = &trials->slots[i]; /* only identifies the worker */
    job->deadline_ns = UINT64_MAX;
    trials->trip_ns[trials->count] = qd_clock_ns() - trials->submitted_ns;
    begin_phase(trials, false);
    return true;
}

static void on_running(struct qd_job *job, bool running)
{
    (void)job;
    (void)running;
}

static void never(struct qd_job *job)
{
    (void)job;
    bench_fail("a job expired, or was cancelled");
}

static void done(struct qd_job *job)
{
    struct trials *trials = (struct trials *)job;
    trials->trip_ns[trials->count++] += qd_clock_ns() - trials->ended_ns;
    if (trials->count < TRIALS)
        qd_timer_start(trials->pause, PAUSE_MS, 0);
    else
        qd_loop_stop(trials->loop);
}

static void submit(void *context)
{
    static const struct qd_job_code code = {start, on_running, never, never, done, NULL};
    struct trials *trials = context;
    trials->submitted_ns = qd_clock_ns();
    if (!qd_scheduler_submit(trials->scheduler, trials->loop, &trials->job, &code, 0, UINT64_MAX))
        bench_fail("the scheduler has no room for a job");
    trials->give_ns[trials->count] = qd_clock_ns() - trials->submitted_ns;
}

static int compare(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static uint64_t median(uint64_t *values)
{
    qsort(values, TRIALS, sizeof(*values), compare);
    return values[TRIALS / 2];
}

static void run_trials(struct trials *trials, size_t slot_count)
{
    trials->slot_count = slot_count;
    trials->count = 0;
    qd_timer_start(trials->pause, PAUSE_MS, 0);
    qd_loop_run(trials->loop);
}

struct bench_handover bench_handover_measure(unsigned thread_count, uint64_t work_ns,
                                             uint64_t again_ns)
{
    struct bench_handover found;
    const struct qd_scheduler_settings settings = {.thread_count = thread_count, .queue_max = 1};
    struct trials *trials = calloc(1, sizeof(*trials));
    if (!trials || !(trials->slots = calloc(thread_count, sizeof(*trials->slots))) ||
        !(trials->loop = qd_loop_create()) ||
        !(trials->scheduler = qd_scheduler_create(&settings)) ||
        !(trials->pause = qd_loop_timer(trials->loop, submit, trials)))
        bench_fail("no memory for a scheduler");
    trials->unit_ns[0] = work_ns / UNITS;
    trials->unit_ns[1] = again_ns / UNITS;
    run_trials(trials, 1);
    found.alone_ns = median(trials->took_ns);
    found.again_alone_ns = median(trials->again_ns);
    found.give_ns = median(trials->give_ns);
    found.trip_ns = median(trials->trip_ns);
    run_trials(trials, qd_scheduler_shares(UNITS, trials->unit_ns[0], thread_count));
    found.all_ns = median(trials->took_ns);
    found.wake_ns = median(trials->wake_ns);
    found.again_ns = median(trials->again_ns);
    qd_handle_destroy(trials->pause);
    qd_scheduler_destroy(trials->scheduler);
    qd_loop_destroy(trials->loop);
    free(trials->slots);
    free(trials);
    return found;
}
