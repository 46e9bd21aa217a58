#include "server/telemetry/metrics.h"

#include <assert.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "server/base/clock.h"
#include "server/base/lock.h"

/* The upper bounds of the histograms' buckets. */
static const struct {
    const char *seconds;
    uint64_t ns;
} buckets[] = {
    {"0.00005", 50000},  {"0.0001", 100000},  {"0.00025", 250000}, {"0.0005", 500000},
    {"0.001", 1000000},  {"0.0025", 2500000}, {"0.005", 5000000},  {"0.01", 10000000},
    {"0.025", 25000000}, {"0.05", 50000000},  {"0.1", 100000000},  {"0.25", 250000000},
    {"0.5", 500000000},  {"1", 1000000000},   {"2.5", 2500000000}, {"10", 10000000000},
};

enum {
    BUCKET_COUNT = sizeof(buckets) / sizeof(*buckets),
    HTTP_STATUS_MIN = 200,
    HTTP_STATUS_MAX = 599,
};

/* name, label `reason` */
#define FAILURE_LIST(X)     \
    X(REJECTED, "REJECTED") \
    X(CANCELED, "CANCELED") \
    X(BACKEND, "BACKEND")   \
    X(OTHER, "OTHER")

enum failure {
#define X(name, text) FAILURE_##name,
    FAILURE_LIST(X)
#undef X
        FAILURE_COUNT
};

struct qd_counters {
    struct qd_metrics *metrics; /* set once, so it is read without the lock */
    struct qd_counters *next;   /* in the order of creation */
    size_t holder_count;
    bool hides_zeros;
    char *name;
    char *labels; /* model and version in Prometheus' form, without the closing brace */
    uint64_t version;
    uint64_t success_count;
    uint64_t success_ns[QD_STAGE_COUNT];
    uint64_t failure_count[FAILURE_COUNT];
    uint64_t failure_ns;                                  /* from the first byte to the last */
    uint64_t last_ms;                                     /* since 1970; 0: never */
    uint64_t histogram[QD_STAGE_COUNT][BUCKET_COUNT + 1]; /* the last bucket has no upper bound */
};

struct qd_metrics {
    uint64_t started_s; /* since 1970 */
    atomic_uint_least64_t answers[HTTP_STATUS_MAX - HTTP_STATUS_MIN + 1];
    atomic_uint_least64_t refusals[QD_REASON_COUNT];
    pthread_mutex_t
        lock; /* protects the members below, and those of the counters except their names */
    struct qd_counters *first;
    size_t count; /* of counters in the list */
};

struct qd_metrics *qd_metrics_create(void)
{
    struct qd_metrics *metrics = calloc(1, sizeof(*metrics));
    if (metrics != NULL) {
        metrics->started_s = qd_clock_read_ns(CLOCK_REALTIME) / QD_NS_PER_S;
        pthread_mutex_init(&metrics->lock, NULL);
    }
    return metrics;
}

void qd_metrics_destroy(struct qd_metrics *metrics)
{
    if (metrics == NULL)
        return;
    assert(metrics->first == NULL);
    pthread_mutex_destroy(&metrics->lock);
    free(metrics);
}

/* ---- Who counts --------------------------------------------------------------------------- */

static struct qd_counters *make_counters(struct qd_metrics *metrics, const char *name,
                                         uint64_t version)
{
    static const char begin[] = "{model=\"", middle[] = "\",version=\"";
    const size_t bytes = strlen(name) + 1;
    struct qd_counters *counters = calloc(1, sizeof(*counters) + 3 * bytes + sizeof(begin) +
                                                 sizeof(middle) + QD_DECIMAL_BYTES_MAX + 2);
    if (counters == NULL)
        return NULL;
    counters->metrics = metrics;
    counters->name = memcpy(counters + 1, name, bytes);
    counters->labels = strcpy(counters->name + bytes, begin);
    qd_prometheus_label(name, counters->labels + sizeof(begin) - 1);
    strcat(counters->labels, middle);
    *qd_print_decimal(version, counters->labels + strlen(counters->labels)) = '"';
    counters->version = version;
    metrics->count++;
    return counters;
}

