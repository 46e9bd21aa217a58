#define _GNU_SOURCE
#include "server/work/scheduler/scheduler.h"

#include <assert.h>
#include <stdlib.h>

#include "server/base/clock.h"
#include "server/base/lock.h"
#include "server/work/scheduler/cpu_yield.h"
#include "server/work/scheduler/joining.h"
#include "server/work/scheduler/pool.h"
#include "server/work/scheduler/queue.h"
#include "server/work/scheduler/straggler.h"

enum {
    NOBODY = -1,
    INTERVAL_JOBS = 8, /* over about how many jobs the mean interval is taken */
    CACHE_LINE_BYTES = 64,
};

/* A job is in the queue, on one or more workers, or on its way to its loop. Workers have slots of a
 * job that has a phase. While other workers may join, the job is in `open`. */
struct qd_scheduler {
    struct qd_queue queue;               /* under the lock, except for its counts */
    struct qd_straggler_backoff backoff; /* under the lock */
    atomic_bool abandoned;               /* every job ends without another unit */
    struct qd_pool *pool;
    size_t queue_max;
    size_t worker_count;
    bool loop_computes;

    /* Counts the events for which a watching worker looks. It has a cache line of its own, because
     * watching workers read it all the time. A thread that writes to the same line has to wait for
     * it each time. */
    char before_news[CACHE_LINE_BYTES];
    atomic_size_t news;
    char after_news[CACHE_LINE_BYTES];

    pthread_mutex_t lock; /* protects all below, and private non-atomic fields of jobs */
    struct qd_job_list open;
    bool ending;
    uint64_t interval_ns; /* mean time between the ends of jobs, without idle time */
    uint64_t last_end_ns; /* when the last job ended */
    uint64_t expected_ns; /* when a worker that was woken should have come by; 0: it has come */
    /* When the last phase was opened; 0 if no worker watched, or one has joined. */
    uint64_t opened_ns;
    struct qd_joining joining; /* may be read without the lock */
    size_t sharing;            /* jobs of which several workers may have computed a phase */
    size_t watching;           /* workers without a job that are awake, and notice new work */
    int idle;                  /* the worker that fell asleep last, or NOBODY */
    size_t idle_count;
    int next_idle[]; /* for each sleeping worker, the one that fell asleep before it */
};

/* What one thread, a worker or the loop, computes of a job without a break. The thread takes a slot
 * of the job's phase and computes units in batches, until none is left or it gives way. */
enum slice_kind {
    /* A worker that took the job from the queue. It computes any phase, and gives way when
     * QD_QUANTUM_NS are over and another job waits. */
    SLICE_WORKER,
    /* A worker that joined a phase that another thread began. It gives way as soon as a job waits
     * in the queue. */
    SLICE_HELPER,
    /* The loop, while the job is submitted. No other thread knows the job, and the loop takes no
     * lock, because the thread that holds the lock may have lost its CPU. The loop computes phases
     * as long as all of them together take QD_INLINE_NS at most, by their estimates. If those were
     * far too low, it gives way when QD_QUANTUM_NS are over. */
    SLICE_INLINE,
    /* The loop, instead of falling asleep. It computes phases whose units take QD_BATCH_NS at most,
     * and gives way when it has something else to do, or QD_QUANTUM_NS are over. */
    SLICE_IDLE_LOOP,
};

struct slice {
    struct qd_job *job; /* NULL if there is none */
    struct qd_worker_slot *slot;
    enum slice_kind kind;
    uint64_t until_ns; /* not used for a helper */
    /* A worker: its CPU time when it took the job from the queue, or 0 in the job's first slice, in
     * which most jobs end. Reading this clock is a system call, at whose end Linux may give the CPU
     * to another thread while this one holds the lock. */
    uint64_t cpu_ns;
    uint64_t budget_ns;   /* inline: how much estimated work is still allowed */
    struct qd_loop *loop; /* the loop that computes; NULL for a worker */
};

/* How long this thread's loop has computed inline in this iteration, beyond QD_GIVING_NS for each
 * job. */
static _Thread_local uint64_t inline_ns_used;

/* ---- A job and its phase ------------------------------------------------------------------ */

/* Returns whether the job has to end without another unit. */
static bool is_stopped(const struct qd_scheduler *scheduler, const struct qd_job *job)
{
    return atomic_load(&scheduler->abandoned) || atomic_load(&job->stopped);
}

