/* Who computes what, when. It knows jobs, not what they are made of.
 *
 * A job goes through phases, one after the other. A phase is some units that may be computed in any
 * order, on several workers at once. `start` sets the first phase; when all its units are done, the
 * worker that did the last one calls its `then`, which sets the next phase or ends the job.
 *
 * Workers take jobs from one queue with a bound, by level (below), and first come, first served
 * within a level. Who finds nothing there helps with a phase that others have begun; who finds no
 * unit there either sleeps. Who has just helped stays awake a little longer, as long as being woken
 * takes: the job may have a next phase.
 *
 *   Idle workers help. Who begins a phase that is worth it (qd_scheduler_shares) wakes an idle
 *   worker and goes on; that one joins in and wakes the next. Nobody waits for those that come: if
 *   they are late, all units are taken. Who has taken units and is late with them is waited for;
 *   then for a while only long phases have helpers (straggler.h).
 *
 *   Waiting jobs come first. As soon as a job is in the queue, helpers leave their phase after
 *   their current batch of units. A worker that took its job from the queue leaves when its time
 *   slice, QD_QUANTUM_NS, is over. The last to leave puts the job at the end of its level in the
 *   queue. So no job waits for a large job's end.
 *
 *   Jobs are unequal. A new one is in the first level, until it knows better: `start`, or a `then`,
 *   may set its level. With its next phase it goes back into the queue if somebody waits there who
 *   comes before it. Every 16th take from the queue gets the job that has waited longest, so
 *   that no level starves (queue.h).
 *
 *   The loop computes short jobs. Handing a job to a worker and back takes longer than many a job.
 *   So the loop computes such a job inline, which means while it is submitted, whatever else waits.
 *   All its units have to take no more than QD_INLINE_NS by their estimates. In one iteration the
 *   loop computes inline for no longer than QD_QUANTUM_NS beyond QD_GIVING_NS for each job, so that
 *   its connections do not wait for one another's work. If all workers sleep and the loop would,
 *   too, the loop takes a longer job (qd_scheduler_help). It leaves that job as soon as there is
 *   something else to do. time_slice.h has the rules.
 *
 * There may be several loops. A job is that of the loop that submits it: there it is `done`, and no
 * other loop computes it.
 *
 * A phase has a slot for each worker that may compute units of it at the same time. A slot has a
 * workspace.
 * Calls are on a loop's thread but where it says "on a worker".
 */
#ifndef SERVER_WORK_SCHEDULER_SCHEDULER_H
#define SERVER_WORK_SCHEDULER_SCHEDULER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/telemetry/gauges.h"
#include "server/work/scheduler/loop.h"

/* What it costs to let another worker help: waking it takes 15 us of the one that does, and it
 * starts 40 us later (measured on a virtual machine; pool.h). Work of this length, shared by two,
 * is done no sooner; in units of 25 us, 100 us of it took 89, 200 took 137, and 400 took 236. */
#define QD_HANDOVER_NS UINT64_C(50000)
/* Inline: about as long as handing the job to a worker and back, so that a connection that is ready
 * waits no longer for the loop than it would while the loop gives the job away. */
#define QD_INLINE_NS UINT64_C(50000)
/* Of that, the loop's own part, mostly waking somebody: it would take this with every job that it
 * does not compute, so only what is beyond makes its connections wait. */
#define QD_GIVING_NS UINT64_C(15000)
#define QD_QUANTUM_NS UINT64_C(1000000) /* so that caches are worth filling */
/* A batch, which is the units that a worker takes at once: so short that the worker sees in time
 * that other jobs wait. */
#define QD_BATCH_NS UINT64_C(50000)

/* Levels of the queue: a lower one comes first. */
enum {
    QD_LEVEL_UNREAD, /* a new job, that nobody has looked at */
    QD_LEVEL_FIRST,
    QD_LEVEL_DEFAULT = 3,
    QD_LEVEL_LAST = 5,
    QD_LEVEL_COUNT
};

struct qd_job;

/* What one worker needs to compute units of a phase. */
struct qd_worker_slot {
    void *workspace;             /* the job's own */
    struct qd_worker_slot *next; /* the scheduler's own */
};

struct qd_phase {
    /* On several workers at once, with disjoint [begin, end) and each its own workspace. */
    void (*run)(struct qd_job *job, void *workspace, size_t begin, size_t end);
    /* On a worker, after the last unit. True: it has set job->phase. False: the job is done. */
    bool (*then)(struct qd_job *job);
    size_t unit_count; /* may be 0 */
    uint64_t unit_cost_ns;
    struct qd_worker_slot *slots; /* at least one, all free */
    size_t slot_count;
};

/* What a kind of job does. */
struct qd_job_code {
    /* On a worker, as all that follows may be on the loop, too, where may_run_inline. True: it
     * has set job->phase. False: the job is done. */
    bool (*start)(struct qd_job *job);
    /* On a worker: its first worker takes a slot of a phase, or the last one gives way, or the loop
     * leaves it to the workers. */
    void (*on_running)(struct qd_job *job, bool running);
    /* On a worker, instead of all that is left: its deadline has passed, or its wait's. */
    void (*expire)(struct qd_job *job);
    /* On its loop, instead of all that is left: it is cancelled, or the process ends. `done`
     * follows. */
    void (*cancel)(struct qd_job *job);
    /* On its loop, last of all: no worker touches it any more. */
    void (*done)(struct qd_job *job);
    /* Before `start`, on any thread, and it may not call the scheduler. False: it is held until
     * qd_scheduler_release, where it is asked again. others_wait: some are held that came before
     * it, and it goes past them only if it has no need to wait. NULL: it may always start. */
    bool (*may_start)(struct qd_job *job, bool others_wait);
};

