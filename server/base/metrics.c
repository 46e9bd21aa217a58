#include "server/base/metrics.h"

#include <assert.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "server/base/clock.h"
#include "server/base/prometheus.h"

const char *const qd_stage_names[QD_STAGE_COUNT] = {
#define X(name, text) text,
    QD_STAGE_LIST(X)
#undef X
};

/* Upper bounds of the histograms' buckets. */
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

/*    name, as the label `reason` */
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
    struct qd_metrics *metrics; /* set once: read without the lock */
    struct qd_counters *next;   /* in the order in which they were made */
    size_t holder_count;
    char *name;
    char *label; /* the name as Prometheus wants it */
    uint64_t version;
    uint64_t success_count;
    uint64_t success_ns[QD_STAGE_COUNT];
    uint64_t failure_count[FAILURE_COUNT];
    uint64_t failure_ns;                                  /* end to end */
    uint64_t last_ms;                                     /* since 1970; 0: never */
    uint64_t histogram[QD_STAGE_COUNT][BUCKET_COUNT + 1]; /* the last: beyond all bounds */
};

struct qd_metrics {
    uint64_t started_s; /* since 1970 */
    atomic_uint_least64_t answers[HTTP_STATUS_MAX - HTTP_STATUS_MIN + 1];
    pthread_mutex_t lock; /* over all below, and the counters' own fields but their names */
    struct qd_counters *first;
};

/* To some milliseconds, for a fraction of the time that asking the CPU's counter takes. */
static struct timespec wall_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME_COARSE, &now);
    return now;
}