/* Stays true from one phase to the next. */
static void set_running(struct qd_job *job, bool running)
{
    if (job->running != running && job->code->on_running != NULL)
        job->code->on_running(job, running);
    job->running = running;
}

static size_t units_left(const struct qd_job *job)
{
    const size_t next = atomic_load(&job->next_unit);
    return next < job->phase.unit_count ? job->phase.unit_count - next : 0;
}

/* Prevents further units of the job from starting. If any were left, `expire` follows. */
static void expire(struct qd_job *job)
{
    const size_t count = job->phase.unit_count;
    if (atomic_exchange(&job->next_unit, count) < count)
        atomic_store(&job->expired, true);
}

/* Prepares a new phase of the job: all its slots are free, and no unit has run. */
static void free_slots(struct qd_job *job)
{
    struct qd_phase *phase = &job->phase;
    assert(phase->slot_count > 0);
    for (size_t i = 0; i + 1 < phase->slot_count; i++)
        phase->slots[i].next = &phase->slots[i + 1];
    phase->slots[phase->slot_count - 1].next = NULL;
    job->free_slots = phase->slots;
    atomic_store(&job->next_unit, 0);
}

/* Takes a slot, of which one must be free. Under the lock if other threads may know the job. */
static void take_slot(struct slice *slice)
{
    struct qd_job *job = slice->job;
    slice->slot = job->free_slots;
    job->free_slots = slice->slot->next;
    job->worker_count++;
    set_running(job, true);
}

/* Notes how long the other threads have waited for this helper, if it is the last to leave. */
static void note_leaving(struct qd_scheduler *scheduler, const struct slice *slice)
{
    struct qd_job *job = slice->job;
    const uint64_t now_ns = qd_clock_ns();
    const bool last = job->worker_count == 0;
    if (last && slice->kind == SLICE_HELPER && job->idle_since_ns != 0)
        qd_straggler_note(&scheduler->backoff, now_ns - job->idle_since_ns, job->phase.unit_cost_ns,
                          now_ns);
    job->idle_since_ns = !last && units_left(job) == 0 ? now_ns : 0;
}

/* Gives the slot back. Under the lock if other threads may know the job. */
static void leave_slot(struct qd_scheduler *scheduler, struct slice *slice)
{
    struct qd_job *job = slice->job;
    slice->slot->next = job->free_slots;
    job->free_slots = slice->slot;
    job->worker_count--;
    if (job->phase.slot_count > 1)
        note_leaving(scheduler, slice);
}

/* ---- Helpers ------------------------------------------------------------------------------ */

static size_t shares_of(size_t unit_count, uint64_t unit_cost_ns, size_t worker_count,
                        uint64_t share_ns)
{
    uint64_t cost_ns;
    if (__builtin_mul_overflow(unit_count, unit_cost_ns, &cost_ns))
        cost_ns = UINT64_MAX;
    size_t shares = unit_count < worker_count ? unit_count : worker_count;
    if (shares > 1 && cost_ns / shares < share_ns)
        shares = (size_t)(cost_ns / share_ns);
    return shares > 1 ? shares : 1;
}

size_t qd_scheduler_shares(size_t unit_count, uint64_t unit_cost_ns, size_t worker_count)
{
    return shares_of(unit_count, unit_cost_ns, worker_count, QD_HANDOVER_NS);
}

size_t qd_scheduler_awake_shares(size_t unit_count, uint64_t unit_cost_ns, size_t worker_count)
{
    return shares_of(unit_count, unit_cost_ns, worker_count, QD_JOIN_NS);
}

uint64_t qd_scheduler_shared_phase_ns(struct qd_scheduler *scheduler)
{
    return qd_joining_phase_ns(&scheduler->joining);
}

/* Returns whether the rest of the job's phase, or the phases ahead of it, are worth waking a
 * worker, if worker_count workers may compute them. Under the lock. */
static bool wants_help(const struct qd_scheduler *scheduler, const struct qd_job *job,
                       size_t worker_count)
{
    const size_t left = units_left(job);
    const uint64_t cost_ns = job->phase.unit_cost_ns;
    const uint64_t ahead_ns = job->phase.ahead_ns;
    const bool is_worth =
        qd_scheduler_shares(left, cost_ns, worker_count) > 1 ||
        qd_scheduler_shares(worker_count, ahead_ns / worker_count, worker_count) > 1;
    return left > 0 && is_worth &&
           qd_straggler_allows(&scheduler->backoff, left, cost_ns, qd_clock_ns());
}

