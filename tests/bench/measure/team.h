/* Threads that share the slices of one piece of work, like the server's pool shares the units of a
 * plan. Each thread takes the next slice until none is left. The caller's thread is one of them.
 * Between bench_team_wake and bench_team_rest the other threads wait by spinning, so that a
 * hand-over costs less than the work. At other times they sleep. */
#pragma once

#include <stddef.h>

struct bench_team;

/* Does slice `slice` of the work on thread `thread`. Both count from 0. */
typedef void bench_slice_fn(void *context, size_t thread, size_t slice);

struct bench_team *bench_team_create(size_t thread_count); /* ends the process on failure */
void bench_team_destroy(struct bench_team *team);          /* NULL: nothing */

void bench_team_wake(struct bench_team *team);
void bench_team_rest(struct bench_team *team);

/* Returns when all slices are done. If there is only one slice, the caller does it and no helper is
 * notified. */
void bench_team_run(struct bench_team *team, bench_slice_fn *run, void *context,
                    size_t slice_count);
