/* How long a thread keeps a CPU that others wait for. Linux looks whether to take it away where
 * somebody wakes, and at ticks of its timer, which are up to 10 ms apart. Who wakes gets it at once
 * only if it has had less than its share lately; a loop that has just moved bytes has not, nor has
 * a client on the same machine. Then it waits for the tick, although it wants 50 us, and the thread
 * that computes would not mind: beside convolutions one request in a hundred took 4 ms. */
#ifndef SERVER_WORK_SCHEDULER_CPU_YIELD_H
#define SERVER_WORK_SCHEDULER_CPU_YIELD_H

#include <stdint.h>

#define QD_CPU_YIELD_NS UINT64_C(500000)

/* The calling thread asks for the shortest slices that there are, 0.1 ms: with those of a loop it
 * comes sooner where it waits, and a yield of a worker gives away no more than one. Linux knows
 * such wishes since 6.12 and ignores them before. How much of a CPU a thread gets in all does not
 * depend on it. A thread that the system's owner has made a real-time one stays as it is. */
void qd_cpu_shorten_slices(void);

/* The calling thread could do without its CPU for a moment. Every QD_CPU_YIELD_NS whoever waits for
 * the CPU gets it; where nobody does, the call returns at once. It does nothing where slices could
 * not be shortened: from Linux 6.18 on, a thread loses what is left of its slice by that, and a
 * long one would cost it half of its share, or more. */
void qd_cpu_yield(void);

#endif
