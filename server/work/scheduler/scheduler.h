/* Decides which thread computes what, and when. The scheduler knows jobs, but not what they consist
 * of. Its threads are workers, and event loops (loop.h), which do the I/O of connections and submit
 * jobs.
 *
 * A job goes through phases, one after the other. A phase consists of units that may be computed in
 * any order, on several workers at once. `start` sets the first phase. When all units of a phase
 * are done, the worker that did the last one calls the phase's `then`, which sets the next phase or
 * ends the job.
 *
 * Workers take jobs from one queue with a bound, in the order that queue.h describes. A worker that
 * finds no job there helps with a phase that other threads have begun. If no unit is left there
 * either, it sleeps. If a job that workers share goes on, the worker first stays awake for
 * QD_WATCH_NS, because the job may have a next phase to share.
 *
 *   Idle workers help. A worker that begins a phase that is worth it (qd_scheduler_shares) wakes an
 *   idle worker and goes on. The idle worker joins in and wakes the next. A short phase that can be
 *   shared is worth waking a worker, too, if enough work lies ahead of it in the job: a network has
 *   many nodes of some 20 us, and a worker that is woken at one of them is awake at the next. A
 *   woken worker that comes late finds no units left, and delays nothing. But a worker that has
 *   taken units and is late with them delays the job. After that, for a while only long phases have
 *   helpers (straggler.h).
 *
 *   Waiting jobs come first. As soon as a job is in the queue, helpers leave their phase after
 *   their current batch of units. A worker that took its job from the queue leaves when its time
 *   slice, QD_QUANTUM_NS, is over. The last worker to leave puts the job back into the queue, and
 *   takes the job that is next. That is often the same one: the queue gives new jobs a time slice
 *   soon, and lets long jobs of equal length run one after the other, because they would take
 *   memory and caches from one another (queue.h).
 *
 *   Jobs are unequal. A new job is in QD_LEVEL_UNREAD, before all others, because nobody knows yet
 *   what it asks for. `start` or a `then` may set its level.
 *   Before its next phase, the job goes back into the queue if a job that comes before it waits
 *   there (qd_queue_admits).
 *
 *   The loop computes short jobs, because handing a job to a worker and back takes longer than many
 *   jobs. It computes such a job inline, which means while the job is submitted, whatever else
 *   waits. By their estimates, all units of the job together must take no more than QD_INLINE_NS.
 *   In one iteration of the loop, inline jobs may take QD_QUANTUM_NS together, so that connections
 *   do not wait for one another's work. QD_GIVING_NS of each job do not count, because the loop
 *   would need as long to give the job to a worker. If all workers sleep and the loop would, too,
 *   the loop takes a longer job (qd_scheduler_on_idle). It leaves that job as soon as there is
 *   something else to do.
 *
 * There may be several loops. A job belongs to the loop that submits it: its `done` is called
 * there, and no other loop computes it.
 *
 * A phase has a slot for each worker that may compute units of it at the same time. A slot has a
 * workspace.
 *
 * Functions are called on a loop's thread, unless their comments name another one. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/base/status.h"
#include "server/base/usage.h"
#include "server/work/scheduler/loop.h"

/* `make bench A=--handover` measures what the constants of this folder stand for, and prints which
 * values that supports. */

/* What it costs to let another worker help; pool.h has how long waking one takes. Work of this
 * length is done no sooner by two workers than by one. Two workers did work of 100 us in 80 to
 * 89 us, of 200 us in 119 to 137 us, and of 400 us in 236 us. */
#define QD_HANDOVER_NS UINT64_C(40000)
/* The work for which a worker that is awake joins a phase. Joining takes two steps under the lock,
 * and the worker reads what the phase's thread has written from that thread's cache. Two workers do
 * work of 4 to 8 us 1.25 times as fast as one. */
