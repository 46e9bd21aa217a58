/* Counters, for /metrics (Prometheus) and /v2/models/.../stats (Triton's form).
 *
 * On any thread: a lock is over all of them, held for a fraction of a microsecond when a request is
 * done, and while a unit of a text is printed. */
#ifndef SERVER_TELEMETRY_METRICS_H
#define SERVER_TELEMETRY_METRICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/base/status.h"
#include "server/memory/text.h"

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

/* A request that was refused, whether its client has read that or not, or whose client was cut off
 * since it read too slowly. */
void qd_metrics_count_refusal(struct qd_metrics *metrics, enum qd_reason reason);

/* Those of one version of one model, found or made; a copy of the name is kept. NULL: malloc
 * failed. Who takes them releases them; with their last holder they vanish from all texts. */
struct qd_counters *qd_metrics_counters(struct qd_metrics *metrics, const char *name,
                                        uint64_t version);
void qd_counters_release(struct qd_counters *counters); /* NULL is fine */

/* An inference; http_status 0: the client went before its answer. */
void qd_counters_count(struct qd_counters *counters, unsigned http_status,
                       const uint64_t stage_ns[QD_STAGE_COUNT]);

/* Where a text of all of them has got to, which is printed by units: by each call the next one, of
 * a few KiB at most. So who sends it need not have it whole, and whoever counts waits for one unit
 * at most. The counters of a model that goes meanwhile stay until the cursor has passed them. Those
 * made since it began are in the next text: one that came again would be twice in this. */
struct qd_metrics_cursor {
    struct qd_metrics *metrics;
    const char *name;        /* of the model that statistics are of; NULL: all */
    const uint64_t *version; /* and of this version only; NULL: all */
    uint64_t made_count;     /* so many had been made when it began */
    struct qd_counters *at;  /* held; NULL: what comes before, or behind, those of the versions */
    unsigned family;         /* of metrics */
    unsigned stage;          /* of the versions' histograms */
    bool any;                /* of a list's entries is printed */
    bool over;               /* all of them are */
};

/* All of it is borrowed. */
void qd_metrics_cursor_init(struct qd_metrics_cursor *cursor, struct qd_metrics *metrics,
                            const char *name, const uint64_t *version);
void qd_metrics_cursor_deinit(struct qd_metrics_cursor *cursor);

/* The next unit of Prometheus' text format 0.0.4: a family of metrics has one after the other.
 * False: it was the last. A unit for which the text has no room is the next again. */
bool qd_metrics_print_next(struct qd_metrics_cursor *cursor, struct qd_text *text);

/* The same of {"model_stats":[…]}: of all models, of one, or of one version. */
bool qd_metrics_print_next_stats(struct qd_metrics_cursor *cursor, struct qd_text *text);

#endif