/* Finds a phase that another worker may join, or returns NULL. Under the lock. A worker that is
 * awake joins even for one unit. Waking a worker pays only if enough units are left. A phase
 * without units left is skipped, because a worker that has just left it would rejoin at once. */
static struct qd_job *find_open(struct qd_scheduler *scheduler, bool awake)
{
    struct qd_job *job = atomic_load(&scheduler->abandoned) ? NULL : scheduler->open.head;
    while (job != NULL) {
        bool free = job->free_slots != NULL && !atomic_load(&job->stopped);
        size_t left = free ? units_left(job) : 0;
        if (left > 0 && (awake || wants_help(scheduler, job, 1 + scheduler->idle_count)))
            break;
        job = job->next;
    }
    return job;
}

/* Returns the worker to wake after the lock is released, or NOBODY. Under the lock. Workers are
 * woken one at a time, because each one that comes wakes the next. If a woken worker does not come
 * in time, because its CPU has something else to do, another one is woken. A watching worker comes
 * without being woken. */
static int choose(struct qd_scheduler *scheduler)
{
    int index = scheduler->idle;
    if (index == NOBODY || scheduler->watching > 0 ||
        (atomic_load(&scheduler->queue.count) == 0 && find_open(scheduler, false) == NULL))
        return NOBODY;
    uint64_t now_ns = qd_clock_ns();
    if (now_ns < scheduler->expected_ns)
        return NOBODY;
    scheduler->expected_ns = now_ns + 2 * QD_HANDOVER_NS;
    scheduler->idle = scheduler->next_idle[index];
    scheduler->idle_count--;
    return index;
}

/* Releases the lock, and wakes the worker that choose() has chosen. `computes`: the caller goes on
 * computing. */
static void unlock_and_wake(struct qd_scheduler *scheduler, bool computes)
{
    const int index = choose(scheduler);
    pthread_mutex_unlock(&scheduler->lock);
    if (index != NOBODY)
        (computes ? qd_pool_wake_elsewhere : qd_pool_wake)(scheduler->pool, (unsigned)index);
}

/* ---- A time slice ------------------------------------------------------------------------- */

static bool is_afforded(struct slice *slice)
{
    const struct qd_phase *phase = &slice->job->phase;
    uint64_t cost_ns;
    if (__builtin_mul_overflow(phase->unit_count, phase->unit_cost_ns, &cost_ns) ||
        cost_ns > slice->budget_ns)
        return false;
    slice->budget_ns -= cost_ns;
    return true;
}

/* Returns whether the slice may compute the job's phase, which has not begun, or a part of it. If
 * an inline slice may, subtracts the phase's cost from its budget. */
static bool suits(struct slice *slice)
{
    const struct qd_job *job = slice->job;
    switch (slice->kind) {
    case SLICE_INLINE:
        return job->may_run_inline && is_afforded(slice);
    case SLICE_IDLE_LOOP:
        return job->may_run_inline && job->phase.unit_cost_ns <= QD_BATCH_NS;
    case SLICE_WORKER:
    case SLICE_HELPER:
        break;
    }
    return true;
}

/* Returns whether the thread has to leave although units are left. */
static bool gives_way(const struct qd_scheduler *scheduler, const struct slice *slice)
{
    const bool others_wait = atomic_load(&scheduler->queue.count) > 0;
    switch (slice->kind) {
    case SLICE_HELPER:
        return others_wait;
    case SLICE_WORKER:
        return others_wait && qd_clock_ns() >= slice->until_ns;
    case SLICE_INLINE:
        break;
    case SLICE_IDLE_LOOP:
        if (qd_loop_is_ready(slice->loop))
            return true;
        break;
    }
    return qd_clock_ns() >= slice->until_ns;
}

/* Returns how many units to take at once. If several workers may compute the phase, the units
 * become fewer towards the end, so that all workers end at the same time. A worker that no helper
 * joins takes more of them at once if they share work, as the parts of a convolution share what it
 * makes of x. */
static size_t batch_units(const struct qd_scheduler *scheduler, const struct slice *slice)
{
    const struct qd_job *job = slice->job;
    const size_t slots = job->phase.slot_count;
    const size_t left = units_left(job);
    const bool helpers_come = slots > 1 && atomic_load(&scheduler->queue.count) == 0;
    const bool alone = slice->kind == SLICE_WORKER && job->phase.units_share && !helpers_come;
    const uint64_t in_time =
        (alone ? QD_SHARED_BATCH_NS : QD_BATCH_NS) / (job->phase.unit_cost_ns + 1);
    const size_t share = alone || slots == 1 ? left : left / (2 * slots);
    const size_t units = in_time < share ? (size_t)in_time : share;
    return units > 0 ? units : 1;
}

