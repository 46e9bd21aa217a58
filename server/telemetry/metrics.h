/* Counters, for /metrics (Prometheus) and /v2/models/.../stats (Triton's form).
 *
 * All functions may be called on any thread. One lock protects all counters. It is held for a
 * fraction of a microsecond when a request ends, while a scrape takes and releases its counters,
 * and while a unit of text is printed. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/base/status.h"
#include "server/memory/text.h"

/* The stages of a request, with their names in Server-Timing. SEND lasts from the answer's first
 * byte to its last. It ends after the Server-Timing header was sent, so that header cannot report
 * it. TOTAL does not include it. */
#define QD_STAGE_LIST(X)  \
    X(RECEIVE, "receive") \
    X(QUEUE, "queue")     \
    X(DECODE, "decode")   \
    X(COMPUTE, "compute") \
    X(ENCODE, "encode")   \
    X(TOTAL, "total")     \
    X(SEND, "send")

enum qd_stage {
#define X(name, text) QD_STAGE_##name,
    QD_STAGE_LIST(X)
#undef X
        QD_STAGE_COUNT
};

struct qd_metrics;
struct qd_counters;

struct qd_metrics *qd_metrics_create(void); /* returns NULL if malloc failed */
/* Destroys the metrics. All counters must have been released, and no thread may be counting. NULL
 * is fine. */
void qd_metrics_destroy(struct qd_metrics *metrics);

/* Counts an answer of any kind. */
void qd_metrics_count_answer(struct qd_metrics *metrics, unsigned http_status);

/* Counts a request that was refused, even if its client has not read the refusal. Also counts a
 * request whose client was disconnected because it read too slowly. */
void qd_metrics_count_refusal(struct qd_metrics *metrics, enum qd_reason reason);

/* Returns the counters of one version of one model, and creates them if needed. The name is copied.
 * The caller releases the counters. When the last holder has released them, they disappear from all
 * texts. Returns NULL if malloc failed. */
struct qd_counters *qd_metrics_counters(struct qd_metrics *metrics, const char *name,
                                        uint64_t version);
void qd_counters_release(struct qd_counters *counters); /* NULL is fine */

/* Leaves the counters out of Prometheus' texts that begin before an inference is counted. There are
 * well over a hundred versions of operators, each with a dozen series, and most servers use none of
 * them. */
void qd_counters_hide_zeros(struct qd_counters *counters);

/* Counts an inference. http_status is 0 if the client disconnected before its answer. */
void qd_counters_count(struct qd_counters *counters, unsigned http_status,
                       const uint64_t stage_ns[QD_STAGE_COUNT]);

/* The position of a scrape, which prints all counters in units of a few KiB, one unit for each
 * call. The sender need not hold the whole text, and a thread that counts waits for one unit at
 * most. The cursor holds the counters that there are when the scrape begins. They stay until it
 * ends, also if their model is unloaded, and later ones appear in the next scrape. */
struct qd_metrics_cursor {
    struct qd_metrics *metrics;
    struct qd_counters **held;
    size_t count;    /* of them */
    unsigned family; /* the current metric family */
    size_t unit;     /* the next unit of the family, or of the statistics; 0: their beginning */
};

/* Begins a scrape of one model, or of all if `name` is NULL, and of one version, or of all if
 * `version` is NULL. `metrics` is borrowed. Returns false if malloc failed; the cursor needs to be
 * deinitialized then, too. */
bool qd_metrics_cursor_init(struct qd_metrics_cursor *cursor, struct qd_metrics *metrics,
                            const char *name, const uint64_t *version);
void qd_metrics_cursor_deinit(struct qd_metrics_cursor *cursor);

/* Prints the next unit in Prometheus' text format 0.0.4. Units of a metric family follow each
 * other. Returns false after the last unit. A unit that does not fit into the text is printed again
 * by the next call. */
bool qd_metrics_print_next(struct qd_metrics_cursor *cursor, struct qd_text *text);

/* Like qd_metrics_print_next, for {"model_stats":[…]}. */
bool qd_metrics_print_next_stats(struct qd_metrics_cursor *cursor, struct qd_text *text);

/* Prints the two lines before a metric's values, # HELP and # TYPE. `type` is "counter", "gauge" or
 * "histogram". */
void qd_prometheus_type(struct qd_text *text, const char *name, const char *type, const char *help);

/* Writes a label's value, without quotes around it. Backslashes, quotes and newlines are escaped.
 * Bytes that are not UTF-8 become '?'. `label` has room for 2 * strlen(value) + 1 bytes. */
void qd_prometheus_label(const char *value, char *label);

/* ---- What the operating system counts for this process, for gauges ------------------------- */

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
