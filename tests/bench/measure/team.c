#include "tests/bench/measure/team.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

struct helper {
    struct bench_team *team;
    size_t index;
    pthread_t thread;
};

struct bench_team {
    size_t helper_count;
    sem_t wake;
    atomic_bool resting;
    atomic_bool ended;

    /* The work. It is set while the team is not open and no helper is busy. */
    bench_slice_fn *run;
    void *context;
    atomic_size_t slice_count;
    atomic_size_t next;
    atomic_bool open;
    atomic_size_t busy; /* number of helpers that may access the work */

    struct helper helpers[];
};

static void spin(void)
{
#if defined(__x86_64__)
    _mm_pause();
#endif
}

static void take_slices(struct bench_team *team, size_t thread)
{
    size_t slice;
    while ((slice = atomic_fetch_add(&team->next, 1)) < atomic_load(&team->slice_count))
        team->run(team->context, thread, slice);
}

/* A helper that arrives too late, because the system ran other threads, is not waited for. */
static void *help(void *context)
{
    const struct helper *helper = context;
    struct bench_team *team = helper->team;
    while (sem_wait(&team->wake) == 0 && !atomic_load(&team->ended)) {
        while (!atomic_load(&team->resting)) {
            if (!atomic_load(&team->open) ||
                atomic_load(&team->next) >= atomic_load(&team->slice_count)) {
                spin();
                continue;
            }
            atomic_fetch_add(&team->busy, 1);
            if (atomic_load(&team->open)) /* open: the team waits for us now */
                take_slices(team, helper->index);
            atomic_fetch_sub(&team->busy, 1);
        }
    }
    return NULL;
}

static void post_all(struct bench_team *team)
{
    for (size_t i = 0; i < team->helper_count; i++)
        sem_post(&team->wake);
}

struct bench_team *bench_team_create(size_t thread_count)
{
    const size_t helper_count = thread_count - 1;
    struct bench_team *team = calloc(1, sizeof(*team) + helper_count * sizeof(team->helpers[0]));
    bool made = team && sem_init(&team->wake, 0, 0) == 0;
    for (size_t i = 0; made && i < helper_count; i++) {
        team->resting = true;
        team->helpers[i] = (struct helper){.team = team, .index = i + 1};
        made = pthread_create(&team->helpers[i].thread, NULL, help, &team->helpers[i]) == 0;
    }
    if (!made) {
        fprintf(stderr, "measure: no memory for %zu threads\n", thread_count);
        exit(1);
    }
    team->helper_count = helper_count;
    return team;
}

void bench_team_destroy(struct bench_team *team)
{
    if (!team)
        return;
    atomic_store(&team->ended, true);
    post_all(team);
    for (size_t i = 0; i < team->helper_count; i++)
        pthread_join(team->helpers[i].thread, NULL);
    sem_destroy(&team->wake);
    free(team);
}

void bench_team_wake(struct bench_team *team)
{
    atomic_store(&team->resting, false);
    post_all(team);
}

void bench_team_rest(struct bench_team *team)
{
    atomic_store(&team->resting, true);
}

void bench_team_run(struct bench_team *team, bench_slice_fn *run, void *context, size_t slice_count)
{
    team->run = run;
    team->context = context;
    atomic_store(&team->slice_count, slice_count);
    atomic_store(&team->next, 0);
    if (slice_count > 1 && team->helper_count > 0)
        atomic_store(&team->open, true);
    take_slices(team, 0);
    if (atomic_exchange(&team->open, false))
        while (atomic_load(&team->busy) > 0)
            spin();
}
