/* Limits how long a thread keeps a CPU that other threads wait for. Linux considers taking the CPU
 * away when a thread wakes, and at ticks of its timer, which are up to 10 ms apart. A thread that
 * wakes gets the CPU at once only if it has had less than its share lately. A loop that has just
 * moved bytes, or a client on the same machine, has had its share. It waits for the tick, although
 * it wants the CPU for only 50 us and the computing thread could easily pause: beside convolutions,
 * one request in a hundred took 4 ms. */
#pragma once

#include <stdint.h>

/* How often a thread offers its CPU, at most. The p99 of small requests beside ResNet-50 is 2.1 ms
 * with this value, 2.6 ms with twice as much, and 4.4 ms if threads never offer (Linux 6.18). */
#define QD_CPU_YIELD_NS UINT64_C(500000)

/* Asks Linux for its shortest time slices for the calling thread, 0.1 ms. Linux gives a thread the
 * CPU in these slices. A job's slices (scheduler.h) are of another kind. A loop with short slices
 * gets a CPU sooner when it waits for one, and a worker that yields gives away no more than one
 * slice. Linux honours the request since 6.12, and ignores it before. The thread's total share of
 * CPU time does not depend on it. A thread that the system's owner has made a real-time thread
 * stays as it is. */
void qd_cpu_shorten_linux_slices(void);

/* Gives the CPU to a thread that waits for it, at most once every QD_CPU_YIELD_NS. Returns at once
 * if none waits. Does nothing if its slices could not be shortened: from Linux 6.18 on, a thread
 * that yields loses the rest of its slice, and losing a long one would cost half of the thread's
 * share, or more. */
void qd_cpu_yield(void);
