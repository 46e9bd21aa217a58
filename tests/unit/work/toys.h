/* Jobs that only take time, and note what happened to them: for the scheduler's tests. */
#ifndef TESTS_UNIT_WORK_TOYS_H
#define TESTS_UNIT_WORK_TOYS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/work/scheduler/loop.h"
#include "server/work/scheduler/scheduler.h"

enum { JOB_COUNT_MAX = 128, SLOT_COUNT_MAX = 4, PHASE_COUNT_MAX = 3, THREAD_COUNT_MAX = 8 };

struct desk;

/* A job: what it is to do, and below what it did. */
struct toy {
    struct qd_job job;
    struct desk *desk;

    bool may_run_inline;
    bool takes_back;    /* in start: what follows may not run inline */
    uint64_t start_ns;  /* of work in start */
    size_t phase_count; /* 0: start does it all */
    size_t units[PHASE_COUNT_MAX];
    uint64_t unit_ns;
    uint64_t claimed_ns; /* what it says a unit costs; 0: the truth */
    size_t slot_count;
    unsigned level;              /* that it takes in start; 0: it stays where it is */
    uint64_t submit_deadline_ns; /* 0: none */
    size_t expire_at_phase;      /* its deadline passes there; counted from 1 */
    void (*on_unit)(struct toy *toy);
    atomic_bool gate; /* for on_unit, and start if it is `gated` */
    bool gated;
    void (*on_done)(struct toy *toy);

    struct qd_worker_slot slots[SLOT_COUNT_MAX];
    atomic_uint slot_taken[SLOT_COUNT_MAX];
    atomic_uchar *ran[PHASE_COUNT_MAX]; /* how often each unit ran */
    size_t phase;                       /* that it is in; from 1 */
    atomic_uint running;
    atomic_ulong threads[THREAD_COUNT_MAX]; /* that ran some unit */
    bool is_running;                        /* as on_running said */
    unsigned switches;
    unsigned started_at; /* its place among all starts; from 1 */
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

/* Submits a toy as it was filled in, with one phase of so many units unless it has some. False: the
 * queue is full. The loop stops when all are done. */
bool desk_submit_toy(struct desk *desk, struct toy *toy, size_t units, uint64_t unit_ns);
bool desk_submit(struct desk *desk, size_t index, size_t units, uint64_t unit_ns);

/* Submits the first toy, which is in its start, on a worker, until it is let go. */
void desk_hold_worker(struct desk *desk);
void desk_let_worker_go(struct desk *desk);

size_t toy_thread_count(const struct toy *toy); /* that ran some of its units */

/* False: it did not come true in 10 s. */
bool toy_wait_until(bool (*is_true)(struct toy *toy), struct toy *toy);

/* Every unit of the first phases ran once. */
void toy_assert_units(const struct toy *toy, size_t phase_count);
/* It came to its end, and every unit of it ran once. */
void toy_assert_whole(const struct toy *toy);

#endif
