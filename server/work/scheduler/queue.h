/* The queue of jobs that wait for a worker. It belongs to the scheduler, which holds its lock when
 * it calls these functions.
 *
 * Within a level, jobs are taken in the order in which they came. Usually the first job of the
 * lowest nonempty level is taken next. Every QD_QUEUE_OLDEST_EVERY-th time it is the job that has
 * waited longest, whatever its level. So lower levels come first, and no job starves: a job that
 * waits behind n other jobs is taken after at most QD_QUEUE_OLDEST_EVERY * (n + 1) jobs. */
#ifndef SERVER_WORK_SCHEDULER_QUEUE_H
#define SERVER_WORK_SCHEDULER_QUEUE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/work/scheduler/scheduler.h"

enum { QD_QUEUE_OLDEST_EVERY = 16 };

/* A list of jobs, linked by their `next` and `previous`. A job is in at most one list. */
struct qd_job_list {
    struct qd_job *head;
    struct qd_job *tail;
};

void qd_job_list_append(struct qd_job_list *list, struct qd_job *job);
void qd_job_list_remove(struct qd_job_list *list, struct qd_job *job);

struct qd_queue {
    struct qd_job_list levels[QD_LEVEL_COUNT];
    atomic_size_t count;      /* may be read without the lock */
    atomic_size_t new_count;  /* jobs that no worker has taken yet, including held jobs */
    struct qd_job_list held;  /* jobs that may not start yet, in order of arrival */
    atomic_size_t held_count; /* including a job whose may_start is being called */
    uint64_t arrivals;        /* of all jobs so far, to find the one that has waited longest */
    unsigned takes;
};

/* Appends the job to its level. A new job's level is QD_LEVEL_UNREAD. */
void qd_queue_append(struct qd_queue *queue, struct qd_job *job);
/* Calls may_start, which the job's code must have, for a new job. Holds the job and returns true if
 * it may not start yet. Otherwise returns false, and does not append the job. */
bool qd_queue_hold(struct qd_queue *queue, struct qd_job *job);
/* Appends the held jobs that may start by now, and the held jobs whose deadline has passed. */
void qd_queue_release(struct qd_queue *queue, uint64_t now_ns);
/* Removes the job from the list in which it waits. */
void qd_queue_remove(struct qd_queue *queue, struct qd_job *job);

/* Returns the first job of the lowest nonempty level, or NULL if the queue is empty. */
struct qd_job *qd_queue_first(const struct qd_queue *queue);
/* Removes and returns the job that is next, or returns NULL if the queue is empty. */
struct qd_job *qd_queue_take(struct qd_queue *queue);

/* Returns whether a job of this level has to go back into the queue because a job of a lower level
 * waits. A waiting job whose level is not known yet (QD_LEVEL_UNREAD) counts only if `level` is
 * above QD_LEVEL_DEFAULT. For any other job, stepping back would only cost time, its own and the
 * waiting job's. */
bool qd_queue_has_before(const struct qd_queue *queue, unsigned level);

#endif
