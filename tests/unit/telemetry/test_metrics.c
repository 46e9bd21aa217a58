#include "server/telemetry/metrics.h"

#include <criterion/criterion.h>
#include <stdio.h>

#include "server/work/stream.h"
#include "tests/unit/scratch.h"

typedef bool print_next(struct qd_metrics_cursor *cursor, struct qd_text *text);

/* Prints a whole text. Each unit has its own buffer of `room` bytes, or of twice as many if that is
 * too small. The caller frees the result. */
static char *print_all(struct qd_metrics_cursor *cursor, print_next *next, size_t room_bytes)
{
    char *all = NULL;
    size_t bytes = 0;
    bool more = true;
    for (size_t room = room_bytes; more;) {
        struct qd_text text;
        all = realloc(all, bytes + room + 1);
        cr_assert_not_null(all);
        qd_text_init_in(&text, all + bytes, room);
        more = next(cursor, &text);
        cr_assert(more || !text.failed, "the last unit has no room, and is not asked for again");
        bytes += text.failed ? 0 : text.bytes;
        room = text.failed ? 2 * room : room_bytes;
    }
    all[bytes] = '\0';
    qd_metrics_cursor_deinit(cursor);
    return all;
}

static char *print(struct qd_metrics *metrics)
{
    struct qd_metrics_cursor cursor;
    cr_assert(qd_metrics_cursor_init(&cursor, metrics, NULL, NULL));
    return print_all(&cursor, qd_metrics_print_next, QD_STREAM_BYTES);
}

static char *print_stats(struct qd_metrics *metrics, const char *name, const uint64_t *version)
{
    struct qd_metrics_cursor cursor;
    cr_assert(qd_metrics_cursor_init(&cursor, metrics, name, version));
    return print_all(&cursor, qd_metrics_print_next_stats, QD_STREAM_BYTES);
}

/* The counters of an operator that nobody uses. */
Test(metrics, hidden_zeros)
{
    const uint64_t stage_ns[QD_STAGE_COUNT] = {0};
    struct qd_metrics *metrics = qd_metrics_create();
    struct qd_counters *counters = qd_metrics_counters(metrics, "onnx.QLinearConv", 10);
    qd_counters_hide_zeros(counters);
    char *text = print(metrics);
    cr_assert(strstr(text, "onnx.QLinearConv") == NULL);
    free(text);
    struct qd_metrics_cursor cursor;
    struct qd_text first;
    char room[QD_STREAM_BYTES];
    cr_assert(qd_metrics_cursor_init(&cursor, metrics, NULL, NULL));
    qd_text_init_in(&first, room, sizeof(room));
    cr_assert(qd_metrics_print_next(&cursor, &first));
    qd_counters_count(counters, 400, stage_ns); /* too late for the text that has begun */
    text = print_all(&cursor, qd_metrics_print_next, QD_STREAM_BYTES);
    cr_assert(strstr(text, "onnx.QLinearConv") == NULL);
    free(text);
    text = print(metrics);
    assert_line(text, "nv_inference_request_failure{model=\"onnx.QLinearConv\",version=\"10\","
                      "reason=\"OTHER\"} 1");
    assert_line(text, "nv_inference_request_success{model=\"onnx.QLinearConv\","
                      "version=\"10\"} 0");
    free(text);
    qd_counters_release(counters);
    qd_metrics_destroy(metrics);
}

Test(metrics, at_the_start)
{
    struct qd_metrics *metrics = qd_metrics_create();
    struct qd_counters *dequantize = qd_metrics_counters(metrics, "onnx.DequantizeLinear", 13);
    struct qd_counters *conv = qd_metrics_counters(metrics, "onnx.QLinearConv", 10);
    char *text = print(metrics);
    assert_line(text, "nv_inference_request_success{model=\"onnx.DequantizeLinear\","
                      "version=\"13\"} 0");
    assert_line(text, "nv_inference_request_failure{model=\"onnx.QLinearConv\",version=\"10\","
                      "reason=\"REJECTED\"} 0");
    cr_assert(strstr(text, "_bucket") == NULL, "no histogram before the first inference");
    cr_assert_eq(text[strlen(text) - 1], '\n');
    free(text);
    qd_counters_release(dequantize);
    qd_counters_release(conv);
    qd_metrics_destroy(metrics);
}

