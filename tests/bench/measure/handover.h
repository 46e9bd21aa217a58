/* Measures what help from other workers costs, on the server's own scheduler and pool. */
#pragma once

#include <stdint.h>

/* Medians of jobs that came while all workers were asleep. */
struct bench_handover {
    uint64_t alone_ns; /* duration of a phase with one worker */
    uint64_t all_ns;   /* duration of the first phase with all workers that the scheduler allows */
    uint64_t again_ns; /* duration of the job's second phase, with all workers */
    uint64_t again_alone_ns; /* the same with one worker */
    uint64_t wake_ns;        /* from the start until a second worker begins; 0: rarely did one */
    uint64_t give_ns;        /* how long qd_scheduler_submit takes */
    uint64_t trip_ns;        /* from the submission to `done`, less the time of both phases */
};

/* Measures a job of two phases. One worker would need work_ns for the first, and again_ns for the
 * second one. Ends the process if there is no memory. */
struct bench_handover bench_handover_measure(unsigned thread_count, uint64_t work_ns,
                                             uint64_t again_ns);