#define QD_JOIN_NS UINT64_C(2000)
/* How long a worker without work stays awake while a job that workers share goes on. Networks have
 * nodes that are worth sharing and, between them, some that are not. Waking the worker again takes
 * longer than most nodes. With half of this time, ShuffleNetV2 on two threads of a Zen 5 took 1.1
 * times as long, and other networks the same time. Twice this time made no difference. */
#define QD_WATCH_NS (2 * QD_HANDOVER_NS)
/* The longest job that the loop computes inline. Other connections then wait no longer for the loop
 * than the job would wait for a worker that has to be woken. */
#define QD_INLINE_NS QD_HANDOVER_NS
/* The loop's own part of handing a job over, mostly waking a worker. The loop would spend this time
 * on any job that it gives away. So only the time beyond it, spent on a job that it computes
 * itself, delays the other connections. */
#define QD_GIVING_NS UINT64_C(7000)
/* How long a worker's time slice is if other jobs wait. It is long enough that filling the caches
 * pays, and shorter than the time for which Linux lets another process have the CPU. Slices of
 * 0.5 ms gave networks the same speed, and small requests beside them a p99 of 2.2 instead of
 * 1.8 ms. */
#define QD_QUANTUM_NS UINT64_C(1000000)
/* How long a worker with helpers computes before it checks again whether other jobs wait. It takes
 * at most as many units at once (a batch) as fit into this time, but at least one. A waiting job
 * then gets a helper's CPU as soon as it would get a worker that has to be woken. The check takes
 * 0.1 us. */
#define QD_BATCH_NS QD_HANDOVER_NS
/* The same for units that share work (units_share), for a worker that no helper joins, or while
 * jobs wait, which helpers would take first. Such a worker keeps its job for QD_QUANTUM_NS anyway,
 * so its slice becomes at most a quarter longer. */
#define QD_SHARED_BATCH_NS (QD_QUANTUM_NS / 4)
/* By which factor an estimate may be too low: a kernel's own time may be twice its estimate, and
 * two threads may share a CPU. */
#define QD_LOW_BY 4
/* The share of the time, one in so many, that a precaution for few jobs may cost all others. */
#define QD_PRECAUTION_SHARE 16

/* Levels of the queue. Jobs of lower levels come first. */
enum {
    QD_LEVEL_UNREAD, /* a new job, whose level is not known yet */
    QD_LEVEL_FIRST,
    QD_LEVEL_DEFAULT = 3,
    QD_LEVEL_LAST = 5,
    QD_LEVEL_COUNT
};

struct qd_job;

/* What one worker needs to compute units of a phase. */
struct qd_worker_slot {
    void *workspace;             /* belongs to the job */
    struct qd_worker_slot *next; /* belongs to the scheduler */
};

struct qd_phase {
    /* Computes units [begin, end). Called on several workers at once, with disjoint ranges, and on
     * each worker with a workspace of its own. */
    void (*run)(struct qd_job *job, void *workspace, size_t begin, size_t end);
    /* Called on a worker after the last unit. Returns true if it has set job->phase, false if the
     * job is done. */
    bool (*then)(struct qd_job *job);
    size_t unit_count; /* may be 0 */
    uint64_t unit_cost_ns;
    bool units_share;             /* units that are computed in one call take less time together */
    uint64_t ahead_ns;            /* about how long later phases take, as far as is known */
    struct qd_worker_slot *slots; /* at least one; all are free */
    size_t slot_count;
};

