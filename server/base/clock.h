/* The clock for all deadlines and durations. */
#pragma once

#include <stdint.h>
#include <time.h>

#define QD_NS_PER_US UINT64_C(1000)
#define QD_NS_PER_MS UINT64_C(1000000)
#define QD_NS_PER_S UINT64_C(1000000000)

static inline uint64_t qd_clock_read_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * QD_NS_PER_S + (uint64_t)now.tv_nsec;
}

/* Returns the monotonic time in ns. Only differences of two times have a meaning. */
static inline uint64_t qd_clock_ns(void)
{
    return qd_clock_read_ns(CLOCK_MONOTONIC);
}

/* Returns the CPU time of this thread in ns. */
static inline uint64_t qd_clock_thread_ns(void)
{
    return qd_clock_read_ns(CLOCK_THREAD_CPUTIME_ID);
}
