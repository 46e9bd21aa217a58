/* Who computes what, when. It knows jobs, not what they are made of.
 *
 * Jobs start in the order in which they came, from a queue with a bound. A small job is done where
 * it starts. A large one cuts itself into units: up to one slot for each worker takes chunks of
 * them, so it uses all cores while they are idle; and as soon as something else waits, a slot gives
 * way after QD_QUANTUM_NS and goes to the end of the queue. So nobody waits for a large job's end.
 *
 * Only a few items for each thread lie in the pool's own queue: the order is decided here.
 * Everything is on the loop's thread but for the calls that say "on a worker".
 */
#ifndef SERVER_SCHEDULER_H
#define SERVER_SCHEDULER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/loop.h"
#include "server/pool.h"

#define QD_QUANTUM_NS UINT64_C(1000000) /* a hand-over costs 0.05 ms: 5 % at the worst */
#define QD_CHUNK_NS UINT64_C(100000)    /* so that a slot sees in time that others wait */

struct qd_job;

/* One worker's share of a job. */
struct qd_slot {
    struct qd_work work;
    struct qd_job *job;
    void *workspace; /* the job's own */
    struct qd_slot *next;
    struct qd_slot *previous;
    enum { QD_SLOT_IDLE, QD_SLOT_WAITS, QD_SLOT_IN_POOL, QD_SLOT_CANCELLED } place;
};

/* What a kind of job does. */
struct qd_job_code {
    /* On a worker. True: it is done. False: it has set what is to be set by start. */
    bool (*start)(struct qd_job *job);
    /* On several workers at once, with disjoint [begin, end). */
    void (*run)(struct qd_job *job, void *workspace, size_t begin, size_t end);
    /* On a worker, under the scheduler's lock: its first slot begins, or its last one gives way. */
    void (*on_running)(struct qd_job *job, bool running);
    /* On a worker, once, after the last unit; or without the rest, if the job has expired. */
    void (*finish)(struct qd_job *job);
    /* On the loop, instead of all the rest: the process ends. `done` follows. */
    void (*cancel)(struct qd_job *job);
    /* On the loop, last of all: no worker touches it any more. */
    void (*done)(struct qd_job *job);
};

struct qd_job {
    const struct qd_job_code *code;

    /* Set by start, when it returns false. */
    size_t units;
    size_t chunk_units; /* at least 1 */
    struct qd_slot *slots;
    size_t slot_count;
    uint64_t deadline_ns; /* no unit starts later: the job then finishes `expired` */

    /* The scheduler's own. */
    struct qd_scheduler *scheduler;
    struct qd_slot first; /* runs start */
    atomic_size_t next_unit;
    atomic_bool expired;
    size_t slots_in_pool;
    size_t slots_running; /* under the lock */
    bool finished;        /* under the lock */
};

struct qd_scheduler;

struct qd_scheduler *qd_scheduler_create(struct qd_loop *loop, unsigned thread_count,
                                         size_t queue_max);
void qd_scheduler_destroy(struct qd_scheduler *scheduler); /* no job is left */

/* False: the queue is full. */
bool qd_scheduler_has_room(const struct qd_scheduler *scheduler);
size_t qd_scheduler_queue_count(const struct qd_scheduler *scheduler); /* jobs not yet started */

/* Takes the job until its `done`. False: the queue is full, and nothing happened. */
bool qd_scheduler_submit(struct qd_scheduler *scheduler, struct qd_job *job,
                         const struct qd_job_code *code);

/* Cancels every job that does not run, and others at their next chunk. */
void qd_scheduler_abandon(struct qd_scheduler *scheduler);

#endif
