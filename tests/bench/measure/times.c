#include "tests/bench/measure/times.h"

#include <stdlib.h>
#include <time.h>

double bench_clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return 1e9 * (double)now.tv_sec + (double)now.tv_nsec;
}

static int compare(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

void bench_sort(double *times, size_t count)
{
    qsort(times, count, sizeof(*times), compare);
}
