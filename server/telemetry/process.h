/* Reads what the operating system counts for this process, for the gauges of /metrics. */
#ifndef SERVER_TELEMETRY_PROCESS_H
#define SERVER_TELEMETRY_PROCESS_H

#include <stdint.h>

/* A number is 0 if the system does not report it. */
struct qd_process {
    uint64_t cpu_ns; /* user and system time of all threads */
    uint64_t resident_bytes;
    uint64_t virtual_bytes;
    uint64_t files; /* open file descriptors */
    uint64_t files_max;
};

/* Reads all numbers. Makes several system calls, so it is too slow for each request. */
void qd_process_read(struct qd_process *process);

#endif
