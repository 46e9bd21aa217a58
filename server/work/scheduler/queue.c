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

static struct qd_job_list *level_of(struct qd_queue *queue, const struct qd_job *job)
{
    return &queue->levels[job->taken ? job->level : QD_LEVEL_UNREAD];
}

/* Returns about how long the rest of the job takes, if its phase has not begun. */
static uint64_t left_ns(const struct qd_job *job)
{
    uint64_t ns;
    return __builtin_mul_overflow(job->phase.unit_count, job->phase.unit_cost_ns, &ns) ||
                   __builtin_add_overflow(ns, job->phase.ahead_ns, &ns)
               ? UINT64_MAX
               : ns;
}

/* A job's need grows if it has run for QD_LOW_BY times its estimate, or has had a worker for
 * QD_LOW_BY times as long as that. A network may need twice its estimate, and on CPUs that others
 * use have a worker for ten times as long. It must keep its place before equal ones then, because
 * each network that has begun holds its memory. A load may need far more, because its estimate
 * knows nothing of slow files. */
void qd_queue_put(struct qd_queue *queue, struct qd_job *job)
{
    struct qd_job_list *list = level_of(queue, job);
    const uint64_t needs_ns[] = {left_ns(job), job->run_ns / QD_LOW_BY,
                                 job->had_ns / (QD_LOW_BY * QD_LOW_BY)};
    const size_t need_count = sizeof(needs_ns) / sizeof(*needs_ns);
    for (size_t i = 0; i < need_count && list != &queue->levels[QD_LEVEL_UNREAD]; i++)
        if (needs_ns[i] > job->need_ns)
            job->need_ns = needs_ns[i];
    qd_job_list_append(list, job);
    job->queued = true;
    atomic_fetch_add(&queue->count, 1);
}

void qd_queue_add(struct qd_queue *queue, struct qd_job *job)
{
    if (job->code->may_start != NULL) {
        /* Counts the job before it calls may_start, so that a thread that frees memory meanwhile
         * sees that a job waits for it. */
        atomic_fetch_add(&queue->held_count, 1);
        if (!job->code->may_start(job, queue->held.head != NULL)) {
            job->queued = job->held = true;
            qd_job_list_append(&queue->held, job);
            return;
        }
        atomic_fetch_sub(&queue->held_count, 1);
    }
    qd_queue_put(queue, job);
}

void qd_queue_release(struct qd_queue *queue, uint64_t now_ns)
{
    bool others_wait = false;
    struct qd_job *next;
    for (struct qd_job *job = queue->held.head; job != NULL; job = next) {
        next = job->next;
        if (job->deadline_ns <= now_ns || job->code->may_start(job, others_wait)) {
            qd_queue_remove(queue, job);
            qd_queue_put(queue, job);
        } else {
            others_wait = true;
        }
    }
}

void qd_queue_remove(struct qd_queue *queue, struct qd_job *job)
{
    qd_job_list_remove(job->held ? &queue->held : level_of(queue, job), job);
    atomic_fetch_sub(job->held ? &queue->held_count : &queue->count, 1);
    job->queued = false;
    job->held = false;
}

struct qd_job *qd_queue_first(const struct qd_queue *queue)
{
    for (unsigned level = 0; level < QD_LEVEL_COUNT; level++)
        if (queue->levels[level].head != NULL)
            return queue->levels[level].head;
    return NULL;
}

/* ---- Who is next -------------------------------------------------------------------------- */

/* Chooses a nonempty level. The queue is not empty. */
static unsigned choose_level(struct qd_queue *queue)
{
    const bool other = ++queue->takes % QD_PRECAUTION_SHARE == 0;
    unsigned chosen = QD_LEVEL_COUNT;
    for (unsigned level = 0; level < QD_LEVEL_COUNT; level++)
        if (queue->levels[level].head != NULL &&
            (chosen == QD_LEVEL_COUNT ||
             (other && queue->last_takes[level] < queue->last_takes[chosen])))
            chosen = level;
    queue->last_takes[chosen] = queue->takes;
    return chosen;
}

static bool is_late(const struct qd_job *job, uint64_t now_ns)
{
    return job->deadline_ns <= now_ns || (job->wait_until_ns != 0 && job->wait_until_ns <= now_ns);
}

static struct qd_job *choose_job(const struct qd_job_list *list, uint64_t now_ns)
{
    struct qd_job *chosen = NULL;
    double ratio_max = 0;
    for (struct qd_job *job = list->head; job != NULL; job = job->next) {
        if (job->need_ns == 0 || is_late(job, now_ns))
            return job;
        const double ratio = (double)(now_ns - job->started_ns) / (double)job->need_ns;
        if (chosen == NULL || ratio > ratio_max) {
            chosen = job;
            ratio_max = ratio;
        }
    }
    return chosen;
}

/* A job that the loop has begun and left waits among the new ones, but may be read by now. It goes
 * to its level then, unless it may go on. */
struct qd_job *qd_queue_take(struct qd_queue *queue, uint64_t now_ns)
{
    while (atomic_load(&queue->count) > 0) {
        struct qd_job *job = choose_job(&queue->levels[choose_level(queue)], now_ns);
        const bool was_taken = job->taken;
        qd_queue_remove(queue, job);
        job->taken = true;
        if (was_taken || qd_queue_admits(queue, job))
            return job;
        qd_queue_put(queue, job);
    }
    return NULL;
}

static bool has_before(const struct qd_queue *queue, unsigned level)
{
    if (atomic_load(&queue->count) == 0)
        return false;
    for (unsigned i = level > QD_LEVEL_DEFAULT ? 0 : QD_LEVEL_UNREAD + 1; i < level; i++)
        if (queue->levels[i].head != NULL)
            return true;
    return false;
}

bool qd_queue_admits(const struct qd_queue *queue, const struct qd_job *job)
{
    const bool must_line_up = job->need_ns == 0 && job->level != QD_LEVEL_UNREAD &&
                              left_ns(job) > QD_QUANTUM_NS &&
                              queue->levels[job->level].head != NULL;
    return !must_line_up && !has_before(queue, job->level);
}