/* The functions of a kind of jobs. */
struct qd_job_code {
    /* Begins the job, on a worker. If may_run_inline, this function and all below that say "on a
     * worker" may be called on the loop, too. Returns true if it has set job->phase, false if the
     * job is done. */
    bool (*start)(struct qd_job *job);
    /* Called on a worker, with true when the first worker takes a slot of a phase. Called with
     * false when the last worker gives way, when the loop leaves the job to the workers, and when
     * the job ends because it is cancelled. NULL: nobody needs to know. */
    void (*on_running)(struct qd_job *job, bool running);
    /* Called on a worker instead of the rest of the job, if deadline_ns or wait_until_ns has
     * passed. NULL: the job has neither. */
    void (*expire)(struct qd_job *job);
    /* Called on the job's loop instead of the rest of the job, if the job is cancelled or the
     * process ends, or if the loop has begun the job inline and the queue is full. `done`
     * follows. */
    void (*cancel)(struct qd_job *job);
    /* Called last, on the job's loop. No worker uses the job any more. */
    void (*done)(struct qd_job *job);
    /* Returns whether the job may start. Called before `start`, on any thread; it must not call the
     * scheduler. A job that may not start is held, and qd_scheduler_release calls may_start again.
     * others_wait: jobs that came earlier are held. This job then starts before them only if it has
     * no need to wait. NULL: the job may always start. */
    bool (*may_start)(struct qd_job *job, bool others_wait);
};

struct qd_job {
    const struct qd_job_code *code;
    struct qd_phase phase;
    uint64_t deadline_ns;   /* no unit starts later; given to submit, `start` may change it */
    uint64_t wait_until_ns; /* the job expires if it is taken from the queue later; 0: no limit */
    uint64_t ended_ns;      /* when its work ended, if its code has read the clock; otherwise 0 */
    unsigned level;         /* in which it waits; QD_LEVEL_UNREAD at first */
    /* `start` and all `then` take no longer than waking a worker, so the loop may call them. Set by
     * submit; `start` may clear it for what follows. */
    bool may_run_inline;

    /* Private to the scheduler. */
    struct qd_loop *loop; /* on which `done` is called */
    struct qd_post over;
    atomic_size_t next_unit; /* of the phase; at least unit_count if no unit is left */
    atomic_bool expired;
    atomic_bool stopped; /* qd_scheduler_cancel was called */
    bool started;        /* `start` was called, or is about to be */
    bool running;        /* the last value given to on_running */
    bool cancelled;
    bool queued;
    bool held;    /* its may_start has returned false */
    bool sharing; /* counts in the scheduler's `sharing` */
    bool taken;   /* it was taken from the queue at least once */
    /* How long the workers that took it from the queue have had it, and their CPU time in it after
     * the first slice. */
    uint64_t had_ns, run_ns;
    uint64_t need_ns;       /* how long it takes, as far as is known; 0: not known */
    uint64_t started_ns;    /* when its `start` began */
    size_t worker_count;    /* workers that have a slot of its phase */
    uint64_t idle_since_ns; /* when a worker left because no unit was left; 0 if no worker has */
    struct qd_worker_slot *free_slots;
    struct qd_job *next; /* in the list that has the job */
    struct qd_job *previous;
};

struct qd_scheduler;

struct qd_scheduler_settings {
    unsigned thread_count; /* workers */
    size_t queue_max;      /* how many jobs may wait */
    int worker_nice;    /* how much higher their niceness is than the loop's; see qd_pool_create */
    bool loop_computes; /* if false, workers compute everything */
};

/* Creates the scheduler and its workers. Returns NULL if the system grants no more memory or
 * threads. */
struct qd_scheduler *qd_scheduler_create(const struct qd_scheduler_settings *settings);
/* Called when no job is left. NULL is fine. */
void qd_scheduler_destroy(struct qd_scheduler *scheduler);

/* Returns false if the queue is full or the scheduler is abandoned. On any thread, as are the next
 * four functions. */
bool qd_scheduler_has_room(struct qd_scheduler *scheduler);
/* Fills `error` after a job was refused or cancelled: the scheduler is abandoned, or the queue is
 * full. */
void qd_scheduler_refuse(struct qd_scheduler *scheduler, struct qd_error *error);
size_t qd_scheduler_queue_count(struct qd_scheduler *scheduler); /* jobs that wait for a worker */
/* Return the same count, with queue_max as its maximum; and how many workers compute, with
 * thread_count as the maximum. */
