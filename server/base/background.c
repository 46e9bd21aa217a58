#define _GNU_SOURCE
#include "server/base/background.h"

#include <time.h>

enum { END_S = 2 };

void qd_background_init(struct qd_background_task *task, void (*run)(void *context), void *context)
{
    *task = (struct qd_background_task){.run = run, .context = context};
    pthread_mutex_init(&task->lock, NULL);
}

static void *run_all(void *context)
{
    struct qd_background_task *task = context;
    bool again;
    do {
        task->run(task->context);
        pthread_mutex_lock(&task->lock);
        again = task->again;
        task->again = false;
        task->running = again;
        pthread_mutex_unlock(&task->lock);
    } while (again);
    return NULL;
}

bool qd_background_ask(struct qd_background_task *task)
{
    pthread_mutex_lock(&task->lock);
    const bool runs = task->running;
    task->again = runs;
    task->running = true;
    pthread_mutex_unlock(&task->lock);
    if (runs)
        return true;
    if (task->started) /* it is about to end, or has */
        pthread_join(task->thread, NULL);
    task->started = pthread_create(&task->thread, NULL, run_all, task) == 0;
    if (!task->started)
        task->running = false;
    return task->started;
}

bool qd_background_end(struct qd_background_task *task)
{
    struct timespec until;
    pthread_mutex_lock(&task->lock);
    task->again = false;
    pthread_mutex_unlock(&task->lock);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += END_S;
    if (task->started && pthread_timedjoin_np(task->thread, NULL, &until) != 0) {
        pthread_detach(task->thread);
        return false;
    }
    pthread_mutex_destroy(&task->lock);
    return true;
}
