/* Says which job a worker takes next. The queue belongs to the scheduler, which holds its lock when
 * it calls these functions.
 *
 * Usually the next job is of the lowest nonempty level. Every QD_PRECAUTION_SHARE-th time it is of
 * the nonempty level from which no job was taken for the longest time. So lower levels come first,
 * and no level starves.
 *
 * New jobs wait in level QD_LEVEL_UNREAD, before all others, because nobody knows yet how long they
 * take. They are taken in the order in which they came. A job that is read and short ends without
 * waiting again. A long job lines up in its own level (qd_queue_admits). A network whose time is
 * known has not taken memory for its tensors yet.
 *
 * In the other levels, the job with the highest response ratio is next. The ratio is the time since
 * the job started, divided by how long it takes in all (need_ns). Of jobs that take equally long,
 * the one that started first keeps the highest ratio until its end. So such jobs run one after the
 * other, have the caches to themselves, and do not hold memory for their tensors while they wait. A
 * job that takes less time than the others overtakes them after a wait that is in proportion to its
 * need, so it does not wait for the end of a long one. It overtakes each of them only once. No job
 * starves, because the ratio of every job that waits grows. If a job takes several times its
 * estimate, its need_ns grows, so that it does not keep a worker for itself.
 *
 * Before, a job that gave way went to the end of its level. With 16 clients and two workers of a
 * Zen 3 EPYC, all runs took memory at once: ResNet-50 103 MiB at most, and now 59; MobileNetV2 51,
 * and now 32. Answers per second are equal. Turns that last as long as the shortest waiting job
 * takes were tried, too: memory and speed were the same, with 100 lines more.
 *
 * A take looks at all jobs of a level, which takes 3 to 10 us for 1,000 jobs. If it meets a job
 * whose time is over, that job is next, to be refused at once. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "server/work/scheduler/scheduler.h"

/* A list of jobs, linked by their `next` and `previous`. A job is in at most one list. */
struct qd_job_list {
    struct qd_job *head;
    struct qd_job *tail;
};

void qd_job_list_append(struct qd_job_list *list, struct qd_job *job);
void qd_job_list_remove(struct qd_job_list *list, struct qd_job *job);

/* A queue whose bytes are all 0 is empty. */
struct qd_queue {
    struct qd_job_list levels[QD_LEVEL_COUNT];
    atomic_size_t count;      /* may be read without the lock */
    struct qd_job_list held;  /* jobs that may not start yet, in order of arrival */
    atomic_size_t held_count; /* including a job whose may_start is being called */
    uint64_t takes;
    uint64_t last_takes[QD_LEVEL_COUNT]; /* the last take from this level; 0: none */
};

/* Puts the job into its level. The level of a job that was never taken is QD_LEVEL_UNREAD. */
void qd_queue_put(struct qd_queue *queue, struct qd_job *job);
/* Puts a new job, or holds it if its code has may_start and that says that it may not start yet. */
void qd_queue_add(struct qd_queue *queue, struct qd_job *job);
/* Puts the held jobs that may start by now, and the held jobs whose deadline has passed. */
void qd_queue_release(struct qd_queue *queue, uint64_t now_ns);
/* Removes the job from the list in which it waits. */
void qd_queue_remove(struct qd_queue *queue, struct qd_job *job);

/* Returns some job of the lowest nonempty level, or NULL if the queue is empty. */
struct qd_job *qd_queue_first(const struct qd_queue *queue);
/* Removes and returns the job that is next, or returns NULL if the queue is empty. */
struct qd_job *qd_queue_take(struct qd_queue *queue, uint64_t now_ns);

/* Returns whether a taken job may begin its phase. Otherwise it has to be put back, because a job
 * of a lower level waits, or because it is long, has just been read, and jobs wait in its level. A
 * waiting job whose level is not known yet (QD_LEVEL_UNREAD) counts only if the job's level is
 * above QD_LEVEL_DEFAULT. For any other job, stepping back would only cost time, its own and the
 * waiting job's. */
bool qd_queue_admits(const struct qd_queue *queue, const struct qd_job *job);
