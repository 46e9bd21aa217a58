/* Threads that share the slices of one piece of work, as the server's pool shares the units of a
 * plan: each takes the next slice until none is left. The caller's thread is one of them.
 *
 * Between bench_team_wake and bench_team_rest the others wait by spinning, so that a hand-over
 * costs less than what it hands over; otherwise they sleep. */
#ifndef TESTS_BENCH_MEASURE_TEAM_H
#define TESTS_BENCH_MEASURE_TEAM_H

#include <stddef.h>

struct bench_team;

/* Slice `slice` of the work, on thread `thread`, from 0. */
typedef void bench_slice_fn(void *context, size_t thread, size_t slice);

struct bench_team *bench_team_create(size_t thread_count); /* ends the process where it cannot */
void bench_team_destroy(struct bench_team *team);          /* NULL: nothing */

void bench_team_wake(struct bench_team *team);
void bench_team_rest(struct bench_team *team);

/* Returns when all slices are done. One slice is the caller's: nobody is told of it. */
void bench_team_run(struct bench_team *team, bench_slice_fn *run, void *context,
                    size_t slice_count);

#endif