Test(metrics, counts_what_it_is_told)
{
    static const uint64_t ns[QD_STAGE_COUNT] = {50000,       50001,       2000000, 3000000000,
                                                20000000000, 23002100001, 70000};
    struct qd_metrics *metrics = qd_metrics_create();
    struct qd_counters *counters = qd_metrics_counters(metrics, "onnx.QLinearConv", 10);
    qd_metrics_count_answer(metrics, 200);
    qd_metrics_count_answer(metrics, 200);
    qd_metrics_count_answer(metrics, 413);
    qd_metrics_count_refusal(metrics, QD_REASON_MEMORY);
    qd_metrics_count_refusal(metrics, QD_REASON_SLOW_READER);
    qd_metrics_count_refusal(metrics, QD_REASON_SLOW_READER);
    qd_counters_count(counters, 200, ns);
    qd_counters_count(counters, 200, ns);
    qd_counters_count(counters, 400, ns);
    qd_counters_count(counters, 413, ns);
    qd_counters_count(counters, 500, ns);
    qd_counters_count(counters, 503, ns);
    qd_counters_count(counters, 0, ns);
    char *text = print(metrics);
    assert_line(text, "quantd_answers_total{code=\"200\"} 2");
    assert_line(text, "quantd_answers_total{code=\"413\"} 1");
    assert_line(text, "quantd_refusals_total{reason=\"memory\"} 1");
    assert_line(text, "quantd_refusals_total{reason=\"slow_reader\"} 2");
    assert_line(text, "quantd_refusals_total{reason=\"other\"} 0");
#define LABELS "model=\"onnx.QLinearConv\",version=\"10\""
    assert_line(text, "nv_inference_request_success{" LABELS "} 2");
    assert_line(text, "nv_inference_exec_count{" LABELS "} 2");
    assert_line(text, "nv_inference_request_failure{" LABELS ",reason=\"OTHER\"} 2");
    assert_line(text, "nv_inference_request_failure{" LABELS ",reason=\"BACKEND\"} 1");
    assert_line(text, "nv_inference_request_failure{" LABELS ",reason=\"REJECTED\"} 1");
    assert_line(text, "nv_inference_request_failure{" LABELS ",reason=\"CANCELED\"} 1");
    assert_line(text, "nv_inference_request_duration_us{" LABELS "} 46004200");
    assert_line(text, "nv_inference_queue_duration_us{" LABELS "} 100");
    assert_line(text, "nv_inference_compute_infer_duration_us{" LABELS "} 6000000");
#define STAGE(kind, stage) "quantd_stage_duration_seconds_" kind "{" LABELS ",stage=\"" stage "\""
    assert_line(text, STAGE("bucket", "receive") ",le=\"0.00005\"} 2"); /* the bound is inclusive */
    assert_line(text, STAGE("bucket", "queue") ",le=\"0.00005\"} 0");
    assert_line(text, STAGE("bucket", "queue") ",le=\"0.0001\"} 2");
    assert_line(text, STAGE("bucket", "encode") ",le=\"10\"} 0");
    assert_line(text, STAGE("bucket", "encode") ",le=\"+Inf\"} 2");
    assert_line(text, STAGE("sum", "queue") "} 0.000100002");
    assert_line(text, STAGE("sum", "total") "} 46.004200002");
    assert_line(text, STAGE("count", "total") "} 2");
    assert_line(text, STAGE("bucket", "send") ",le=\"0.0001\"} 2");
    assert_line(text, STAGE("sum", "send") "} 0.000140000");
    free(text);
    qd_counters_release(counters);
    qd_metrics_destroy(metrics);
}

Test(metrics, triton_statistics)
{
    static const char name[] = "onnx.DequantizeLinear";
    static const uint64_t version = 13;
    static const uint64_t ns[QD_STAGE_COUNT] = {1, 2, 3, 4, 5, 15};
    struct qd_metrics *metrics = qd_metrics_create();
    struct qd_counters *older = qd_metrics_counters(metrics, name, 10);
    struct qd_counters *counters = qd_metrics_counters(metrics, name, version);
    struct qd_counters *conv = qd_metrics_counters(metrics, "onnx.QLinearConv", 10);
    char *text = print_stats(metrics, name, &version);
    cr_assert_str_eq(
        text,
        "{\"model_stats\":[{\"name\":\"onnx.DequantizeLinear\",\"version\":\"13\","
        "\"last_inference\":0,\"inference_count\":0,\"execution_count\":0,\"inference_stats\":{"
        "\"success\":{\"count\":0,\"ns\":0},\"fail\":{\"count\":0,\"ns\":0},"
        "\"queue\":{\"count\":0,\"ns\":0},\"compute_input\":{\"count\":0,\"ns\":0},"
        "\"compute_infer\":{\"count\":0,\"ns\":0},\"compute_output\":{\"count\":0,\"ns\":0},"
        "\"cache_hit\":{\"count\":0,\"ns\":0},\"cache_miss\":{\"count\":0,\"ns\":0}},"
        "\"response_stats\":{},\"batch_stats\":[],\"memory_usage\":[]}]}");
    free(text);
    qd_counters_count(counters, 200, ns);
    qd_counters_count(counters, 400, ns);
    text = print_stats(metrics, name, &version);
    cr_assert(strstr(text, "\"last_inference\":0,") == NULL);
    cr_assert(strstr(text,
                     "\"inference_count\":1,\"execution_count\":1,\"inference_stats\":{"
                     "\"success\":{\"count\":1,\"ns\":15},\"fail\":{\"count\":1,\"ns\":15},"
                     "\"queue\":{\"count\":1,\"ns\":2},\"compute_input\":{\"count\":1,\"ns\":3},"
                     "\"compute_infer\":{\"count\":1,\"ns\":4},"
                     "\"compute_output\":{\"count\":1,\"ns\":5},") != NULL);
    cr_assert(strstr(text, "\"batch_stats\":[{\"batch_size\":1,\"compute_input\":{\"count\":1,"
                           "\"ns\":3},\"compute_infer\":{\"count\":1,\"ns\":4},"
                           "\"compute_output\":{\"count\":1,\"ns\":5}}],") != NULL);
    free(text);
    text = print_stats(metrics, name, NULL);
    cr_assert(strstr(text, "\"version\":\"10\"") != NULL);
    cr_assert(strstr(text, "QLinearConv") == NULL);
    free(text);
    text = print_stats(metrics, NULL, NULL);
    cr_assert(strstr(text, "QLinearConv") != NULL);
    free(text);
    qd_counters_release(older);
    qd_counters_release(counters);
    qd_counters_release(conv);
    qd_metrics_destroy(metrics);
}