struct qd_counters *qd_metrics_counters(struct qd_metrics *metrics, const char *name,
                                        uint64_t version)
{
    struct qd_counters **link = &metrics->first;
    QD_LOCKED(&metrics->lock);
    while (*link != NULL && ((*link)->version != version || strcmp((*link)->name, name) != 0))
        link = &(*link)->next;
    if (*link == NULL)
        *link = make_counters(metrics, name, version);
    if (*link != NULL)
        (*link)->holder_count++;
    return *link;
}

/* Releases one hold of the counters. The lock is held. */
static void release(struct qd_counters *counters)
{
    struct qd_counters **link = &counters->metrics->first;
    if (--counters->holder_count > 0)
        return;
    while (*link != counters)
        link = &(*link)->next;
    *link = counters->next;
    counters->metrics->count--;
    free(counters);
}

void qd_counters_release(struct qd_counters *counters)
{
    if (counters == NULL)
        return;
    QD_LOCKED(&counters->metrics->lock);
    release(counters);
}

void qd_counters_hide_zeros(struct qd_counters *counters)
{
    QD_LOCKED(&counters->metrics->lock);
    counters->hides_zeros = true;
}

/* ---- Counting ----------------------------------------------------------------------------- */

void qd_metrics_count_answer(struct qd_metrics *metrics, unsigned http_status)
{
    assert(http_status >= HTTP_STATUS_MIN && http_status <= HTTP_STATUS_MAX);
    atomic_fetch_add_explicit(&metrics->answers[http_status - HTTP_STATUS_MIN], 1,
                              memory_order_relaxed);
}

void qd_metrics_count_refusal(struct qd_metrics *metrics, enum qd_reason reason)
{
    atomic_fetch_add_explicit(&metrics->refusals[reason], 1, memory_order_relaxed);
}

static void count_success(struct qd_counters *counters, const uint64_t stage_ns[QD_STAGE_COUNT])
{
    counters->success_count++;
    for (unsigned stage = 0; stage < QD_STAGE_COUNT; stage++) {
        size_t bucket = 0;
        while (bucket < BUCKET_COUNT && stage_ns[stage] > buckets[bucket].ns)
            bucket++;
        counters->success_ns[stage] += stage_ns[stage];
        counters->histogram[stage][bucket]++;
    }
}

void qd_counters_count(struct qd_counters *counters, unsigned http_status,
                       const uint64_t stage_ns[QD_STAGE_COUNT])
{
    /* This clock is exact to a few milliseconds, and much faster to read than the exact one. */
    const uint64_t now_ns = qd_clock_read_ns(CLOCK_REALTIME_COARSE);
    QD_LOCKED(&counters->metrics->lock);
    counters->last_ms = now_ns / QD_NS_PER_MS;
    if (http_status == 200) {
        count_success(counters, stage_ns);
        return;
    }
    counters->failure_ns += stage_ns[QD_STAGE_TOTAL];
    counters->failure_count[http_status == 0     ? FAILURE_CANCELED
                            : http_status == 503 ? FAILURE_REJECTED
                            : http_status >= 500 ? FAILURE_BACKEND
                                                 : FAILURE_OTHER]++;
}

/* ---- A scrape ----------------------------------------------------------------------------- */

bool qd_metrics_cursor_init(struct qd_metrics_cursor *cursor, struct qd_metrics *metrics,
                            const char *name, const uint64_t *version)
{
    *cursor = (struct qd_metrics_cursor){.metrics = metrics};
    QD_LOCKED(&metrics->lock);
    cursor->held = malloc((metrics->count + 1) * sizeof(*cursor->held));
    struct qd_counters *at = cursor->held == NULL ? NULL : metrics->first;
    for (; at != NULL; at = at->next) {
        if ((name != NULL && strcmp(at->name, name) != 0) ||
            (version != NULL && at->version != *version))
            continue;
        at->holder_count++;
        cursor->held[cursor->count++] = at;
    }
    return cursor->held != NULL;
}

