#include "server/base/metrics.h"

#include <criterion/criterion.h>
#include <stdio.h>

#include "tests/unit/scratch.h"

/* The caller frees it. */
static char *print(struct qd_metrics *metrics)
{
    struct scratch scratch;
    struct qd_text text;
    scratch_init(&scratch, 16 << 20);
    qd_text_init(&text, &scratch.arena);
    qd_metrics_print(metrics, &text);
    cr_assert_not(text.failed);
    char *printed = join_parts(text.parts, text.part_count);
    scratch_deinit(&scratch);
    return printed;
}

static char *print_stats(struct qd_metrics *metrics, const char *name, const uint64_t *version)
{
    struct scratch scratch;
    struct qd_text text;
    scratch_init(&scratch, 16 << 20);
    qd_text_init(&text, &scratch.arena);
    qd_metrics_print_stats(metrics, name, version, &text);
    cr_assert_not(text.failed);
    char *printed = join_parts(text.parts, text.part_count);
    scratch_deinit(&scratch);
    return printed;
}

static void assert_line(const char *text, const char *line)
{
    const char *at = strstr(text, line);
    cr_assert(at != NULL && (at == text || at[-1] == '\n') && at[strlen(line)] == '\n',
              "no line %s in\n%s", line, text);
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
    assert_line(text,
                STAGE("bucket", "receive") ",le=\"0.00005\"} 2"); /* the bound belongs to it */
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

/* Those of a model that is loaded again go on; with its last holder they are gone. */
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