/* The counters of a model that is loaded again continue. They are freed with their last holder. */
Test(metrics, counters_live_as_long_as_their_holders)
{
    static const uint64_t ns[QD_STAGE_COUNT] = {0};
    struct qd_metrics *metrics = qd_metrics_create();
    struct qd_counters *first = qd_metrics_counters(metrics, "a\\b\"c\nd", 3);
    struct qd_counters *other = qd_metrics_counters(metrics, "a\\b\"c\nd", 4);
    cr_assert_neq(first, other);
    qd_counters_count(first, 200, ns);
    cr_assert_eq(qd_metrics_counters(metrics, "a\\b\"c\nd", 3), first);
    qd_counters_release(first);
    char *text = print(metrics);
    assert_line(text, "nv_inference_count{model=\"a\\\\b\\\"c\\nd\",version=\"3\"} 1");
    free(text);
    text = print_stats(metrics, NULL, NULL);
    cr_assert(strstr(text, "\"name\":\"a\\\\b\\\"c\\nd\",\"version\":\"3\"") != NULL, "%s", text);
    free(text);
    qd_counters_release(first);
    text = print(metrics);
    cr_assert(strstr(text, "version=\"3\"") == NULL);
    assert_line(text, "nv_inference_count{model=\"a\\\\b\\\"c\\nd\",version=\"4\"} 0");
    free(text);
    qd_counters_release(other);
    qd_counters_release(NULL);
    qd_metrics_destroy(metrics);
}

static const uint64_t some_ns[QD_STAGE_COUNT] = {1000, 70000, 3000000, 4, 5, 3071009, 7};

struct models {
    struct qd_metrics *metrics;
    struct qd_counters *counters[3];
};

static struct models models_create(void)
{
    struct models models = {.metrics = qd_metrics_create()};
    models.counters[0] = qd_metrics_counters(models.metrics, "one", 1);
    models.counters[1] = qd_metrics_counters(models.metrics, "two \"\\\n", UINT64_MAX);
    models.counters[2] = qd_metrics_counters(models.metrics, "three", 3);
    qd_counters_count(models.counters[0], 200, some_ns);
    qd_counters_count(models.counters[2], 200, some_ns);
    qd_counters_count(models.counters[2], 400, some_ns);
    qd_metrics_count_answer(models.metrics, 200);
    return models;
}

static void models_destroy(struct models *models)
{
    for (unsigned i = 0; i < 3; i++)
        qd_counters_release(models->counters[i]);
    qd_metrics_destroy(models->metrics);
}

/* A unit that does not fit is printed again by the next call. */
Test(metrics, any_room_makes_the_same_text)
{
    static print_next *const prints[] = {qd_metrics_print_next, qd_metrics_print_next_stats};
    struct models models = models_create();
    for (unsigned i = 0; i < 2; i++) {
        struct qd_metrics_cursor cursor;
        cr_assert(qd_metrics_cursor_init(&cursor, models.metrics, NULL, NULL));
        char *whole = print_all(&cursor, prints[i], QD_STREAM_BYTES);
        for (size_t room = 1; room < 3000; room += room < 40 ? 1 : 97) {
            cr_assert(qd_metrics_cursor_init(&cursor, models.metrics, NULL, NULL));
            char *text = print_all(&cursor, prints[i], room);
            cr_assert_str_eq(text, whole, "in units of %zu bytes", room);
            free(text);
        }
        free(whole);
    }
    models_destroy(&models);
}

