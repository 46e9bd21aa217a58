/* What it costs to have other workers help, measured on the server's own scheduler and pool. */
#ifndef TESTS_BENCH_MEASURE_HANDOVER_H
#define TESTS_BENCH_MEASURE_HANDOVER_H

#include <stdint.h>

/* Medians of jobs that came while all workers slept. */
struct bench_handover {
    uint64_t alone_ns; /* from a phase's start to its end, by one worker */
    uint64_t all_ns;   /* the same of a job's first phase, by as many as the scheduler lets help */
    uint64_t again_ns; /* the same of the job's next phase, which has as much work */
    uint64_t wake_ns;  /* from the start until a second worker begins; 0: seldom did one */
};

/* A job whose work takes one worker `work_ns`, in units of `unit_ns`. Ends the process where there
 * is no memory. */
struct bench_handover bench_handover_measure(unsigned thread_count, uint64_t work_ns,
                                             uint64_t unit_ns);

#endif
