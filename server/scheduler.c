#include "server/scheduler.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>

#include "server/clock.h"

/* One runs, the others are next: a worker that finds nothing sleeps, and waking it costs more than
 * a small request's work. Small requests a second at 64 connections, median of 5 interleaved runs
 * on a busy 2-core machine, so that single runs spread by a factor of 2: 26 k with 2, 30 k with 4,
 * 34 k with 8, 40 k with 32, 39 k with 500. More than 2 helps; how many is best is not settled. */
enum { IN_POOL_PER_THREAD = 4 };

struct qd_scheduler {
    struct qd_loop *loop;
    size_t in_pool;
    size_t in_pool_max;
    struct qd_slot *head; /* the queue */
    struct qd_slot *tail;
    size_t jobs_queued; /* that have not started */
    size_t jobs_queued_max;
    atomic_size_t waiting; /* slots that no worker has taken: in the queue, or in the pool's */
    atomic_bool abandoned;
    pthread_mutex_t lock; /* over what slots of one job share */
};

struct qd_scheduler *qd_scheduler_create(struct qd_loop *loop, unsigned thread_count,
                                         size_t queue_max)
{
    struct qd_scheduler *scheduler = calloc(1, sizeof(*scheduler));
    if (scheduler != NULL) {
        scheduler->loop = loop;
        scheduler->in_pool_max = IN_POOL_PER_THREAD * (size_t)thread_count;
        scheduler->jobs_queued_max = queue_max;
        atomic_init(&scheduler->waiting, 0);
        atomic_init(&scheduler->abandoned, false);
        pthread_mutex_init(&scheduler->lock, NULL);
    }
    return scheduler;
}

void qd_scheduler_destroy(struct qd_scheduler *scheduler)
{
    if (scheduler == NULL)
        return;
    assert(scheduler->head == NULL && scheduler->in_pool == 0);
    pthread_mutex_destroy(&scheduler->lock);
    free(scheduler);
}

bool qd_scheduler_has_room(const struct qd_scheduler *scheduler)
{
    return scheduler->jobs_queued < scheduler->jobs_queued_max &&
           !atomic_load(&scheduler->abandoned);
}

size_t qd_scheduler_queue_count(const struct qd_scheduler *scheduler)
{
    return scheduler->jobs_queued;
}

/* ---- The queue ---------------------------------------------------------------------------- */

static void enqueue(struct qd_scheduler *scheduler, struct qd_slot *slot)
{
    slot->place = QD_SLOT_WAITS;
    slot->next = NULL;
    slot->previous = scheduler->tail;
    if (scheduler->tail != NULL)
        scheduler->tail->next = slot;
    else
        scheduler->head = slot;
    scheduler->tail = slot;
    atomic_fetch_add(&scheduler->waiting, 1);
}

/* Out of the queue; who calls it says where to, and counts `waiting`. */
static void unlink_slot(struct qd_scheduler *scheduler, struct qd_slot *slot)
{
    if (slot->previous != NULL)
        slot->previous->next = slot->next;
    else
        scheduler->head = slot->next;
    if (slot->next != NULL)
        slot->next->previous = slot->previous;
    else
        scheduler->tail = slot->previous;
    if (slot == &slot->job->first)
        scheduler->jobs_queued--;
}

static void dispatch(struct qd_scheduler *scheduler)
{
    while (scheduler->head != NULL && scheduler->in_pool < scheduler->in_pool_max) {
        struct qd_slot *slot = scheduler->head;
        unlink_slot(scheduler, slot);
        slot->place = QD_SLOT_IN_POOL;
        slot->job->slots_in_pool++;
        scheduler->in_pool++;
        qd_pool_submit(scheduler->loop, &slot->work);
    }
}

/* What every item does first when it is back on the loop. */
static void left_pool(struct qd_slot *slot)
{
    slot->place = QD_SLOT_IDLE;
    slot->job->slots_in_pool--;
    slot->job->scheduler->in_pool--;
}

/* ---- Slices of a large job ---------------------------------------------------------------- */

static bool begin_slice(struct qd_job *job)
{
    pthread_mutex_lock(&job->scheduler->lock);
    bool finished = job->finished;
    if (!finished && job->slots_running++ == 0)
        job->code->on_running(job, true);
    pthread_mutex_unlock(&job->scheduler->lock);
    return !finished;
}

/* True: the whole job has been computed, and this slot was the last. */
static bool end_slice(struct qd_job *job)
{
    pthread_mutex_lock(&job->scheduler->lock);
    bool last = --job->slots_running == 0;
    job->finished = last && atomic_load(&job->next_unit) >= job->units;
    bool finished = job->finished;
    if (last && !finished)
        job->code->on_running(job, false);
    pthread_mutex_unlock(&job->scheduler->lock);
    return finished;
}

static bool gives_way(struct qd_scheduler *scheduler, uint64_t until_ns)
{
    return atomic_load(&scheduler->abandoned) ||
           (atomic_load(&scheduler->waiting) > 0 && qd_clock_ns() >= until_ns);
}