/* At each unit, one model is unloaded and loaded again, and a new one is loaded. */
Test(metrics, models_come_and_go_while_a_text_is_printed)
{
    static print_next *const prints[] = {qd_metrics_print_next, qd_metrics_print_next_stats};
    for (unsigned i = 0; i < 2; i++) {
        bool more = true;
        for (unsigned when = 0; more; when++) {
            struct models models = models_create();
            struct qd_metrics_cursor cursor;
            char room[QD_STREAM_BYTES];
            more = true;
            cr_assert(qd_metrics_cursor_init(&cursor, models.metrics, NULL, NULL));
            for (unsigned unit = 0; more && unit <= when + 3; unit++) {
                struct qd_text text;
                qd_text_init_in(&text, room, sizeof(room));
                more = prints[i](&cursor, &text);
                cr_assert_not(text.failed);
                if (unit >= when && unit < when + 3) {
                    qd_counters_release(models.counters[unit - when]);
                    models.counters[unit - when] = qd_metrics_counters(models.metrics, "new", unit);
                }
            }
            if (when % 2 == 0 || !more) {
                qd_metrics_cursor_deinit(&cursor);
                models_destroy(&models);
            } else { /* the text is abandoned after these units */
                for (unsigned k = 0; k < 3; k++)
                    qd_counters_release(models.counters[k]);
                qd_metrics_cursor_deinit(&cursor);
                qd_metrics_destroy(models.metrics);
            }
        }
    }
}

/* Prometheus refuses a text that contains a series twice. */
Test(metrics, a_model_that_comes_again_is_not_twice_in_a_text)
{
    static print_next *const prints[] = {qd_metrics_print_next, qd_metrics_print_next_stats};
    static const char *const series[] = {"nv_inference_request_success{model=\"one\"",
                                         "\"name\":\"one\""};
    for (unsigned i = 0; i < 2; i++) {
        struct models models = models_create();
        struct qd_metrics_cursor cursor;
        struct qd_text text;
        char room[QD_STREAM_BYTES];
        cr_assert(qd_metrics_cursor_init(&cursor, models.metrics, NULL, NULL));
        qd_text_init_in(&text, room, sizeof(room));
        for (unsigned unit = 0; unit < 2; unit++)
            cr_assert(prints[i](&cursor, &text));
        qd_counters_release(models.counters[0]);
        models.counters[0] = qd_metrics_counters(models.metrics, "one", 1);
        while (prints[i](&cursor, &text))
            ;
        room[text.bytes] = '\0';
        const char *first = strstr(room, series[i]);
        cr_assert_not_null(first);
        cr_assert_null(strstr(first + 1, series[i]), "%s", room);
        qd_metrics_cursor_deinit(&cursor);
        models_destroy(&models);
    }
}

enum { MORE_COUNT = 16 };

/* ---- A stream of them --------------------------------------------------------------------- */

struct printed {
    struct qd_stream stream;
    struct qd_metrics_cursor cursor;
};

static bool print_stream(struct qd_stream *stream, struct qd_text *text)
{
    return qd_metrics_print_next(&((struct printed *)stream)->cursor, text);
}

Test(metrics, a_stream_has_the_same_bytes_however_it_is_read)
{
    static const size_t counts[] = {1, 7, 128, 1024, QD_STREAM_BYTES, QD_STREAM_BYTES + 1, 1 << 20};
    struct models models = models_create();
    struct qd_counters *more[MORE_COUNT];
    for (uint64_t i = 0; i < MORE_COUNT; i++) {
        more[i] = qd_metrics_counters(models.metrics, "more", i);
        qd_counters_count(more[i], 200, some_ns);
    }
    char *whole = print(models.metrics);
    const size_t bytes = strlen(whole);
    char *text = malloc(bytes + (1 << 20));
    cr_assert_gt(bytes, QD_STREAM_BYTES, "it takes more than one filling");
    for (size_t i = 0; i < sizeof(counts) / sizeof(*counts); i++) {
        struct printed printed = {.stream = {.print = print_stream}};
        size_t read = 0, some;
        cr_assert(qd_metrics_cursor_init(&printed.cursor, models.metrics, NULL, NULL));
        while ((some = qd_stream_read(&printed.stream, text + read, counts[i])) > 0)
            read += some;
        cr_assert_eq(read, bytes);
        cr_assert_eq(memcmp(text, whole, bytes), 0, "in reads of %zu bytes", counts[i]);
        cr_assert_not(qd_stream_fill(&printed.stream));
        qd_metrics_cursor_deinit(&printed.cursor);
    }
    free(text);
    free(whole);
    for (unsigned i = 0; i < MORE_COUNT; i++)
        qd_counters_release(more[i]);
    models_destroy(&models);
}
