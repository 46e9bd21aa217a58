#define _GNU_SOURCE
#include "tests/bench/measure/constants.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "server/base/clock.h"
#include "server/work/scheduler/scheduler.h"
#include "tests/bench/measure/buffer.h"

enum {
    UNITS = 20000,
    WALKS = 51,
    YIELDS = 1001,
    GAPS = 64,
    GAPS_MS = 300,
    GAP_NS_MIN = 100000,  /* a shorter pause is an interrupt */
    L2_BYTES = 512 << 10, /* if the system does not tell */
    L2_BYTES_MAX = 4 << 20,
    LINE_BYTES = 64,
};

static int compare(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static uint64_t median(uint64_t *values, size_t count)
{
    qsort(values, count, sizeof(*values), compare);
    return count > 0 ? values[count / 2] : 0;
}

/* ---- Batches ------------------------------------------------------------------------------ */

/* A job whose units do nothing, and are told to be as long as a batch. */
struct empty {
    struct qd_job job; /* first, so that a pointer to it is one to the struct */
    struct qd_worker_slot slot;
    struct qd_loop *loop;
    uint64_t ns;
};

static void run(struct qd_job *job, void *workspace, size_t begin, size_t end)
{
    (void)job;
    (void)workspace;
    (void)begin;
    (void)end;
}

static bool then(struct qd_job *job)
{
    struct empty *empty = (struct empty *)job;
    empty->ns = qd_clock_ns() - empty->ns;
    return false;
}

static bool start(struct qd_job *job)
{
    struct empty *empty = (struct empty *)job;
    job->phase = (struct qd_phase){.run = run,
                                   .then = then,
                                   .unit_count = UNITS,
                                   .unit_cost_ns = QD_BATCH_NS,
                                   .slots = &empty->slot,
                                   .slot_count = 1};
    empty->ns = qd_clock_ns();
    return true;
}

static void on_running(struct qd_job *job, bool running)
{
    (void)job;
    (void)running;
}

static void done(struct qd_job *job)
{
    qd_loop_stop(((struct empty *)job)->loop);
}

static uint64_t measure_check(void)
{
    static const struct qd_job_code code = {.start = start, .on_running = on_running, .done = done};
    const struct qd_scheduler_settings settings = {.thread_count = 1, .queue_max = 1};
    struct empty empty = {.loop = qd_loop_create()};
    struct qd_scheduler *scheduler = qd_scheduler_create(&settings);
    if (!empty.loop || !scheduler ||
        !qd_scheduler_submit(scheduler, empty.loop, &empty.job, &code, 0, UINT64_MAX))
        bench_fail("no memory for a scheduler");
    qd_loop_run(empty.loop);
    qd_scheduler_destroy(scheduler);
    qd_loop_destroy(empty.loop);
    return empty.ns / UNITS;
}

/* ---- Caches ------------------------------------------------------------------------------- */

static uint64_t walk_ns(uint8_t *bytes, size_t count)
{
    const uint64_t began_ns = qd_clock_ns();
    for (size_t i = 0; i < count; i += LINE_BYTES)
        *(volatile uint8_t *)&bytes[i] += 1;
    return qd_clock_ns() - began_ns;
}

static uint64_t measure_refill(void)
{
    const long told = sysconf(_SC_LEVEL2_CACHE_SIZE);
    const size_t l2 = told <= 0 ? L2_BYTES : told < L2_BYTES_MAX ? (size_t)told : L2_BYTES_MAX;
    struct bench_buffer buffer = {0};
    uint64_t warm[WALKS], cold[WALKS];
    bench_buffer_reserve(&buffer, 3 * l2);
    for (size_t i = 0; i < WALKS; i++) { /* half of the cache: other data stay in the other half */
        walk_ns(buffer.data, l2 / 2);
        warm[i] = walk_ns(buffer.data, l2 / 2);
        walk_ns(buffer.data + l2, 2 * l2);
        cold[i] = walk_ns(buffer.data, l2 / 2);
    }
    free(buffer.data);
    const uint64_t warm_ns = median(warm, WALKS), cold_ns = median(cold, WALKS);
    return cold_ns > warm_ns ? cold_ns - warm_ns : 0;
}

/* ---- The CPU ------------------------------------------------------------------------------ */

static atomic_bool is_over;

static void *compute(void *unused)
{
    (void)unused;
    while (!atomic_load(&is_over)) {
    }
    return NULL;
}

/* Notes how long the calling thread loses its CPU to a thread that computes on the same one. */
static uint64_t measure_gap(void)
{
    cpu_set_t allowed, one;
    pthread_t other;
    uint64_t gaps[GAPS];
    size_t count = 0;
    sched_getaffinity(0, sizeof(allowed), &allowed);
    CPU_ZERO(&one);
    CPU_SET((size_t)sched_getcpu(), &one);
    sched_setaffinity(0, sizeof(one), &one);
    atomic_store(&is_over, false);
    if (pthread_create(&other, NULL, compute, NULL) != 0)
        bench_fail("no memory for a thread");
    uint64_t last_ns = qd_clock_ns();
    const uint64_t until_ns = last_ns + GAPS_MS * QD_NS_PER_MS;
    while (last_ns < until_ns && count < GAPS) {
        const uint64_t now_ns = qd_clock_ns();
        if (now_ns - last_ns > GAP_NS_MIN)
            gaps[count++] = now_ns - last_ns;
        last_ns = now_ns;
    }
    atomic_store(&is_over, true);
    pthread_join(other, NULL);
    sched_setaffinity(0, sizeof(allowed), &allowed);
    return median(gaps, count);
}

static uint64_t measure_yield(void)
{
    uint64_t times[YIELDS];
    for (size_t i = 0; i < YIELDS; i++) {
        const uint64_t began_ns = qd_clock_ns();
        sched_yield();
        times[i] = qd_clock_ns() - began_ns;
    }
    return median(times, YIELDS);
}

/* The first version of sched_setattr(2)'s struct. */
struct attributes {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime_ns, deadline_ns, period_ns;
};

/* Asks for a slice of 1 ns, reads what Linux made of it, and gives the slice back. */
static uint64_t measure_slice(void)
{
    struct attributes own = {.size = sizeof(own)}, found;
    if (syscall(SYS_sched_getattr, 0, &own, sizeof(own), 0) != 0)
        return 0;
    own.runtime_ns = 1;
    if (syscall(SYS_sched_setattr, 0, &own, 0) != 0)
        return 0;
    syscall(SYS_sched_getattr, 0, &found, sizeof(found), 0);
    own.runtime_ns = 0;
    syscall(SYS_sched_setattr, 0, &own, 0);
    return found.runtime_ns > 1 ? found.runtime_ns : 0;
}

struct bench_constants bench_constants_measure(void)
{
    return (struct bench_constants){.check_ns = measure_check(),
                                    .refill_ns = measure_refill(),
                                    .yield_ns = measure_yield(),
                                    .gap_ns = measure_gap(),
                                    .slice_ns = measure_slice()};
}
