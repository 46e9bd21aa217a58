/* The clock, and sorting of durations. */
#ifndef TESTS_BENCH_MEASURE_TIMES_H
#define TESTS_BENCH_MEASURE_TIMES_H

#include <stddef.h>

/* Returns the time of a monotonic clock. */
double bench_clock_ns(void);

/* Sorts in ascending order. */
void bench_sort(double *times, size_t count);

#endif