/* Computes units until none is left, the thread has to leave, or the job is stopped or past its
 * deadline. An inline job has just begun and is short, so its deadline is not checked. */
static void run_units(const struct qd_scheduler *scheduler, const struct slice *slice)
{
    struct qd_job *job = slice->job;
    const size_t count = job->phase.unit_count;
    while (!is_stopped(scheduler, job)) {
        if (slice->kind != SLICE_INLINE && qd_clock_ns() >= job->deadline_ns) {
            expire(job);
            break;
        }
        size_t units = batch_units(scheduler, slice);
        size_t begin = atomic_fetch_add(&job->next_unit, units);
        if (begin >= count)
            break;
        job->phase.run(job, slice->slot->workspace, begin,
                       units < count - begin ? begin + units : count);
        if (slice->loop == NULL)
            qd_cpu_yield();
        if (units_left(job) > 0 && gives_way(scheduler, slice))
            break;
    }
}

/* Lets other workers join the job's phase if it has more than one slot. Under the lock. */
static void show_open(struct qd_scheduler *scheduler, struct qd_job *job)
{
    if (job->phase.slot_count <= 1)
        return;
    scheduler->sharing += job->sharing ? 0 : 1;
    job->sharing = true;
    qd_job_list_append(&scheduler->open, job);
    scheduler->opened_ns = scheduler->watching > 0 ? qd_clock_ns() : 0;
    atomic_fetch_add(&scheduler->news, 1);
}

/* The job has no next phase soon. Workers that watch for one may fall asleep. Under the lock. */
static void stop_sharing(struct qd_scheduler *scheduler, struct qd_job *job)
{
    if (!job->sharing)
        return;
    job->sharing = false;
    if (--scheduler->sharing == 0)
        atomic_fetch_add(&scheduler->news, 1);
}

/* Puts the job back into the queue. Under the lock, by the only thread that has the job. */
static void step_back(struct qd_scheduler *scheduler, struct qd_job *job)
{
    stop_sharing(scheduler, job);
    if (job->code->on_running != NULL)
        job->code->on_running(job, false);
    job->running = false;
    qd_queue_put(&scheduler->queue, job);
    atomic_fetch_add(&scheduler->news, 1);
}

/* Ends the slice by putting its job back into the queue. Under the lock. */
static void give_back(struct qd_scheduler *scheduler, const struct slice *slice)
{
    if (slice->kind == SLICE_WORKER) {
        slice->job->had_ns += qd_clock_ns() - (slice->until_ns - QD_QUANTUM_NS);
        if (slice->cpu_ns > 0)
            slice->job->run_ns += qd_clock_thread_ns() - slice->cpu_ns;
    }
    step_back(scheduler, slice->job);
}

/* Opens a new phase of a job that only this thread has. Returns true if the thread has taken a
 * slot; other workers may then join. Returns false if the phase does not suit the time slice, or
 * other jobs come first. Unless the slice is inline, the job is back in the queue then. */
static bool open_phase(struct qd_scheduler *scheduler, struct slice *slice)
{
    struct qd_job *job = slice->job;
    free_slots(job);
    if (slice->kind == SLICE_INLINE) {
        const bool fits = suits(slice);
        if (fits)
            take_slot(slice);
        return fits;
    }
    const bool others_wait = atomic_load(&scheduler->queue.count) > 0;
    if (job->phase.slot_count == 1 && !others_wait && suits(slice)) {
        take_slot(slice); /* without the lock: no other thread has to know of this phase */
        return true;
    }
    pthread_mutex_lock(&scheduler->lock);
    const bool stays = is_stopped(scheduler, job) ||
                       (suits(slice) && (slice->loop != NULL || !gives_way(scheduler, slice)) &&
                        qd_queue_admits(&scheduler->queue, job));
    if (stays) {
        take_slot(slice);
        show_open(scheduler, job);
    } else {
        give_back(scheduler, slice);
    }
    unlock_and_wake(scheduler, true);
    return stays;
}

/* Leaves the phase. Returns true if only this thread has the job now, because all units are done or
 * no more may begin. Otherwise returns false. The thread must not use the job any more then, unless
 * the slice is inline. */
