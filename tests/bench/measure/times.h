/* The clock, and sorting of durations. */
#pragma once

#include <stddef.h>

/* Returns the time of a monotonic clock. */
double bench_clock_ns(void);

/* Sorts in ascending order. */
void bench_sort(double *times, size_t count);
