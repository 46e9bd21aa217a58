#define _GNU_SOURCE
#include "tests/bench/measure/line_trip.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>

#include "server/base/clock.h"
#include "tests/bench/measure/buffer.h"

enum { TRIPS = 20000, STOP = -1 };

/* The caller makes the number odd, and the other thread makes it even again. */
static _Alignas(64) atomic_int ball;

static void run_on(size_t cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (pthread_setaffinity_np(pthread_self(), sizeof(set), &set) != 0)
        bench_fail("a thread cannot run on CPU %zu", cpu);
}

static void *give_back(void *context)
{
    run_on(*(const size_t *)context);
    for (int seen; (seen = atomic_load(&ball)) != STOP;)
        if (seen % 2 != 0)
            atomic_store(&ball, seen + 1);
    return NULL;
}

double bench_line_trip_ns(void)
{
    cpu_set_t all;
    if (sched_getaffinity(0, sizeof(all), &all) != 0)
        bench_fail("the CPUs of this process cannot be read");
    size_t first = 0, last = CPU_SETSIZE - 1;
    while (!CPU_ISSET(first, &all))
        first++;
    while (!CPU_ISSET(last, &all))
        last--;
    pthread_t other;
    if (first == last)
        return 0;
    atomic_store(&ball, 0);
    if (pthread_create(&other, NULL, give_back, &last) != 0)
        bench_fail("a thread cannot be created");
    run_on(first);
    uint64_t began_ns = 0;
    for (int i = 0; i <= TRIPS; i++) {
        atomic_store(&ball, 2 * i + 1);
        while (atomic_load(&ball) == 2 * i + 1) {
        }
        if (i == 0) /* the first trip waits for the other thread to start */
            began_ns = qd_clock_ns();
    }
    const uint64_t ns = qd_clock_ns() - began_ns;
    atomic_store(&ball, STOP);
    pthread_join(other, NULL);
    sched_setaffinity(0, sizeof(all), &all);
    return (double)ns / TRIPS;
}