static bool leave_phase(struct qd_scheduler *scheduler, struct slice *slice)
{
    struct qd_job *job = slice->job;
    if (slice->kind == SLICE_INLINE) {
        leave_slot(scheduler, slice);
        return units_left(job) == 0;
    }
    if (job->phase.slot_count == 1 && units_left(job) == 0) {
        leave_slot(scheduler, slice);
        return true;
    }
    QD_LOCKED(&scheduler->lock);
    leave_slot(scheduler, slice);
    bool last = job->worker_count == 0;
    if (last && job->phase.slot_count > 1)
        qd_job_list_remove(&scheduler->open, job);
    bool goes_back = last && units_left(job) > 0 && !is_stopped(scheduler, job);
    if (goes_back)
        give_back(scheduler, slice);
    return last && !goes_back;
}

static bool is_cancelled(struct qd_scheduler *scheduler, struct qd_job *job)
{
    job->cancelled = is_stopped(scheduler, job);
    if (job->cancelled)
        set_running(job, false);
    return job->cancelled;
}

/* Returns whether the job's next step may begin. Calls `expire` if the job has expired. Only this
 * thread has the job. */
static bool may_go_on(struct qd_scheduler *scheduler, struct qd_job *job)
{
    if (is_cancelled(scheduler, job))
        return false;
    if (atomic_load(&job->expired)) {
        job->code->expire(job);
        return false;
    }
    return true;
}

/* Begins a new job, which only this thread has. Returns true if the job has its first phase, false
 * if it is over. */
static bool begin(struct qd_scheduler *scheduler, struct qd_job *job)
{
    if (job->started_ns >= job->deadline_ns)
        atomic_store(&job->expired, true);
    return may_go_on(scheduler, job) && job->code->start(job) && !is_cancelled(scheduler, job);
}

/* Updates the mean interval between the ends of jobs. Under the lock. Time without a job is left
 * out: the interval counts from this job's start, if that was after the last end. */
static void note_interval(struct qd_scheduler *scheduler, const struct qd_job *job)
{
    const uint64_t now_ns = qd_clock_ns();
    const uint64_t since_ns =
        job->started_ns > scheduler->last_end_ns ? job->started_ns : scheduler->last_end_ns;
    const uint64_t took_ns = job->started_ns == 0 ? 0 : now_ns - since_ns;
    scheduler->interval_ns += took_ns / INTERVAL_JOBS - scheduler->interval_ns / INTERVAL_JOBS;
    scheduler->last_end_ns = now_ns;
}

/* Posts the job to its loop, unless the caller is that loop. */
static void end_job(struct qd_scheduler *scheduler, const struct slice *slice)
{
    if (slice->kind == SLICE_INLINE)
        return;
    pthread_mutex_lock(&scheduler->lock);
    note_interval(scheduler, slice->job);
    stop_sharing(scheduler, slice->job);
    pthread_mutex_unlock(&scheduler->lock);
    if (slice->loop == NULL)
        qd_loop_post(slice->job->loop, &slice->job->over);
}

/* Runs a time slice. Returns false if the job has ended. Returns true if other threads go on with
 * the job, or have to if the slice is inline. */
static bool run_slice(struct qd_scheduler *scheduler, struct slice *slice)
{
    bool goes_on = true;
    if (slice->slot == NULL) {
        goes_on = begin(scheduler, slice->job);
        if (goes_on && !open_phase(scheduler, slice))
            return true;
    }
    while (goes_on) {
        run_units(scheduler, slice);
        if (!leave_phase(scheduler, slice))
            return true;
        goes_on = may_go_on(scheduler, slice->job) && slice->job->phase.then(slice->job) &&
                  !is_cancelled(scheduler, slice->job);
        if (goes_on && !open_phase(scheduler, slice))
            return true;
    }
    end_job(scheduler, slice);
    return false;
}

/* ---- What a worker does ------------------------------------------------------------------- */

/* Returns a time slice of the next job in the queue, which is not empty. The slice has a slot if
 * the job has a phase. Under the lock. */
static struct slice take_from_queue(struct qd_scheduler *scheduler, enum slice_kind kind)
{
    const uint64_t now_ns = qd_clock_ns();
    struct qd_job *job = qd_queue_take(&scheduler->queue, now_ns);
    struct slice slice = {.job = job,
                          .kind = kind,
                          .until_ns = now_ns + QD_QUANTUM_NS,
                          .cpu_ns = job->had_ns > 0 ? qd_clock_thread_ns() : 0};
    if (job->started) {
        if (job->wait_until_ns != 0 && now_ns >= job->wait_until_ns)
            expire(job);
        take_slot(&slice);
        show_open(scheduler, job);
    } else {
        job->started_ns = now_ns;
    }
    job->started = true;
    return slice;
}

