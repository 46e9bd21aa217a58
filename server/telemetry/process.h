/* What the system counts of this process. */
#ifndef SERVER_TELEMETRY_PROCESS_H
#define SERVER_TELEMETRY_PROCESS_H

#include <stdint.h>

/* 0 where the system does not tell. */
struct qd_process {
    uint64_t cpu_ns; /* user and system, of all threads */
    uint64_t resident_bytes;
    uint64_t virtual_bytes;
    uint64_t files; /* open descriptors */
    uint64_t files_max;
};

/* Some system calls: not for each request. */
void qd_process_read(struct qd_process *process);

#endif
