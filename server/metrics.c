#include "server/metrics.h"

#include <assert.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "server/clock.h"
#include "server/version.h"

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

/* Of one version of one operator. */
struct row {
    const struct qk_operator *op;
    const struct qk_version *version;
    uint64_t success_count;
    uint64_t success_ns[QD_STAGE_COUNT];
    uint64_t failure_count[FAILURE_COUNT];
    uint64_t failure_ns;                                  /* end to end */
    uint64_t last_ms;                                     /* since 1970; 0: never */
    uint64_t histogram[QD_STAGE_COUNT][BUCKET_COUNT + 1]; /* the last: beyond all bounds */
};

struct qd_metrics {
    uint64_t started_s; /* since 1970 */
    uint64_t answers[HTTP_STATUS_MAX - HTTP_STATUS_MIN + 1];
    size_t row_count;
    struct row rows[];
};

static struct timespec wall_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now;
}

struct qd_metrics *qd_metrics_create(void)
{
    size_t op_count;
    const struct qk_operator *const *ops = qk_operators(&op_count);
    size_t row_count = 0;
    for (size_t i = 0; i < op_count; i++)
        row_count += ops[i]->version_count;
    struct qd_metrics *metrics = calloc(1, sizeof(*metrics) + row_count * sizeof(*metrics->rows));
    if (metrics == NULL)
        return NULL;
    metrics->started_s = (uint64_t)wall_clock().tv_sec;
    for (size_t i = 0; i < op_count; i++) {
        for (size_t k = 0; k < ops[i]->version_count; k++) {
            struct row *row = &metrics->rows[metrics->row_count++];
            row->op = ops[i];
            row->version = &ops[i]->versions[k];
        }
    }
    return metrics;
}

void qd_metrics_destroy(struct qd_metrics *metrics)
{
    free(metrics);
}

/* ---- Counting ----------------------------------------------------------------------------- */

void qd_metrics_count_answer(struct qd_metrics *metrics, unsigned http_status)
{
    assert(http_status >= HTTP_STATUS_MIN && http_status <= HTTP_STATUS_MAX);
    metrics->answers[http_status - HTTP_STATUS_MIN]++;
}

static struct row *find_row(struct qd_metrics *metrics, const struct qk_version *version)
{
    size_t i = 0;
    while (metrics->rows[i].version != version) {
        i++;
        assert(i < metrics->row_count);
    }
    return &metrics->rows[i];
}

static void count_success(struct row *row, const uint64_t stage_ns[QD_STAGE_COUNT])
{
    row->success_count++;
    for (unsigned stage = 0; stage < QD_STAGE_COUNT; stage++) {
        size_t bucket = 0;
        while (bucket < BUCKET_COUNT && stage_ns[stage] > buckets[bucket].ns)
            bucket++;
        row->success_ns[stage] += stage_ns[stage];
        row->histogram[stage][bucket]++;
    }
}