/* Returns a time slice without a job if there is nothing to do. Under the lock. */
static struct slice find_slice(struct qd_scheduler *scheduler)
{
    if (atomic_load(&scheduler->queue.count) > 0)
        return take_from_queue(scheduler, SLICE_WORKER);
    struct slice slice = {.job = find_open(scheduler, true), .kind = SLICE_HELPER};
    if (slice.job != NULL)
        take_slot(&slice);
    return slice;
}

/* Sleeps until woken. Under the lock, which is released meanwhile. */
static void fall_asleep(struct qd_scheduler *scheduler, int index)
{
    scheduler->next_idle[index] = scheduler->idle;
    scheduler->idle = index;
    scheduler->idle_count++;
    pthread_mutex_unlock(&scheduler->lock);
    qd_pool_sleep(scheduler->pool, (unsigned)index);
    pthread_mutex_lock(&scheduler->lock);
    scheduler->expected_ns = 0;
}

/* Stays awake until there is something to look at, or until `until_ns`. Under the lock, which is
 * released meanwhile. Does not yield the CPU: the thread that gets it may keep it for milliseconds,
 * while workers that begin a phase count on this worker. */
static void watch(struct qd_scheduler *scheduler, uint64_t until_ns)
{
    const size_t news = atomic_load(&scheduler->news);
    scheduler->watching++;
    pthread_mutex_unlock(&scheduler->lock);
    while (atomic_load(&scheduler->news) == news && qd_clock_ns() < until_ns) {
    }
    pthread_mutex_lock(&scheduler->lock);
    scheduler->watching--;
}

/* A worker that watched has joined a phase. Only the first one counts, because it alone has not
 * waited for others. Under the lock. */
static void note_joining(struct qd_scheduler *scheduler)
{
    if (scheduler->opened_ns != 0)
        qd_joining_note(&scheduler->joining, qd_clock_ns() - scheduler->opened_ns);
    scheduler->opened_ns = 0;
}

/* Returns the worker's next slice, or one without a job if the scheduler ends. */
static struct slice next_slice(struct qd_scheduler *scheduler, int index)
{
    uint64_t until_ns = qd_clock_ns() + QD_WATCH_NS;
    pthread_mutex_lock(&scheduler->lock);
    struct slice slice = find_slice(scheduler);
    while (slice.job == NULL && !scheduler->ending) {
        const bool watches = scheduler->sharing > 0 && qd_clock_ns() < until_ns;
        if (watches) {
            watch(scheduler, until_ns);
        } else {
            fall_asleep(scheduler, index);
            until_ns = qd_clock_ns() + QD_WATCH_NS; /* it was woken for what comes next, too */
        }
        slice = find_slice(scheduler);
        if (watches && slice.kind == SLICE_HELPER && slice.job != NULL)
            note_joining(scheduler);
    }
    unlock_and_wake(scheduler, true);
    return slice;
}

static void work(void *context, unsigned index)
{
    struct qd_scheduler *scheduler = context;
    struct slice slice;
    while ((slice = next_slice(scheduler, (int)index)).job != NULL)
        run_slice(scheduler, &slice);
}

/* ---- The loop's side ---------------------------------------------------------------------- */

static void on_over(void *context)
{
    struct qd_job *job = context;
    if (job->cancelled)
        job->code->cancel(job);
    job->code->done(job);
}

/* A thread that waits for the lock first tries again for a while, because the lock is never held
 * for long, and falling asleep and waking take longer. */
static void init_lock(pthread_mutex_t *lock)
{
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ADAPTIVE_NP);
    pthread_mutex_init(lock, &attributes);
    pthread_mutexattr_destroy(&attributes);
}

struct qd_scheduler *qd_scheduler_create(const struct qd_scheduler_settings *settings)
{
    const unsigned thread_count = settings->thread_count;
    struct qd_scheduler *scheduler =
        calloc(1, sizeof(*scheduler) + thread_count * sizeof(*scheduler->next_idle));
    if (scheduler == NULL)
        return NULL;
    scheduler->queue_max = settings->queue_max;
    scheduler->loop_computes = settings->loop_computes;
    scheduler->worker_count = thread_count;
    scheduler->idle = NOBODY;
    init_lock(&scheduler->lock);
    pthread_mutex_lock(&scheduler->lock); /* workers wait here until all is initialized */
    scheduler->pool = qd_pool_create(thread_count, settings->worker_nice, work, scheduler);
    pthread_mutex_unlock(&scheduler->lock);
    if (scheduler->pool == NULL) {
        qd_scheduler_destroy(scheduler);
        return NULL;
    }
    return scheduler;
}

