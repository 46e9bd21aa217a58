/* The clock, and many of its times. */
#ifndef TESTS_BENCH_MEASURE_TIMES_H
#define TESTS_BENCH_MEASURE_TIMES_H

#include <stddef.h>

/* Of a clock that nobody sets. */
double bench_clock_ns(void);

/* The least of them first. */
void bench_sort(double *times, size_t count);

#endif