void qd_metrics_count_infer(struct qd_metrics *metrics, const struct qk_version *version,
                            unsigned http_status, const uint64_t stage_ns[QD_STAGE_COUNT])
{
    struct row *row = find_row(metrics, version);
    struct timespec now = wall_clock();
    row->last_ms = (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
    if (http_status == 200) {
        count_success(row, stage_ns);
        return;
    }
    enum failure failure = http_status == 0     ? FAILURE_CANCELED
                           : http_status == 503 ? FAILURE_REJECTED
                           : http_status >= 500 ? FAILURE_BACKEND
                                                : FAILURE_OTHER;
    row->failure_count[failure]++;
    row->failure_ns += stage_ns[QD_STAGE_TOTAL];
}

/* ---- Prometheus --------------------------------------------------------------------------- */

static void print_type(struct qd_text *text, const char *name, const char *type, const char *help)
{
    qd_text_format(text, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void print_value(struct qd_text *text, const char *name, const char *type, const char *help,
                        uint64_t value)
{
    print_type(text, name, type, help);
    qd_text_format(text, "%s %" PRIu64 "\n", name, value);
}

static uint64_t success_us(const struct row *row, enum qd_stage stage)
{
    return row->success_ns[stage] / QD_NS_PER_US;
}

/* Triton's counters, by its names: dashboards exist for them.
 *    name, value of `row`, help */
#define COUNTER_LIST(X)                                                                           \
    X("nv_inference_request_success", row->success_count, "Inferences answered with 200.")        \
    X("nv_inference_count", row->success_count, "Inferences computed, a batch counting as one.")  \
    X("nv_inference_exec_count", row->success_count, "Executions of the operator.")               \
    X("nv_inference_request_duration_us", success_us(row, QD_STAGE_TOTAL),                        \
      "From the first byte to the answer.")                                                       \
    X("nv_inference_queue_duration_us", success_us(row, QD_STAGE_QUEUE), "Waiting for a worker.") \
    X("nv_inference_compute_input_duration_us", success_us(row, QD_STAGE_DECODE),                 \
      "Parsing and planning.")                                                                    \
    X("nv_inference_compute_infer_duration_us", success_us(row, QD_STAGE_COMPUTE),                \
      "Computing the operator.")                                                                  \
    X("nv_inference_compute_output_duration_us", success_us(row, QD_STAGE_ENCODE),                \
      "Building the answer.")

static void print_counters(const struct qd_metrics *metrics, struct qd_text *text)
{
    const struct row *const end = metrics->rows + metrics->row_count;
#define X(metric, value, about)                                                       \
    print_type(text, metric, "counter", about);                                       \
    for (const struct row *row = metrics->rows; row < end; row++)                     \
        qd_text_format(text, "%s{model=\"%s\",version=\"%u\"} %" PRIu64 "\n", metric, \
                       row->op->name, row->version->number, value);
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
    print_type(text, name, "counter", "Inferences without a result.");
    for (size_t i = 0; i < metrics->row_count; i++) {
        const struct row *row = &metrics->rows[i];
        for (unsigned reason = 0; reason < FAILURE_COUNT; reason++) {
            qd_text_format(text, "%s{model=\"%s\",version=\"%u\",reason=\"%s\"} %" PRIu64 "\n",
                           name, row->op->name, row->version->number, reasons[reason],
                           row->failure_count[reason]);
        }
    }
}

static void print_histogram(const struct row *row, enum qd_stage stage, struct qd_text *text)
{
    const char *name = "quantd_stage_duration_seconds";
    char labels[256];
    snprintf(labels, sizeof(labels), "model=\"%s\",version=\"%u\",stage=\"%s\"", row->op->name,
             row->version->number, qd_stage_names[stage]);
    uint64_t count = 0;
    for (size_t i = 0; i < BUCKET_COUNT; i++) {
        count += row->histogram[stage][i];
        qd_text_format(text, "%s_bucket{%s,le=\"%s\"} %" PRIu64 "\n", name, labels,
                       buckets[i].seconds, count);
    }
    uint64_t ns = row->success_ns[stage];
    qd_text_format(text,
                   "%s_bucket{%s,le=\"+Inf\"} %" PRIu64 "\n%s_sum{%s} %" PRIu64 ".%09" PRIu64
                   "\n%s_count{%s} %" PRIu64 "\n",
                   name, labels, row->success_count, name, labels, ns / QD_NS_PER_S,
                   ns % QD_NS_PER_S, name, labels, row->success_count);
}

/* Only of versions that were asked for: 6 stages of 18 lines each are a lot of text. */
static void print_histograms(const struct qd_metrics *metrics, struct qd_text *text)
{
    print_type(text, "quantd_stage_duration_seconds", "histogram",
               "Stages of the inferences answered with 200.");
    for (size_t i = 0; i < metrics->row_count; i++)
        for (unsigned stage = 0; stage < QD_STAGE_COUNT && metrics->rows[i].success_count > 0;
             stage++)
            print_histogram(&metrics->rows[i], stage, text);
}

static void print_answers(const struct qd_metrics *metrics, struct qd_text *text)
{
    print_type(text, "quantd_answers_total", "counter", "Answers of any kind, by HTTP status.");
    for (unsigned i = 0; i < sizeof(metrics->answers) / sizeof(*metrics->answers); i++) {
        if (metrics->answers[i] > 0) {
            qd_text_format(text, "quantd_answers_total{code=\"%u\"} %" PRIu64 "\n",
                           HTTP_STATUS_MIN + i, metrics->answers[i]);
        }
    }
}

void qd_metrics_print(const struct qd_metrics *metrics, const struct qd_gauges *gauges,
                      struct qd_text *text)
{
    print_counters(metrics, text);
    print_failures(metrics, text);
    print_histograms(metrics, text);
    print_answers(metrics, text);
    print_value(text, "quantd_connections", "gauge", "Open connections.", gauges->connections);
    print_value(text, "quantd_queue_length", "gauge", "Requests waiting for a worker.",
                gauges->queue_length);
    print_value(text, "quantd_inflight_bytes", "gauge",
                "Memory held by requests: bodies, tensors, answers.", gauges->inflight_bytes);
    print_value(text, "quantd_inflight_bytes_max", "gauge", "Its bound, --max-inflight-bytes.",
                gauges->inflight_bytes_max);
    print_type(text, "quantd_info", "gauge", "What runs.");
    qd_text_format(text,
                   "quantd_info{version=\"%s\",cpu=\"%s\",gemm=\"%s\",openblas_core=\"%s\"} 1\n",
                   QD_VERSION, gauges->cpu_tier, gauges->gemm, gauges->blas_core);
    print_value(text, "process_start_time_seconds", "gauge", "Since 1970.", metrics->started_s);
}

/* ---- Triton's statistics ------------------------------------------------------------------ */

static void print_duration(struct qd_text *text, const char *name, uint64_t count, uint64_t ns,
                           const char *after)
{
    qd_text_format(text, "\"%s\":{\"count\":%" PRIu64 ",\"ns\":%" PRIu64 "}%s", name, count, ns,
                   after);
}

static void print_compute(struct qd_text *text, const struct row *row, const char *after)
{
    uint64_t count = row->success_count;
    print_duration(text, "compute_input", count, row->success_ns[QD_STAGE_DECODE], ",");
    print_duration(text, "compute_infer", count, row->success_ns[QD_STAGE_COMPUTE], ",");
    print_duration(text, "compute_output", count, row->success_ns[QD_STAGE_ENCODE], after);
}

static void print_row_stats(struct qd_text *text, const struct row *row)
{
    uint64_t count = row->success_count;
    uint64_t failures = 0;
    for (unsigned reason = 0; reason < FAILURE_COUNT; reason++)
        failures += row->failure_count[reason];
    qd_text_format(text,
                   "{\"name\":\"%s\",\"version\":\"%u\",\"last_inference\":%" PRIu64
                   ",\"inference_count\":%" PRIu64 ",\"execution_count\":%" PRIu64
                   ",\"inference_stats\":{",
                   row->op->name, row->version->number, row->last_ms, count, count);
    print_duration(text, "success", count, row->success_ns[QD_STAGE_TOTAL], ",");
    print_duration(text, "fail", failures, row->failure_ns, ",");
    print_duration(text, "queue", count, row->success_ns[QD_STAGE_QUEUE], ",");
    print_compute(text, row, ",");
    print_duration(text, "cache_hit", 0, 0, ",");
    print_duration(text, "cache_miss", 0, 0, "},\"response_stats\":{},\"batch_stats\":[");
    if (count > 0) {
        qd_text_string(text, "{\"batch_size\":1,");
        print_compute(text, row, "}");
    }
    qd_text_string(text, "],\"memory_usage\":[]}");
}

void qd_metrics_print_stats(const struct qd_metrics *metrics, const struct qk_operator *op,
                            const struct qk_version *version, struct qd_text *text)
{
    bool any = false;
    qd_text_string(text, "{\"model_stats\":[");
    for (size_t i = 0; i < metrics->row_count; i++) {
        const struct row *row = &metrics->rows[i];
        if ((op == NULL || row->op == op) && (version == NULL || row->version == version)) {
            qd_text_string(text, any ? "," : "");
            print_row_stats(text, row);
            any = true;
        }
    }
    qd_text_string(text, "]}");
}