struct qd_usage qd_scheduler_queue(struct qd_scheduler *scheduler);
struct qd_usage qd_scheduler_workers(struct qd_scheduler *scheduler);

/* Submits a job. The scheduler uses the job until it calls `done` on `loop`. That is later or, for
 * a job that may run inline, perhaps before this function returns. Returns false, without any
 * effect, if the queue is full or the scheduler is abandoned. A job with may_start never runs
 * inline. A job that the loop computes inline needs no room in the queue. If it then turns out to
 * be too long for the loop and the queue is full, the job is cancelled.
 *
 * A job that may run inline is submitted on the loop's thread, and qd_scheduler_on_idle must be
 * called before the loop sleeps. Other jobs may be submitted on any thread. inline_since_ns: the
 * time, which the caller has just read, if the job may run inline; otherwise 0. deadline_ns:
 * UINT64_MAX if there is none. */
bool qd_scheduler_submit(struct qd_scheduler *scheduler, struct qd_loop *loop, struct qd_job *job,
                         const struct qd_job_code *code, uint64_t inline_since_ns,
                         uint64_t deadline_ns);

/* Cancels a job, between submit and `done`. No further unit, `then` or `start` of the job begins. A
 * job in the queue ends at once, any other job when the calls that run just now have returned.
 * `cancel` and then `done` are called later; `cancel` is not called if the job came to its end
 * meanwhile. */
void qd_scheduler_cancel(struct qd_scheduler *scheduler, struct qd_job *job);

/* Calls may_start again for the held jobs, and lets those start for which it returns true. Call it
 * when may_start may return another value than before. On any thread. */
void qd_scheduler_release(struct qd_scheduler *scheduler);

/* Returns after how many seconds a refused client should try again, from 1 to QD_RETRY_AFTER_MAX_S.
 * It is an estimate from how many jobs wait and how fast jobs have come to their ends lately. */
#define QD_RETRY_AFTER_MAX_S 30
unsigned qd_scheduler_retry_after_s(struct qd_scheduler *scheduler);

/* The idle hook of a loop: called when an iteration ends, before the loop sleeps. If all
 * workers sleep and one job waits, which is of this loop and may run inline, computes it for as
 * long as the loop has nothing else to do. Otherwise wakes a worker if jobs wait. Returns true if
 * it has computed; the job may be `done` then. */
bool qd_scheduler_on_idle(struct qd_scheduler *scheduler, struct qd_loop *loop);

/* Cancels every job, as qd_scheduler_cancel does. From then on the scheduler takes and starts no
 * jobs. On any thread. */
void qd_scheduler_abandon(struct qd_scheduler *scheduler);
bool qd_scheduler_is_abandoned(const struct qd_scheduler *scheduler);

/* Returns how many of worker_count workers should share these units, at least 1: no more than there
 * are units, and no more than get work of QD_HANDOVER_NS each. Workers are woken for a phase by
 * this rule.
 *
 * Two workers therefore share work only if it takes 2 * QD_HANDOVER_NS or more. Sharing from
 * QD_HANDOVER_NS on was tried: work of 56 us then took 80 us. Work of 67 us took 88 us even when no
 * worker was woken, because batches are smaller then. */
size_t qd_scheduler_shares(size_t unit_count, uint64_t unit_cost_ns, size_t worker_count);

/* Like qd_scheduler_shares, for workers that are awake, which need QD_JOIN_NS of work each. Use it
 * for the number of a phase's slots if workers may still be awake from an earlier phase of the
 * job. */
size_t qd_scheduler_awake_shares(size_t unit_count, uint64_t unit_cost_ns, size_t worker_count);

/* Returns qd_joining_phase_ns (joining.h). Call it once for each job with many phases. On any
 * thread. */
uint64_t qd_scheduler_shared_phase_ns(struct qd_scheduler *scheduler);