void qd_scheduler_destroy(struct qd_scheduler *scheduler)
{
    if (scheduler == NULL)
        return;
    pthread_mutex_lock(&scheduler->lock);
    assert(atomic_load(&scheduler->queue.count) == 0);
    scheduler->ending = true;
    int index = scheduler->idle;
    pthread_mutex_unlock(&scheduler->lock);
    while (index != NOBODY) {
        int next = scheduler->next_idle[index];
        qd_pool_wake(scheduler->pool, (unsigned)index);
        index = next;
    }
    qd_pool_destroy(scheduler->pool);
    pthread_mutex_destroy(&scheduler->lock);
    free(scheduler);
}

bool qd_scheduler_has_room(struct qd_scheduler *scheduler)
{
    return qd_scheduler_queue_count(scheduler) < scheduler->queue_max &&
           !atomic_load(&scheduler->abandoned);
}

void qd_scheduler_refuse(struct qd_scheduler *scheduler, struct qd_error *error)
{
    if (qd_scheduler_is_abandoned(scheduler))
        qd_fail_for(error, QD_REASON_SHUTDOWN, QD_UNAVAILABLE, "the server shuts down");
    else
        qd_fail_for(error, QD_REASON_QUEUE, QD_UNAVAILABLE,
                    "the queue is full (--max-queue): %zu requests wait; try again later",
                    qd_scheduler_queue_count(scheduler));
}

size_t qd_scheduler_queue_count(struct qd_scheduler *scheduler)
{
    return atomic_load(&scheduler->queue.count) + atomic_load(&scheduler->queue.held_count);
}

struct qd_usage qd_scheduler_queue(struct qd_scheduler *scheduler)
{
    return (struct qd_usage){qd_scheduler_queue_count(scheduler), scheduler->queue_max};
}

struct qd_usage qd_scheduler_workers(struct qd_scheduler *scheduler)
{
    QD_LOCKED(&scheduler->lock);
    const size_t busy = scheduler->worker_count - scheduler->idle_count - scheduler->watching;
    return (struct qd_usage){busy, scheduler->worker_count};
}

/* ---- The loop computes -------------------------------------------------------------------- */

/* Returns whether the loop takes the first job in the queue instead of falling asleep. Only a
 * single job is taken: if more wait, workers are awake, and each takes the next job without being
 * woken. Under the lock. */
static bool is_for_idle_loop(const struct qd_scheduler *scheduler)
{
    const struct qd_job *job = qd_queue_first(&scheduler->queue);
    return scheduler->loop_computes && atomic_load(&scheduler->queue.count) == 1 &&
           job->may_run_inline && (!job->started || job->phase.unit_cost_ns <= QD_BATCH_NS) &&
           scheduler->idle_count == scheduler->worker_count;
}

/* Puts the job into the queue, for a worker or its idle loop, or holds it if it is new and may not
 * start yet. Returns false if the queue is full. Only workers, and the loop in place of one, may
 * exceed the bound, each by the one job that it puts back. */
static bool leave_to_workers(struct qd_scheduler *scheduler, struct qd_job *job)
{
    pthread_mutex_lock(&scheduler->lock);
    if (!qd_scheduler_has_room(scheduler)) {
        pthread_mutex_unlock(&scheduler->lock);
        return false;
    }
    if (job->started) {
        step_back(scheduler, job);
    } else {
        qd_queue_add(&scheduler->queue, job);
        atomic_fetch_add(&scheduler->news, 1);
    }
    if (is_for_idle_loop(scheduler))
        pthread_mutex_unlock(&scheduler->lock);
    else
        unlock_and_wake(scheduler, false);
    return true;
}

void qd_scheduler_release(struct qd_scheduler *scheduler)
{
    if (atomic_load(&scheduler->queue.held_count) == 0)
        return;
    pthread_mutex_lock(&scheduler->lock);
    qd_queue_release(&scheduler->queue, qd_clock_ns());
    atomic_fetch_add(&scheduler->news, 1);
    unlock_and_wake(scheduler, true);
}

