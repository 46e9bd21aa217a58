/* Measures what help from other workers costs, on the server's own scheduler and pool. */
#ifndef TESTS_BENCH_MEASURE_HANDOVER_H
#define TESTS_BENCH_MEASURE_HANDOVER_H

#include <stdint.h>

/* Medians of jobs that came while all workers were asleep. */
struct bench_handover {
    uint64_t alone_ns; /* duration of a phase with one worker */
    uint64_t all_ns;   /* duration of the first phase with all workers that the scheduler allows */
    uint64_t again_ns; /* duration of the job's second phase, which has as much work */
    uint64_t wake_ns;  /* from the start until a second worker begins; 0: rarely did one */
};

/* Measures a job whose work takes one worker `work_ns`, in units of `unit_ns`. Ends the process if
 * there is no memory. */
struct bench_handover bench_handover_measure(unsigned thread_count, uint64_t work_ns,
                                             uint64_t unit_ns);

#endif
