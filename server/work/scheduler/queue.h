/* The jobs that wait for a worker, in order. It belongs to the scheduler, which holds its lock.
 *
 * A level is a line of its own, first come, first served. Who is taken next is the first of the
 * lowest level that has any; but every QD_QUEUE_OLDEST_EVERY-th time it is the one that has waited
 * longest, whatever its level. So a higher level comes first, and none starves: a job that waits
 * behind n others is taken after at most QD_QUEUE_OLDEST_EVERY * (n + 1) jobs. */
#ifndef SERVER_WORK_SCHEDULER_QUEUE_H
#define SERVER_WORK_SCHEDULER_QUEUE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/work/scheduler/scheduler.h"

enum { QD_QUEUE_OLDEST_EVERY = 16 };

/* Jobs, linked by their own `next` and `previous`: each is in one list at most. */
struct qd_job_list {
    struct qd_job *head;
    struct qd_job *tail;
};

void qd_job_list_append(struct qd_job_list *list, struct qd_job *job);
void qd_job_list_remove(struct qd_job_list *list, struct qd_job *job);

struct qd_queue {
    struct qd_job_list levels[QD_LEVEL_COUNT];
    atomic_size_t count;      /* who only looks at this needs no lock */
    atomic_size_t new_count;  /* whom no worker has had yet, with those that are held: */
    struct qd_job_list held;  /* nobody takes them; who came first comes first */
    atomic_size_t held_count; /* with the one whose may_start is being asked */
    uint64_t arrivals;        /* in all, for who has waited longest */
    unsigned takes;
};

/* At its level's end; of a new one that is QD_LEVEL_UNREAD. */
void qd_queue_append(struct qd_queue *queue, struct qd_job *job);
/* A new job, whose code has a may_start. True: it may not start, and is held. */
bool qd_queue_hold(struct qd_queue *queue, struct qd_job *job);
/* Appends of those that are held who may start by now, and whose deadline has passed. */
void qd_queue_release(struct qd_queue *queue, uint64_t now_ns);
/* From wherever it waits. */
void qd_queue_remove(struct qd_queue *queue, struct qd_job *job);

/* Of the lowest level that has any. NULL: nothing waits. */
struct qd_job *qd_queue_first(const struct qd_queue *queue);
/* NULL: nothing waits. */
struct qd_job *qd_queue_take(struct qd_queue *queue);

/* Whether somebody waits for whom a job of this level steps back: one of a lower level. Whose level
 * is not known yet counts for those that are behind QD_LEVEL_DEFAULT: for the others it would only
 * cost them both. */
bool qd_queue_has_before(const struct qd_queue *queue, unsigned level);

#endif