bool qd_scheduler_submit(struct qd_scheduler *scheduler, struct qd_loop *loop, struct qd_job *job,
                         const struct qd_job_code *code, uint64_t inline_since_ns,
                         uint64_t deadline_ns)
{
    if (qd_scheduler_is_abandoned(scheduler))
        return false;
    *job = (struct qd_job){.code = code,
                           .loop = loop,
                           .over = {.callback = on_over, .context = job},
                           .may_run_inline = inline_since_ns != 0,
                           .deadline_ns = deadline_ns};
    if (code->may_start != NULL || inline_since_ns == 0 || !scheduler->loop_computes ||
        inline_ns_used >= QD_QUANTUM_NS)
        return leave_to_workers(scheduler, job);
    job->started_ns = inline_since_ns;
    job->started = true;
    struct slice slice = {.job = job,
                          .kind = SLICE_INLINE,
                          .loop = loop,
                          .until_ns = inline_since_ns + QD_QUANTUM_NS,
                          .budget_ns = QD_INLINE_NS};
    const bool ended = !run_slice(scheduler, &slice);
    const uint64_t took_ns = (job->ended_ns != 0 ? job->ended_ns : qd_clock_ns()) - inline_since_ns;
    inline_ns_used += took_ns > QD_GIVING_NS ? took_ns - QD_GIVING_NS : 0;
    if (!ended && leave_to_workers(scheduler, job))
        return true;
    if (!ended) {
        job->cancelled = true;
        set_running(job, false);
    }
    on_over(job);
    return true;
}

bool qd_scheduler_on_idle(struct qd_scheduler *scheduler, struct qd_loop *loop)
{
    struct slice slice = {.job = NULL};
    inline_ns_used = 0;
    if (atomic_load(&scheduler->queue.count) == 0)
        return false;
    const bool ready = qd_loop_is_ready(loop);
    pthread_mutex_lock(&scheduler->lock);
    const bool for_loop = is_for_idle_loop(scheduler);
    const bool for_another = for_loop && qd_queue_first(&scheduler->queue)->loop != loop;
    if (for_loop && !for_another && !ready)
        slice = take_from_queue(scheduler, SLICE_IDLE_LOOP);
    slice.loop = loop;
    if (for_another) /* that loop takes it, or wakes a worker */
        pthread_mutex_unlock(&scheduler->lock);
    else
        unlock_and_wake(scheduler, slice.job != NULL);
    if (slice.job == NULL)
        return false;
    if (run_slice(scheduler, &slice)) {
        pthread_mutex_lock(&scheduler->lock);
        unlock_and_wake(scheduler, false); /* for the rest of the job */
    } else {
        on_over(slice.job);
    }
    return true;
}

bool qd_scheduler_is_abandoned(const struct qd_scheduler *scheduler)
{
    return atomic_load(&scheduler->abandoned);
}

void qd_scheduler_cancel(struct qd_scheduler *scheduler, struct qd_job *job)
{
    pthread_mutex_lock(&scheduler->lock);
    atomic_store(&job->stopped, true);
    const bool waits = job->queued;
    if (waits) {
        qd_queue_remove(&scheduler->queue, job);
        job->cancelled = true;
    }
    pthread_mutex_unlock(&scheduler->lock);
    if (waits)
        qd_loop_post(job->loop, &job->over);
}

void qd_scheduler_abandon(struct qd_scheduler *scheduler)
{
    struct qd_job *job;
    QD_LOCKED(&scheduler->lock);
    atomic_store(&scheduler->abandoned, true);
    qd_queue_release(&scheduler->queue, UINT64_MAX);
    while ((job = qd_queue_first(&scheduler->queue)) != NULL) {
        qd_queue_remove(&scheduler->queue, job);
        job->cancelled = true;
        qd_loop_post(job->loop, &job->over);
    }
}

unsigned qd_scheduler_retry_after_s(struct qd_scheduler *scheduler)
{
    QD_LOCKED(&scheduler->lock);
    const uint64_t count = qd_scheduler_queue_count(scheduler) + 1;
    uint64_t wait_ns;
    if (__builtin_mul_overflow(count, scheduler->interval_ns, &wait_ns))
        wait_ns = UINT64_MAX;
    const uint64_t seconds = wait_ns / QD_NS_PER_S + 1;
    return seconds < QD_RETRY_AFTER_MAX_S ? (unsigned)seconds : QD_RETRY_AFTER_MAX_S;
}
