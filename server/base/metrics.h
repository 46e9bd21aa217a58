/* Counters, for /metrics (Prometheus) and /v2/models/.../stats (Triton's form).
 *
 * On any thread: a lock is over all of them, held for a fraction of a microsecond when a request is
 * done, and while they are printed. */
#ifndef SERVER_BASE_METRICS_H
#define SERVER_BASE_METRICS_H

#include <stddef.h>
#include <stdint.h>

#include "server/base/text.h"

/* With their names in Server-Timing. The last, from the answer's first byte to its last, comes
 * after that header, and is no part of the total. */
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

extern const char *const qd_stage_names[QD_STAGE_COUNT];

struct qd_metrics;
struct qd_counters;

struct qd_metrics *qd_metrics_create(void); /* NULL: malloc failed */
/* All counters must be released, and nobody counts. NULL is fine. */
void qd_metrics_destroy(struct qd_metrics *metrics);

/* Any answer. */
void qd_metrics_count_answer(struct qd_metrics *metrics, unsigned http_status);

/* Those of one version of one model, found or made; a copy of the name is kept. NULL: malloc
 * failed. Who takes them releases them; with their last holder they vanish from all texts. */
struct qd_counters *qd_metrics_counters(struct qd_metrics *metrics, const char *name,
                                        uint64_t version);
void qd_counters_release(struct qd_counters *counters); /* NULL is fine */

/* An inference; http_status 0: the client went before its answer. */
void qd_counters_count(struct qd_counters *counters, unsigned http_status,
                       const uint64_t stage_ns[QD_STAGE_COUNT]);

/* Prometheus' text format 0.0.4. */
void qd_metrics_print(struct qd_metrics *metrics, struct qd_text *text);

/* {"model_stats":[…]}: of all models (name NULL), of one, or of one version. */
void qd_metrics_print_stats(struct qd_metrics *metrics, const char *name, const uint64_t *version,
                            struct qd_text *text);

#endif
