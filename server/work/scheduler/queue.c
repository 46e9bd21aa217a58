#include "server/work/scheduler/queue.h"

void qd_job_list_append(struct qd_job_list *list, struct qd_job *job)
{
    job->next = NULL;
    job->previous = list->tail;
    if (list->tail != NULL)
        list->tail->next = job;
    else
        list->head = job;
    list->tail = job;
}

void qd_job_list_remove(struct qd_job_list *list, struct qd_job *job)
{
    if (job->previous != NULL)
        job->previous->next = job->next;
    else
        list->head = job->next;
    if (job->next != NULL)
        job->next->previous = job->previous;
    else
        list->tail = job->previous;
}

void qd_queue_append(struct qd_queue *queue, struct qd_job *job)
{
    job->arrival = queue->arrivals++;
    job->queued_level = job->taken ? job->level : QD_LEVEL_UNREAD; /* `level` may change */
    job->queued = true;
    qd_job_list_append(&queue->levels[job->queued_level], job);
    atomic_fetch_add(&queue->count, 1);
    if (!job->taken)
        atomic_fetch_add(&queue->new_count, 1);
}

bool qd_queue_hold(struct qd_queue *queue, struct qd_job *job)
{
    /* Counts the job before it calls may_start, so that a thread that frees memory meanwhile sees
     * that a job waits for it. */
    atomic_fetch_add(&queue->held_count, 1);
    if (job->code->may_start(job, queue->held.head != NULL)) {
        atomic_fetch_sub(&queue->held_count, 1);
        return false;
    }
    job->queued = true;
    job->held = true;
    qd_job_list_append(&queue->held, job);
    atomic_fetch_add(&queue->new_count, 1);
    return true;
}

void qd_queue_release(struct qd_queue *queue, uint64_t now_ns)
{
    bool others_wait = false;
    struct qd_job *next;
    for (struct qd_job *job = queue->held.head; job != NULL; job = next) {
        next = job->next;
        if (job->deadline_ns <= now_ns || job->code->may_start(job, others_wait)) {
            qd_queue_remove(queue, job);
            qd_queue_append(queue, job);
        } else {
            others_wait = true;
        }
    }
}

void qd_queue_remove(struct qd_queue *queue, struct qd_job *job)
{
    qd_job_list_remove(job->held ? &queue->held : &queue->levels[job->queued_level], job);
    atomic_fetch_sub(job->held ? &queue->held_count : &queue->count, 1);
    job->queued = false;
    job->held = false;
    if (!job->taken)
        atomic_fetch_sub(&queue->new_count, 1);
}

struct qd_job *qd_queue_first(const struct qd_queue *queue)
{
    for (unsigned level = 0; level < QD_LEVEL_COUNT; level++)
        if (queue->levels[level].head != NULL)
            return queue->levels[level].head;
    return NULL;
}

static struct qd_job *oldest(const struct qd_queue *queue)
{
    struct qd_job *job = NULL;
    for (unsigned level = 0; level < QD_LEVEL_COUNT; level++) {
        struct qd_job *head = queue->levels[level].head;
        if (head != NULL && (job == NULL || head->arrival < job->arrival))
            job = head;
    }
    return job;
}

struct qd_job *qd_queue_take(struct qd_queue *queue)
{
    if (atomic_load(&queue->count) == 0)
        return NULL;
    struct qd_job *job =
        ++queue->takes % QD_QUEUE_OLDEST_EVERY == 0 ? oldest(queue) : qd_queue_first(queue);
    qd_queue_remove(queue, job);
    return job;
}

bool qd_queue_has_before(const struct qd_queue *queue, unsigned level)
{
    if (atomic_load(&queue->count) == 0)
        return false;
    for (unsigned i = level > QD_LEVEL_DEFAULT ? 0 : QD_LEVEL_UNREAD + 1; i < level; i++)
        if (queue->levels[i].head != NULL)
            return true;
    return false;
}
