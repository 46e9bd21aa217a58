#include "server/models/explain/progress.h"

#include <errno.h>
#include <stdio.h>
#include <time.h>

#include "server/base/clock.h"

enum { FIRST_MS = 1000, STEP_MS = 100, BAR_CELLS = 30 };

static void show(const struct qd_progress *progress)
{
    char bar[BAR_CELLS + 1];
    const unsigned percent = atomic_load(&progress->percent);
    for (unsigned i = 0; i < BAR_CELLS; i++)
        bar[i] = i * 100 < percent * BAR_CELLS ? '#' : '.';
    bar[BAR_CELLS] = '\0';
    fprintf(stderr, "\r[%s] %s\033[K", bar, atomic_load(&progress->step));
    fflush(stderr);
}

/* Waits, with the lock held. Returns false at once when the work ends. */
static bool wait_for_end(struct qd_progress *progress, unsigned ms)
{
    const uint64_t until_ns = qd_clock_ns() + ms * QD_NS_PER_MS;
    const struct timespec until = {.tv_sec = (time_t)(until_ns / QD_NS_PER_S),
                                   .tv_nsec = (long)(until_ns % QD_NS_PER_S)};
    while (!progress->ends &&
           pthread_cond_timedwait(&progress->wake, &progress->lock, &until) != ETIMEDOUT) {
    }
    return !progress->ends;
}

static void *run(void *context)
{
    struct qd_progress *progress = context;
    bool is_shown = false;
    pthread_mutex_lock(&progress->lock);
    while (wait_for_end(progress, is_shown ? STEP_MS : FIRST_MS)) {
        show(progress);
        is_shown = true;
    }
    pthread_mutex_unlock(&progress->lock);
    if (is_shown)
        fputs("\r\033[K", stderr);
    return NULL;
}

void qd_progress_begin(struct qd_progress *progress, bool shown)
{
    pthread_condattr_t attributes;
    atomic_init(&progress->step, "");
    atomic_init(&progress->percent, 0);
    progress->ends = false;
    pthread_mutex_init(&progress->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&progress->wake, &attributes);
    pthread_condattr_destroy(&attributes);
    progress->started = shown && pthread_create(&progress->thread, NULL, run, progress) == 0;
}

void qd_progress_end(struct qd_progress *progress)
{
    pthread_mutex_lock(&progress->lock);
    progress->ends = true;
    pthread_mutex_unlock(&progress->lock);
    pthread_cond_signal(&progress->wake);
    if (progress->started)
        pthread_join(progress->thread, NULL);
    pthread_cond_destroy(&progress->wake);
    pthread_mutex_destroy(&progress->lock);
}

void qd_progress_set(struct qd_progress *progress, const char *step, unsigned percent)
{
    atomic_store(&progress->step, step);
    atomic_store(&progress->percent, percent);
}
