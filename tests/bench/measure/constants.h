/* Measures what the scheduler's constants stand for, except for the hand-over (handover.h). */
#pragma once

#include <stdint.h>

struct bench_constants {
    uint64_t check_ns;  /* what a worker spends between two batches */
    uint64_t refill_ns; /* how much longer a walk through the L2 cache takes after another one */
    uint64_t yield_ns;  /* a call of sched_yield while no other thread wants the CPU */
    uint64_t gap_ns;    /* how long a thread waits for a CPU that another thread computes on */
    uint64_t slice_ns;  /* the shortest time slice that Linux grants; 0: it does not say */
};

/* Takes half a second. Ends the process if there is no memory. */
struct bench_constants bench_constants_measure(void);
