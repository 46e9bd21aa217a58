/* Gauges for /metrics: how much of each of the server's bounds is in use, and what the operating
 * system counts for the process. They are read at each scrape. */
#ifndef SERVER_TELEMETRY_GAUGES_H
#define SERVER_TELEMETRY_GAUGES_H

#include <stddef.h>
#include <stdint.h>

#include "server/memory/text.h"
#include "server/telemetry/process.h"

/* How much of a bound is in use. */
struct qd_usage {
    uint64_t used;
    uint64_t max;
};

#define QD_LISTENER_NAME_BYTES 300

struct qd_listener_gauge {
    const char *name;            /* shorter than QD_LISTENER_NAME_BYTES */
    struct qd_usage connections; /* connections that were admitted */
    uint64_t refused;            /* since the start */
};

struct qd_gauges {
    const char *cpu_tier; /* this and the next two: the kernels in use (qk_kernels_tier, …) */
    const char *gemm;
    const char *blas_core;
    struct qd_usage queue;    /* jobs that wait for a worker */
    struct qd_usage workers;  /* how many workers compute, and how many there are */
    struct qd_usage inflight; /* bytes of requests */
    struct qd_usage models;   /* bytes of loaded models */
    struct qd_usage loads;    /* loads that wait */
    struct qd_usage regions;  /* shared memory regions; 0 of 0 if shared memory is off */
    struct qd_usage region_bytes;
    uint64_t inflight_kept; /* bytes kept for reuse, not counting those in use */
    uint64_t models_kept;
    const uint64_t *connections; /* open connections of each I/O thread */
    size_t io_thread_count;
    uint64_t model_count; /* loaded models */
    const struct qd_listener_gauge *listeners;
    size_t listener_count;
    uint64_t access_lines_dropped;
    uint64_t event_lines_dropped;
    struct qd_process process;
};

/* Prints the gauges in Prometheus' text format 0.0.4: 4 KiB, and up to 36 KiB with 16 listeners
 * whose names are as long as possible. */
void qd_gauges_print(const struct qd_gauges *gauges, struct qd_text *text);

#endif