struct qd_job {
    const struct qd_job_code *code;
    struct qd_phase phase;
    uint64_t deadline_ns;   /* nothing starts later; as submitted, or as `start` sets it */
    uint64_t wait_until_ns; /* it is not taken from the queue later; 0: whenever */
    uint64_t ended_ns;      /* when its work was over, where its code has looked; 0: it has not */
    unsigned level;         /* that it waits in; at first QD_LEVEL_UNREAD */
    /* Its `start`, and its `then`s, take no longer than waking a worker: the loop may call them.
     * As submitted; `start` may take it back for what follows. */
    bool may_run_inline;

    /* The scheduler's own. */
    struct qd_loop *loop; /* that it is done on */
    struct qd_post over;
    atomic_size_t next_unit; /* of the phase; none is left: at least unit_count */
    atomic_bool expired;
    atomic_bool stopped; /* somebody wants it cancelled */
    bool started;        /* its `start` has begun */
    bool taken;          /* out of the queue, once */
    bool running;        /* as on_running was told */
    bool cancelled;
    bool queued;
    bool held; /* it may not start yet */
    unsigned queued_level;
    uint64_t arrival;       /* in the queue: a number that grows */
    uint64_t started_ns;    /* when its `start` began */
    size_t worker_count;    /* that have a slot of its phase */
    uint64_t idle_since_ns; /* one has left since nothing was left to take; 0: nobody has */
    struct qd_worker_slot *free_slots;
    struct qd_job *next; /* in the one list that it is in */
    struct qd_job *previous;
};

struct qd_scheduler;

struct qd_scheduler_settings {
    unsigned thread_count; /* workers */
    size_t queue_max;      /* jobs that wait for their start */
    int worker_nice;       /* of workers, beside the loop's: see qd_pool_create */
    bool loop_computes;    /* false: workers compute everything */
};

/* `loop` is the pool's. NULL: out of memory. It makes the pool: qd_pool_create says when that may
 * be. */
struct qd_scheduler *qd_scheduler_create(struct qd_loop *loop,
                                         const struct qd_scheduler_settings *settings);
/* Call it when no job is left, and before its loop goes. NULL is fine. */
void qd_scheduler_destroy(struct qd_scheduler *scheduler);

/* On any thread, as these are. False: the queue is full. */
bool qd_scheduler_has_room(struct qd_scheduler *scheduler);
size_t qd_scheduler_queue_count(struct qd_scheduler *scheduler); /* jobs that no worker has had */
struct qd_bound qd_scheduler_queue(struct qd_scheduler *scheduler);   /* the same, of how many */
struct qd_bound qd_scheduler_workers(struct qd_scheduler *scheduler); /* that compute, of all */

/* Takes the job until its `done` on `loop`, which comes later; where it may run inline, perhaps
 * before this returns. False: the queue is full, and nothing happened. A job that may run inline is
 * submitted on that loop's thread, and qd_scheduler_help has to follow before it sleeps. Others may
 * be submitted on any. inline_since_ns: 0: it may not run inline; else the time, as its submitter
 * has just read it. deadline_ns:
 * UINT64_MAX: none. */
bool qd_scheduler_submit(struct qd_scheduler *scheduler, struct qd_loop *loop, struct qd_job *job,
                         const struct qd_job_code *code, uint64_t inline_since_ns,
                         uint64_t deadline_ns);

/* Between submit and `done`: it ends, without another unit, `then` or `start`, as soon as what runs
 * of it just now is over: in the queue at once. `done` comes later, after `cancel`, unless it came
 * to its end meanwhile. */
void qd_scheduler_cancel(struct qd_scheduler *scheduler, struct qd_job *job);

/* What jobs are held for may have changed (may_start). On any thread. */
void qd_scheduler_release(struct qd_scheduler *scheduler);

/* When it is worth to try again where there was no room: an estimate from how many wait, and how
 * fast jobs came to their ends lately; at least 1 and at most QD_RETRY_AFTER_MAX_S. */
#define QD_RETRY_AFTER_MAX_S 30
unsigned qd_scheduler_retry_after_s(struct qd_scheduler *scheduler);

/* An iteration of the loop ends, and the loop would sleep now. It computes a short job of its own
 * that waits, or wakes a worker for it. True: it has computed, and perhaps the job is `done`. */
bool qd_scheduler_help(struct qd_scheduler *scheduler, struct qd_loop *loop);

/* Cancels every job, as qd_scheduler_cancel does. It takes no more, and starts none. On any thread.
 */
void qd_scheduler_abandon(struct qd_scheduler *scheduler);
bool qd_scheduler_is_abandoned(const struct qd_scheduler *scheduler);

/* How many of so many workers some units are worth, at least 1: as many as there are units, and no
 * more than have a hand-over's worth of work each. The only place where this is decided: for slots
 * among all workers, for a phase, again whenever somebody might be woken, among those that are
 * idle.
 *
 * So two share work from two hand-overs on. From one on was tried as well: it made 80 us of 56, and
 * 88 of 67 where nobody was woken, since the units that are taken at a time are fewer then. */
size_t qd_scheduler_shares(size_t unit_count, uint64_t unit_cost_ns, size_t worker_count);

#endif