void qd_metrics_cursor_deinit(struct qd_metrics_cursor *cursor)
{
    pthread_mutex_lock(&cursor->metrics->lock);
    while (cursor->count > 0)
        release(cursor->held[--cursor->count]);
    pthread_mutex_unlock(&cursor->metrics->lock);
    free(cursor->held);
}

/* ---- Prometheus --------------------------------------------------------------------------- */

void qd_prometheus_type(struct qd_text *text, const char *name, const char *type, const char *help)
{
    qd_text_format(text, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

void qd_prometheus_label(const char *value, char *label)
{
    for (size_t left = strlen(value), length; left > 0; value += length, left -= length) {
        length = qd_utf8_length(value, left);
        if (length == 0) {
            length = 1;
            *label++ = '?';
            continue;
        }
        if (*value == '\\' || *value == '"' || *value == '\n')
            *label++ = '\\';
        if (*value == '\n')
            *label++ = 'n';
        else
            label = (char *)memcpy(label, value, length) + length;
    }
    *label = '\0';
}

/* The metric families of versions, in the order in which they are printed. First come Triton's
 * counters, with Triton's names, because dashboards exist for them. The last two rows are the
 * failures and the histograms (FAMILY_FAILURES, FAMILY_HISTOGRAMS). */
static const struct {
    const char *name;
    const char *type;
    enum qd_stage stage; /* of all rows but the last two: the stage whose time it sums;
                            QD_STAGE_COUNT: it counts inferences */
    const char *help;
} families[] = {
    {"nv_inference_request_success", "counter", QD_STAGE_COUNT,
     "Inferences that were answered with a result."},
    {"nv_inference_count", "counter", QD_STAGE_COUNT,
     "Inferences computed. A batch counts as one."},
    {"nv_inference_exec_count", "counter", QD_STAGE_COUNT,
     "Times that the model was computed, the same as nv_inference_count."},
    {"nv_inference_request_duration_us", "counter", QD_STAGE_TOTAL,
     "Microseconds from the first byte of requests to their answers, in all."},
    {"nv_inference_queue_duration_us", "counter", QD_STAGE_QUEUE,
     "Microseconds that requests waited for a worker, in all."},
    {"nv_inference_compute_input_duration_us", "counter", QD_STAGE_DECODE,
     "Microseconds of parsing requests and planning, in all."},
    {"nv_inference_compute_infer_duration_us", "counter", QD_STAGE_COMPUTE,
     "Microseconds of computing results, in all."},
    {"nv_inference_compute_output_duration_us", "counter", QD_STAGE_ENCODE,
     "Microseconds of building answers, in all."},
    {"nv_inference_request_failure", "counter", QD_STAGE_COUNT,
     "Inferences that failed or were refused, by reason."},
    {"quantd_stage_duration_seconds", "histogram", QD_STAGE_COUNT,
     "How long each stage of a successful inference took. The stage total is from the first "
     "byte to the answer."},
};

enum {
    FAMILY_ANSWERS = sizeof(families) / sizeof(*families), /* and all that belongs to no version */
    FAMILY_HISTOGRAMS = FAMILY_ANSWERS - 1,
    FAMILY_FAILURES = FAMILY_HISTOGRAMS - 1,
};

/* Prints one value. Does not use snprintf, which takes four times as long: a thousand versions make
 * megabytes of text. `label` is a further label, or "". `bound` is the bucket's upper bound, or
 * NULL if the value is no bucket. */
static void print_value(struct qd_text *text, const char *name, const struct qd_counters *counters,
                        const char *label, const char *bound, uint64_t value)
{
    qd_text_string(text, name);
    qd_text_string(text, counters->labels);
    qd_text_string(text, label);
    if (bound != NULL) {
        qd_text_string(text, ",le=\"");
        qd_text_string(text, bound);
        qd_text_string(text, "\"");
    }
    qd_text_string(text, "} ");
    qd_text_decimal(text, value);
    qd_text_string(text, "\n");
}

static void print_failures(const struct qd_counters *counters, struct qd_text *text)
{
    static const char *const labels[] = {
#define X(name, text) ",reason=\"" text "\"",
        FAILURE_LIST(X)
#undef X
    };
    for (unsigned reason = 0; reason < FAILURE_COUNT; reason++)
        print_value(text, families[FAMILY_FAILURES].name, counters, labels[reason], NULL,
                    counters->failure_count[reason]);
}

static void print_histogram(const struct qd_counters *counters, enum qd_stage stage,
                            struct qd_text *text)
{
    static const char *const labels[] = {
#define X(name, text) ",stage=\"" text "\"",
        QD_STAGE_LIST(X)
#undef X
    };
    const uint64_t ns = counters->success_ns[stage];
    uint64_t count = 0;
    for (size_t i = 0; i <= BUCKET_COUNT; i++) {
        const char *bound = i == BUCKET_COUNT ? "+Inf" : buckets[i].seconds;
        count += counters->histogram[stage][i];
        print_value(text, "quantd_stage_duration_seconds_bucket", counters, labels[stage], bound,
                    count);
    }
    qd_text_format(text, "quantd_stage_duration_seconds_sum%s%s} %" PRIu64 ".%09" PRIu64 "\n",
                   counters->labels, labels[stage], ns / QD_NS_PER_S, ns % QD_NS_PER_S);
    print_value(text, "quantd_stage_duration_seconds_count", counters, labels[stage], NULL, count);
}

static void print_refusals(const struct qd_metrics *metrics, struct qd_text *text)
{
    static const char *const reasons[] = {
#define X(name, text) text,
        QD_REASON_LIST(X)
#undef X
    };
    qd_prometheus_type(text, "quantd_refusals_total", "counter",
                       "Requests that were refused or cut off, by reason.");
    for (unsigned reason = 0; reason < QD_REASON_COUNT; reason++)
        qd_text_format(text, "quantd_refusals_total{reason=\"%s\"} %" PRIu64 "\n", reasons[reason],
                       atomic_load_explicit(&metrics->refusals[reason], memory_order_relaxed));
}

static void print_answers(const struct qd_metrics *metrics, struct qd_text *text)
{
    qd_prometheus_type(text, "quantd_answers_total", "counter",
                       "Answers to requests of any kind, by HTTP status.");
    for (unsigned i = 0; i < sizeof(metrics->answers) / sizeof(*metrics->answers); i++) {
        const uint64_t count = atomic_load_explicit(&metrics->answers[i], memory_order_relaxed);
        if (count > 0)
            qd_text_format(text, "quantd_answers_total{code=\"%u\"} %" PRIu64 "\n",
                           HTTP_STATUS_MIN + i, count);
    }
    qd_prometheus_type(text, "process_start_time_seconds", "gauge",
                       "When the process started, in seconds since 1970.");
    qd_text_format(text, "process_start_time_seconds %" PRIu64 "\n", metrics->started_s);
}

/* Prints the values of one version in one family; of the histograms, one stage. */
static void print_version(const struct qd_counters *counters, unsigned family, enum qd_stage stage,
                          struct qd_text *text)
{
    if (family < FAMILY_FAILURES) {
        const enum qd_stage summed = families[family].stage;
        print_value(text, families[family].name, counters, "", NULL,
                    summed == QD_STAGE_COUNT ? counters->success_count
                                             : counters->success_ns[summed] / QD_NS_PER_US);
    } else if (family == FAMILY_FAILURES) {
        print_failures(counters, text);
    } else if (counters->success_count > 0) { /* others have no histograms, which are long */
        print_histogram(counters, stage, text);
    }
}

/* Leaves out counters that are hidden when the text begins. If one of them counts meanwhile, it
 * appears in the next scrape, in all families together. The lock is held. */
static void drop_hidden(struct qd_metrics_cursor *cursor)
{
    size_t kept = 0;
    for (size_t i = 0; i < cursor->count; i++) {
        struct qd_counters *counters = cursor->held[i];
        if (counters->hides_zeros && counters->last_ms == 0)
            release(counters);
        else
            cursor->held[kept++] = counters;
    }
    cursor->count = kept;
}

bool qd_metrics_print_next(struct qd_metrics_cursor *cursor, struct qd_text *text)
{
    if (cursor->family == FAMILY_ANSWERS) {
        print_answers(cursor->metrics, text);
        print_refusals(cursor->metrics, text);
        return text->failed;
    }
    const size_t each = cursor->family == FAMILY_HISTOGRAMS ? QD_STAGE_COUNT : 1;
    QD_LOCKED(&cursor->metrics->lock);
    if (cursor->unit == 0 && cursor->family == 0)
        drop_hidden(cursor);
    if (cursor->unit == 0)
        qd_prometheus_type(text, families[cursor->family].name, families[cursor->family].type,
                           families[cursor->family].help);
    else
        print_version(cursor->held[(cursor->unit - 1) / each], cursor->family,
                      (enum qd_stage)((cursor->unit - 1) % each), text);
    cursor->unit += !text->failed;
    if (cursor->unit > each * cursor->count) {
        cursor->unit = 0;
        cursor->family++;
    }
    return true;
}

/* ---- Triton's statistics ------------------------------------------------------------------ */

static void print_duration(struct qd_text *text, const char *name, uint64_t count, uint64_t ns,
                           const char *after)
{
    qd_text_format(text, "\"%s\":{\"count\":%" PRIu64 ",\"ns\":%" PRIu64 "}%s", name, count, ns,
                   after);
}

static void print_compute(struct qd_text *text, const struct qd_counters *counters,
                          const char *after)
{
    uint64_t count = counters->success_count;
    print_duration(text, "compute_input", count, counters->success_ns[QD_STAGE_DECODE], ",");
    print_duration(text, "compute_infer", count, counters->success_ns[QD_STAGE_COMPUTE], ",");
    print_duration(text, "compute_output", count, counters->success_ns[QD_STAGE_ENCODE], after);
}

static void print_model_stats(struct qd_text *text, const struct qd_counters *counters)
{
    uint64_t count = counters->success_count;
    uint64_t failures = 0;
    for (unsigned reason = 0; reason < FAILURE_COUNT; reason++)
        failures += counters->failure_count[reason];
    qd_text_string(text, "{\"name\":");
    qd_text_json_string(text, counters->name);
    qd_text_format(text,
                   ",\"version\":\"%" PRIu64 "\",\"last_inference\":%" PRIu64
                   ",\"inference_count\":%" PRIu64 ",\"execution_count\":%" PRIu64
                   ",\"inference_stats\":{",
                   counters->version, counters->last_ms, count, count);
    print_duration(text, "success", count, counters->success_ns[QD_STAGE_TOTAL], ",");
    print_duration(text, "fail", failures, counters->failure_ns, ",");
    print_duration(text, "queue", count, counters->success_ns[QD_STAGE_QUEUE], ",");
    print_compute(text, counters, ",");
    print_duration(text, "cache_hit", 0, 0, ",");
    print_duration(text, "cache_miss", 0, 0, "},\"response_stats\":{},\"batch_stats\":[");
    if (count > 0) {
        qd_text_string(text, "{\"batch_size\":1,");
        print_compute(text, counters, "}");
    }
    qd_text_string(text, "],\"memory_usage\":[]}");
}

bool qd_metrics_print_next_stats(struct qd_metrics_cursor *cursor, struct qd_text *text)
{
    if (cursor->unit > cursor->count) {
        qd_text_string(text, "]}");
        return text->failed;
    }
    QD_LOCKED(&cursor->metrics->lock);
    if (cursor->unit == 0) {
        qd_text_string(text, "{\"model_stats\":[");
    } else {
        qd_text_string(text, cursor->unit > 1 ? "," : "");
        print_model_stats(text, cursor->held[cursor->unit - 1]);
    }
    cursor->unit += !text->failed;
    return true;
}
