#include "server/models/explain/progress.h"

#include <stdio.h>
#include <time.h>

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

static void *run(void *context)
{
    struct qd_progress *progress = context;
    const struct timespec step = {.tv_nsec = STEP_MS * 1000000L};
    unsigned ms = 0;
    for (; !atomic_load(&progress->ends); ms += STEP_MS) {
        if (ms >= FIRST_MS)
            show(progress);
        nanosleep(&step, NULL);
    }
    if (ms > FIRST_MS)
        fputs("\r\033[K", stderr);
    return NULL;
}

void qd_progress_begin(struct qd_progress *progress, bool shown)
{
    atomic_init(&progress->step, "");
    atomic_init(&progress->percent, 0);
    atomic_init(&progress->ends, false);
    progress->started = shown && pthread_create(&progress->thread, NULL, run, progress) == 0;
}

void qd_progress_end(struct qd_progress *progress)
{
    atomic_store(&progress->ends, true);
    if (progress->started)
        pthread_join(progress->thread, NULL);
}

void qd_progress_set(struct qd_progress *progress, const char *step, unsigned percent)
{
    atomic_store(&progress->step, step);
    atomic_store(&progress->percent, percent);
}