static void slice_work(struct qd_work *work)
{
    struct qd_slot *slot = (struct qd_slot *)work; /* its first field */
    struct qd_job *job = slot->job;
    atomic_fetch_sub(&job->scheduler->waiting, 1);
    if (!begin_slice(job))
        return;
    uint64_t until_ns = qd_clock_ns() + QD_QUANTUM_NS;
    do {
        if (qd_clock_ns() >= job->deadline_ns) {
            atomic_store(&job->expired, true);
            atomic_store(&job->next_unit, job->units);
            break;
        }
        size_t begin = atomic_fetch_add(&job->next_unit, job->chunk_units);
        if (begin >= job->units)
            break;
        size_t left = job->units - begin;
        job->code->run(job, slot->workspace, begin,
                       begin + (left < job->chunk_units ? left : job->chunk_units));
    } while (!gives_way(job->scheduler, until_ns));
    if (end_slice(job))
        job->code->finish(job);
}

static bool is_finished(struct qd_job *job)
{
    pthread_mutex_lock(&job->scheduler->lock);
    bool finished = job->finished;
    pthread_mutex_unlock(&job->scheduler->lock);
    return finished;
}

/* Takes back the job's slots that no worker has taken. */
static void withdraw(struct qd_job *job)
{
    struct qd_scheduler *scheduler = job->scheduler;
    for (size_t i = 0; i < job->slot_count; i++) {
        struct qd_slot *slot = &job->slots[i];
        if (slot->place == QD_SLOT_WAITS) {
            unlink_slot(scheduler, slot);
            slot->place = QD_SLOT_IDLE;
            atomic_fetch_sub(&scheduler->waiting, 1);
        } else if (slot->place == QD_SLOT_IN_POOL && qd_pool_cancel(&slot->work)) {
            slot->place = QD_SLOT_CANCELLED;
            atomic_fetch_sub(&scheduler->waiting, 1);
        }
    }
}

/* The job is over, or the process is: ends it once its last item is back. */
static void wind_up(struct qd_job *job, bool finished)
{
    withdraw(job);
    if (job->slots_in_pool == 0) {
        if (!finished)
            job->code->cancel(job);
        job->code->done(job);
    }
}

static void slice_done(struct qd_work *work)
{
    struct qd_slot *slot = (struct qd_slot *)work;
    struct qd_job *job = slot->job;
    struct qd_scheduler *scheduler = job->scheduler;
    left_pool(slot);
    bool finished = is_finished(job);
    if (finished || atomic_load(&scheduler->abandoned)) {
        wind_up(job, finished);
    } else if (atomic_load(&job->next_unit) < job->units) {
        enqueue(scheduler, slot);
    } /* else the slots that still run do the rest */
    dispatch(scheduler);
}

/* ---- The start of a job ------------------------------------------------------------------- */

static void start_work(struct qd_work *work)
{
    struct qd_job *job = ((struct qd_slot *)work)->job;
    atomic_fetch_sub(&job->scheduler->waiting, 1);
    job->finished = job->code->start(job); /* nobody else knows the job yet */
}

static void start_done(struct qd_work *work)
{
    struct qd_job *job = ((struct qd_slot *)work)->job;
    struct qd_scheduler *scheduler = job->scheduler;
    left_pool(&job->first);
    if (job->finished || atomic_load(&scheduler->abandoned)) {
        wind_up(job, job->finished);
    } else {
        assert(job->slot_count > 0 && job->chunk_units > 0);
        for (size_t i = 0; i < job->slot_count; i++) {
            struct qd_slot *slot = &job->slots[i];
            slot->work.work = slice_work;
            slot->work.done = slice_done;
            slot->job = job;
            enqueue(scheduler, slot);
        }
    }
    dispatch(scheduler);
}

bool qd_scheduler_submit(struct qd_scheduler *scheduler, struct qd_job *job,
                         const struct qd_job_code *code)
{
    if (!qd_scheduler_has_room(scheduler))
        return false;
    *job = (struct qd_job){.code = code, .scheduler = scheduler};
    atomic_init(&job->next_unit, 0);
    atomic_init(&job->expired, false);
    job->first.work.work = start_work;
    job->first.work.done = start_done;
    job->first.job = job;
    enqueue(scheduler, &job->first);
    scheduler->jobs_queued++;
    dispatch(scheduler);
    return true;
}

void qd_scheduler_abandon(struct qd_scheduler *scheduler)
{
    atomic_store(&scheduler->abandoned, true);
    while (scheduler->head != NULL) {
        struct qd_slot *slot = scheduler->head;
        unlink_slot(scheduler, slot);
        slot->place = QD_SLOT_IDLE;
        atomic_fetch_sub(&scheduler->waiting, 1);
        if (slot->job->slots_in_pool == 0)
            wind_up(slot->job, false);
    }
}