struct qd_metrics *qd_metrics_create(void)
{
    struct qd_metrics *metrics = calloc(1, sizeof(*metrics));
    if (metrics != NULL) {
        metrics->started_s = (uint64_t)wall_clock().tv_sec;
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
    const size_t bytes = strlen(name) + 1;
    struct qd_counters *counters = calloc(1, sizeof(*counters) + 3 * bytes);
    if (counters == NULL)
        return NULL;
    counters->metrics = metrics;
    counters->name = memcpy(counters + 1, name, bytes);
    counters->label = counters->name + bytes;
    qd_prometheus_label(name, counters->label);
    counters->version = version;
    return counters;
}

struct qd_counters *qd_metrics_counters(struct qd_metrics *metrics, const char *name,
                                        uint64_t version)
{
    struct qd_counters **link = &metrics->first;
    pthread_mutex_lock(&metrics->lock);
    while (*link != NULL && ((*link)->version != version || strcmp((*link)->name, name) != 0))
        link = &(*link)->next;
    if (*link == NULL)
        *link = make_counters(metrics, name, version);
    if (*link != NULL)
        (*link)->holder_count++;
    struct qd_counters *counters = *link;
    pthread_mutex_unlock(&metrics->lock);
    return counters;
}

void qd_counters_release(struct qd_counters *counters)
{
    if (counters == NULL)
        return;
    struct qd_metrics *metrics = counters->metrics;
    pthread_mutex_lock(&metrics->lock);
    if (--counters->holder_count == 0) {
        struct qd_counters **link = &metrics->first;
        while (*link != counters)
            link = &(*link)->next;
        *link = counters->next;
        free(counters);
    }
    pthread_mutex_unlock(&metrics->lock);
}

/* ---- Counting ----------------------------------------------------------------------------- */

void qd_metrics_count_answer(struct qd_metrics *metrics, unsigned http_status)
{
    assert(http_status >= HTTP_STATUS_MIN && http_status <= HTTP_STATUS_MAX);
    atomic_fetch_add_explicit(&metrics->answers[http_status - HTTP_STATUS_MIN], 1,
                              memory_order_relaxed);
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

static void count_failure(struct qd_counters *counters, unsigned http_status, uint64_t total_ns)
{
    enum failure failure = http_status == 0     ? FAILURE_CANCELED
                           : http_status == 503 ? FAILURE_REJECTED
                           : http_status >= 500 ? FAILURE_BACKEND
                                                : FAILURE_OTHER;
    counters->failure_count[failure]++;
    counters->failure_ns += total_ns;
}

void qd_counters_count(struct qd_counters *counters, unsigned http_status,
                       const uint64_t stage_ns[QD_STAGE_COUNT])
{
    const struct timespec now = wall_clock();
    pthread_mutex_lock(&counters->metrics->lock);
    counters->last_ms = (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
    if (http_status == 200)
        count_success(counters, stage_ns);
    else
        count_failure(counters, http_status, stage_ns[QD_STAGE_TOTAL]);
    pthread_mutex_unlock(&counters->metrics->lock);
}

/* ---- Prometheus --------------------------------------------------------------------------- */

static uint64_t success_us(const struct qd_counters *counters, enum qd_stage stage)
{
    return counters->success_ns[stage] / QD_NS_PER_US;
}

/* Triton's counters, by its names: dashboards exist for them.
 *    name, value of `counters`, help */
#define COUNTER_LIST(X)                                                                         \
    X("nv_inference_request_success", counters->success_count, "Inferences answered with 200.") \
    X("nv_inference_count", counters->success_count,                                            \
      "Inferences computed, a batch counting as one.")                                          \
    X("nv_inference_exec_count", counters->success_count, "Executions of the operator.")        \
    X("nv_inference_request_duration_us", success_us(counters, QD_STAGE_TOTAL),                 \
      "From the first byte to the answer.")                                                     \
    X("nv_inference_queue_duration_us", success_us(counters, QD_STAGE_QUEUE),                   \
      "Waiting for a worker.")                                                                  \
    X("nv_inference_compute_input_duration_us", success_us(counters, QD_STAGE_DECODE),          \
      "Parsing and planning.")                                                                  \
    X("nv_inference_compute_infer_duration_us", success_us(counters, QD_STAGE_COMPUTE),         \
      "Computing the operator.")                                                                \
    X("nv_inference_compute_output_duration_us", success_us(counters, QD_STAGE_ENCODE),         \
      "Building the answer.")

static void print_counters(const struct qd_metrics *metrics, struct qd_text *text)
{
#define X(metric, value, about)                                                                \
    qd_prometheus_type(text, metric, "counter", about);                                        \
    for (const struct qd_counters *counters = metrics->first; counters != NULL;                \
         counters = counters->next)                                                            \
        qd_text_format(text, "%s{model=\"%s\",version=\"%" PRIu64 "\"} %" PRIu64 "\n", metric, \
                       counters->label, counters->version, value);
    COUNTER_LIST(X)
#undef X
}

static void print_failures(const struct qd_metrics *metrics, struct qd_text *text)
{
    static const char *const reasons[] = {
#define X(name, label) label,
        FAILURE_LIST(X)
#undef X
    };
    const char *name = "nv_inference_request_failure";
    qd_prometheus_type(text, name, "counter", "Inferences without a result.");
    for (const struct qd_counters *counters = metrics->first; counters != NULL;
         counters = counters->next) {
        for (unsigned reason = 0; reason < FAILURE_COUNT; reason++) {
            qd_text_format(text,
                           "%s{model=\"%s\",version=\"%" PRIu64 "\",reason=\"%s\"} %" PRIu64 "\n",
                           name, counters->label, counters->version, reasons[reason],
                           counters->failure_count[reason]);
        }
    }
}

static void print_histogram(const struct qd_counters *counters, enum qd_stage stage,
                            struct qd_text *text)
{
    const char *name = "quantd_stage_duration_seconds";
    char labels[384];
    snprintf(labels, sizeof(labels), "model=\"%s\",version=\"%" PRIu64 "\",stage=\"%s\"",
             counters->label, counters->version, qd_stage_names[stage]);
    uint64_t count = 0;
    for (size_t i = 0; i < BUCKET_COUNT; i++) {
        count += counters->histogram[stage][i];
        qd_text_format(text, "%s_bucket{%s,le=\"%s\"} %" PRIu64 "\n", name, labels,
                       buckets[i].seconds, count);
    }
    uint64_t ns = counters->success_ns[stage];
    qd_text_format(text,
                   "%s_bucket{%s,le=\"+Inf\"} %" PRIu64 "\n%s_sum{%s} %" PRIu64 ".%09" PRIu64
                   "\n%s_count{%s} %" PRIu64 "\n",
                   name, labels, counters->success_count, name, labels, ns / QD_NS_PER_S,
                   ns % QD_NS_PER_S, name, labels, counters->success_count);
}

/* Only of versions that were asked for: 7 stages of 18 lines each are a lot of text. */
static void print_histograms(const struct qd_metrics *metrics, struct qd_text *text)
{
    qd_prometheus_type(text, "quantd_stage_duration_seconds", "histogram",
                       "Stages of the inferences answered with 200.");
    for (const struct qd_counters *counters = metrics->first; counters != NULL;
         counters = counters->next)
        for (unsigned stage = 0; stage < QD_STAGE_COUNT && counters->success_count > 0; stage++)
            print_histogram(counters, stage, text);
}

static void print_answers(const struct qd_metrics *metrics, struct qd_text *text)
{
    qd_prometheus_type(text, "quantd_answers_total", "counter",
                       "Answers of any kind, by HTTP status.");
    for (unsigned i = 0; i < sizeof(metrics->answers) / sizeof(*metrics->answers); i++) {
        const uint64_t count = atomic_load_explicit(&metrics->answers[i], memory_order_relaxed);
        if (count > 0)
            qd_text_format(text, "quantd_answers_total{code=\"%u\"} %" PRIu64 "\n",
                           HTTP_STATUS_MIN + i, count);
    }
}

void qd_metrics_print(struct qd_metrics *metrics, struct qd_text *text)
{
    pthread_mutex_lock(&metrics->lock);
    print_counters(metrics, text);
    print_failures(metrics, text);
    print_histograms(metrics, text);
    pthread_mutex_unlock(&metrics->lock);
    print_answers(metrics, text);
    qd_prometheus_type(text, "process_start_time_seconds", "gauge", "Since 1970.");
    qd_text_format(text, "process_start_time_seconds %" PRIu64 "\n", metrics->started_s);
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

void qd_metrics_print_stats(struct qd_metrics *metrics, const char *name, const uint64_t *version,
                            struct qd_text *text)
{
    bool any = false;
    qd_text_string(text, "{\"model_stats\":[");
    pthread_mutex_lock(&metrics->lock);
    for (const struct qd_counters *counters = metrics->first; counters != NULL;
         counters = counters->next) {
        if ((name == NULL || strcmp(counters->name, name) == 0) &&
            (version == NULL || counters->version == *version)) {
            qd_text_string(text, any ? "," : "");
            print_model_stats(text, counters);
            any = true;
        }
    }
    pthread_mutex_unlock(&metrics->lock);
    qd_text_string(text, "]}");
}
