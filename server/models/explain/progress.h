/* A line on standard error that says how far a long step is. It appears after a second, and goes
 * when the work is done. */
#ifndef SERVER_MODELS_EXPLAIN_PROGRESS_H
#define SERVER_MODELS_EXPLAIN_PROGRESS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

struct qd_progress {
    _Atomic(const char *) step;
    atomic_uint percent; /* of all steps */
    bool started;
    bool ends; /* guarded by `lock` */
    pthread_mutex_t lock;
    pthread_cond_t wake;
    pthread_t thread;
};

/* Starts it, if `shown`. Without a thread, nothing is shown. */
void qd_progress_begin(struct qd_progress *progress, bool shown);
void qd_progress_end(struct qd_progress *progress);

/* `step` is a static string. */
void qd_progress_set(struct qd_progress *progress, const char *step, unsigned percent);

#endif
