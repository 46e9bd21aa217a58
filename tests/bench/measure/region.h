/* The limit of whoever computes from one piece of shared memory into another: a loop that only
 * moves the bytes (move.h), between the same pieces. */
#ifndef TESTS_BENCH_MEASURE_REGION_H
#define TESTS_BENCH_MEASURE_REGION_H

#include <stddef.h>

#include "tests/bench/limits/move.h"

/* Nanoseconds in which so many threads read all of the file `from` and write all of `to`, both
 * mapped: the median of some runs, past the caches or not, whichever is faster. Sizes are powers of
 * two, and of 64 KiB at least. Ends the process where something is wrong. */
double bench_region_move_ns(bench_move_fn *move, const char *from, const char *to,
                            size_t thread_count);

#endif
