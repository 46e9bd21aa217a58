#define _GNU_SOURCE
#include "server/base/errand.h"

#include <signal.h>
#include <time.h>

enum { END_S = 2 };

void qd_errand_init(struct qd_errand *errand, void (*run)(void *context), void *context)
{
    *errand = (struct qd_errand){.run = run, .context = context};
    pthread_mutex_init(&errand->lock, NULL);
}

static void *run_all(void *context)
{
    struct qd_errand *errand = context;
    bool again;
    do {
        errand->run(errand->context);
        pthread_mutex_lock(&errand->lock);
        again = errand->again;
        errand->again = false;
        errand->running = again;
        pthread_mutex_unlock(&errand->lock);
    } while (again);
    return NULL;
}

/* Signals are for others. */
static bool start(struct qd_errand *errand)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const bool started = pthread_create(&errand->thread, NULL, run_all, errand) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}

bool qd_errand_ask(struct qd_errand *errand)
{
    pthread_mutex_lock(&errand->lock);
    const bool runs = errand->running;
    errand->again = runs;
    errand->running = true;
    pthread_mutex_unlock(&errand->lock);
    if (runs)
        return true;
    if (errand->started) /* it is about to end, or has */
        pthread_join(errand->thread, NULL);
    errand->started = start(errand);
    if (!errand->started)
        errand->running = false;
    return errand->started;
}

bool qd_errand_end(struct qd_errand *errand)
{
    struct timespec until;
    pthread_mutex_lock(&errand->lock);
    errand->again = false;
    pthread_mutex_unlock(&errand->lock);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += END_S;
    if (errand->started && pthread_timedjoin_np(errand->thread, NULL, &until) != 0) {
        pthread_detach(errand->thread);
        return false;
    }
    pthread_mutex_destroy(&errand->lock);
    return true;
}
