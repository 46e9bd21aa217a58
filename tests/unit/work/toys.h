/* Jobs that only take time and record what happened to them, for the scheduler's tests. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/work/scheduler/loop.h"
#include "server/work/scheduler/scheduler.h"

enum { JOB_COUNT_MAX = 128, SLOT_COUNT_MAX = 4, PHASE_COUNT_MAX = 3, THREAD_COUNT_MAX = 8 };

struct desk;

/* A job: first what it is to do, then what it did. */
struct toy {
    struct qd_job job;
    struct desk *desk;

    bool may_run_inline;
    bool takes_back;    /* in start; the rest may not run inline */
    uint64_t start_ns;  /* duration of the work in start */
    uint64_t wait_ns;   /* how long after its start it may wait in the queue; 0: no limit */
    uint64_t told_ns;   /* how long it says that it took, from its submission; 0: nothing */
    size_t phase_count; /* 0: start does all work */
    size_t units[PHASE_COUNT_MAX];
    uint64_t unit_ns;
    uint64_t claimed_ns; /* cost of a unit as the job claims it; 0: the true cost */
    bool units_share;    /* of each phase (scheduler.h) */
    uint64_t ahead_ns;   /* likewise */
    size_t slot_count;
    unsigned level;              /* level that it takes in start; 0: unchanged */
    uint64_t submit_deadline_ns; /* 0: none */
    size_t expire_at_phase;      /* phase in which its deadline passes, from 1 */
    void (*on_unit)(struct toy *toy);
    atomic_bool gate; /* used by on_unit, and by start if `gated` */
    bool gated;
    void (*on_done)(struct toy *toy);

    struct qd_worker_slot slots[SLOT_COUNT_MAX];
    atomic_uint slot_taken[SLOT_COUNT_MAX];
    atomic_uchar *ran[PHASE_COUNT_MAX]; /* how often each unit ran */
    size_t phase;                       /* the current phase, from 1 */
    atomic_uint run_count;              /* calls that ran units */
    atomic_uint running;
    atomic_ulong threads[THREAD_COUNT_MAX]; /* threads that ran some unit */
    atomic_ulong starter;                   /* the thread that ran start */
    bool is_running;                        /* as reported by on_running */
    unsigned switches;
    uint64_t since_ns;   /* when it was submitted */
    unsigned started_at; /* its position among all starts, from 1 */
    unsigned done_at;
    unsigned finished;
    bool expired;
    bool cancelled;
};

/* A loop, a scheduler and jobs. */
struct desk {
    struct qd_loop *loop;
    struct qd_scheduler *scheduler;
    struct qd_handle *timer;
    struct qd_handle *async;
    struct toy toys[JOB_COUNT_MAX];
    unsigned left;
    atomic_uint starts;
    unsigned dones;
};

struct desk *desk_create_with(const struct qd_scheduler_settings *settings);
struct desk *desk_create(unsigned threads, size_t queue_max);
void desk_destroy(struct desk *desk);

/* Submits a toy as filled in, with one phase of `units` units unless it has phases. Returns false
 * if the queue is full. The loop stops when all toys are done. */
bool desk_submit_toy(struct desk *desk, struct toy *toy, size_t units, uint64_t unit_ns);
bool desk_submit(struct desk *desk, size_t index, size_t units, uint64_t unit_ns);

/* Submits the first toy, which stays in its start on a worker until desk_let_worker_go. */
void desk_hold_worker(struct desk *desk);
void desk_let_worker_go(struct desk *desk);

size_t toy_thread_count(const struct toy *toy); /* that ran units */

/* Waits until the condition is true. Returns false if it is not true after 10 s. */
bool toy_wait_until(bool (*is_true)(struct toy *toy), struct toy *toy);

/* Asserts that every unit of the first phases ran once. */
void toy_assert_units(const struct toy *toy, size_t phase_count);
/* Asserts that the toy completed and every unit ran once. */
void toy_assert_whole(const struct toy *toy);
