/* Operators that are tables: what the golden cases cannot say, because it needs large tensors or
 * memory that runs out. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/dispatch.h"
#include "tests/support/kernels/qk_test.h"

static void start_relu(struct qk_call *call, const int8_t *x, size_t count)
{
    qk_test_call_init(call, "onnx.Relu", 14);
    qk_test_call_input(call, "X", QK_INT8, x, 1, &count);
}

Test(lookup, many_units)
{
    static const size_t counts[] = {((size_t)1 << 19) + 77, (size_t)1 << 19, 4097, 63, 0};
    int8_t *x = malloc(counts[0]);
    uint64_t random = 28;
    struct qk_test_tiers tiers;
    cr_assert(x);
    for (size_t i = 0; i < counts[0]; i++)
        x[i] = (int8_t)qk_test_random(&random);
    qk_test_tiers_init(&tiers);
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        struct qk_call call;
        struct qk_test_result result;
        start_relu(&call, x, counts[i]);
        qk_test_run_tiers(&tiers, &call, i + 1, &result);
        cr_assert_eq(result.status, QK_OK, "%s", result.error.text);
        cr_expect_eq(result.plan.unit_count > 1, i < 2);
        const int8_t *y = result.output;
        for (size_t k = 0; k < counts[i]; k++)
            cr_assert_eq(y[k], x[k] < 0 ? 0 : x[k], "count %zu, element %zu", counts[i], k);
        qk_test_result_deinit(&result);
    }
    qk_test_tiers_deinit(&tiers);
    free(x);
}

/* A table for each channel, in rows of all lengths, of which x has all or one for all channels. */
Test(lookup, tables_of_channels)
{
    enum { CHANNELS = 5, IMAGES = 3, ROW_MAX = 30000 };
    static const size_t rows[] = {1, 15, 16, 17, 63, 64, 65, 1000, ROW_MAX, 0};
    static uint8_t tables[CHANNELS * 256], x[IMAGES * CHANNELS * ROW_MAX];
    uint64_t random = 31;
    struct qk_test_tiers tiers;
    for (size_t i = 0; i < sizeof(tables); i++)
        tables[i] = (uint8_t)qk_test_random(&random);
    for (size_t i = 0; i < sizeof(x); i++)
        x[i] = (uint8_t)qk_test_random(&random);
    qk_test_tiers_init(&tiers);
    for (size_t i = 0; i < 2 * sizeof(rows) / sizeof(rows[0]); i++) {
        const size_t row = rows[i / 2], x_channels = i % 2 == 0 ? CHANNELS : 1;
        struct qk_call call;
        struct qk_test_result result;
        qk_test_call_init(&call, "quantd.Lookup", 1);
        qk_test_call_int(&call, "inner_rank", 1);
        qk_test_call_input(&call, "X", QK_UINT8, x, 3, (size_t[]){IMAGES, x_channels, row});
        qk_test_call_input(&call, "table", QK_INT8, tables, 2, (size_t[]){CHANNELS, 256});
        qk_test_run_tiers(&tiers, &call, i + 1, &result);
        cr_assert_eq(result.status, QK_OK, "%s", result.error.text);
        cr_expect_eq(result.plan.unit_count > 1, row == ROW_MAX);
        const uint8_t *y = result.output;
        for (size_t k = 0; k < IMAGES * CHANNELS * row; k++) {
            const size_t at = x_channels == 1 ? k / row / CHANNELS * row + k % row : k;
            cr_assert_eq(y[k], tables[k / row % CHANNELS * 256 + x[at]], "row %zu, element %zu",
                         row, k);
        }
        qk_test_result_deinit(&result);
    }
    qk_test_tiers_deinit(&tiers);
}

/* How many runs have streamed since the last call of count_finish. */
static size_t unfinished;

static void count_stream(const struct qk_lookup_table *table, const uint8_t *x, uint8_t *y,
                         size_t count, bool stream)
{
    unfinished += stream;
    qk_lookup_kernel__scalar.run(table, x, y, count, false);
}

static void count_finish(void)
{
    unfinished = 0;
}

/* What was written past the caches must be finished when a run returns. */
Test(lookup, streams_are_finished)
{
    static const struct qk_lookup_kernel kernel = {"counting", count_stream, 1, count_finish};
    static const uint8_t tables[2 * 256], x[2 * 64];
    for (uint32_t channels = 0; channels < 2; channels++) {
        struct qk_kernels *kernels = qk_test_kernels("scalar");
        struct qk_call call;
        struct qk_test_result result;
        kernels->lookup = &kernel;
        kernels->choice.elementwise.stream_bytes = 1;
        qk_test_call_init(&call, "quantd.Lookup", 1);
        qk_test_call_input(&call, "X", QK_UINT8, x, 2, (size_t[]){2, 64});
        if (channels > 0)
            qk_test_call_int(&call, "inner_rank", 1);
        qk_test_call_input(&call, "table", QK_UINT8, tables, 1 + channels,
                           channels == 0 ? (size_t[]){256} : (size_t[]){2, 256});
        unfinished = 1;
        qk_test_run(kernels, &call, &result);
        cr_assert_eq(result.status, QK_OK, "%s", result.error.text);
        cr_expect_eq(unfinished, 0);
        qk_test_result_deinit(&result);
        qk_kernels_destroy(kernels);
    }
}

Test(lookup, tables_of_other_shapes)
{
    static const uint8_t tables[512], x[2];
    struct qk_call call;
    for (size_t i = 0; i < 2; i++) {
        qk_test_call_init(&call, "quantd.Lookup", 1);
        if (i == 0)
            qk_test_call_int(&call, "inner_rank", 1);
        qk_test_call_input(&call, "X", QK_UINT8, x, 1, (size_t[]){2});
        qk_test_call_input(&call, "table", QK_UINT8, tables, 2, (size_t[]){4, 128});
        qk_test_expect_refusal(&call, "table");
    }
    qk_test_call_int(&call, "inner_rank", 32);
    qk_test_call_input(&call, "table", QK_UINT8, tables, 2, (size_t[]){2, 256});
    qk_test_expect_refusal(&call, "inner_rank");
}

Test(lookup, refusals_name_the_field)
{
    static const uint8_t data[8];
    static const size_t two[] = {2};
    struct qk_call call;
    qk_test_call_init(&call, "onnx.Clip", 13);
    qk_test_call_input(&call, "input", QK_UINT8, data, 1, two);
    qk_test_call_input(&call, "max", QK_UINT8, data, 1, two);
    qk_test_expect_refusal(&call, "max");
    qk_test_call_input(&call, "max", QK_INT8, data, 0, NULL);
    qk_test_expect_refusal(&call, "max");
    qk_test_call_init(&call, "com.microsoft.QLinearSigmoid", 1);
    qk_test_call_input(&call, "X", QK_INT8, data, 1, two);
    qk_test_call_input(&call, "X_scale", QK_FP32, data, 0, NULL);
    qk_test_expect_refusal(&call, "Y_scale");
    qk_test_call_input(&call, "Y_scale", QK_FP32, data, 1, two);
    qk_test_expect_refusal(&call, "Y_scale");
    qk_test_call_input(&call, "Y_scale", QK_FP32, data, 0, NULL);
    qk_test_call_input(&call, "Y_zero_point", QK_UINT8, data, 0, NULL);
    qk_test_expect_refusal(&call, "Y_zero_point");
}

/* Integers are newer than these operators: older versions only have floats. */
Test(lookup, versions_without_8_bits)
{
    const struct qk_operator *clip = qk_graph_operator_by_name("onnx.Clip");
    const struct qk_operator *relu = qk_graph_operator_by_name("onnx.Relu");
    cr_assert(clip && relu);
    const uint32_t both = QK_BIT(QK_FP32) | QK_BIT(QK_INT8);
    cr_expect_eq(qk_operator_version(clip, 11)->inputs[0].types, QK_BIT(QK_FP32));
    cr_expect_eq(qk_operator_version(clip, 12)->inputs[0].types, both | QK_BIT(QK_UINT8));
    cr_expect_eq(qk_operator_version(relu, 13)->inputs[0].types, QK_BIT(QK_FP32));
    cr_expect_eq(qk_operator_version(relu, 14)->inputs[0].types, both);
}

Test(lookup, every_allocation_may_fail)
{
    static const int8_t data[8];
    struct qk_kernels *kernels = qk_test_kernels("scalar");
    struct qk_call call;
    start_relu(&call, data, sizeof(data));
    cr_expect_eq(qk_test_fail_allocations(kernels, &call), 2);
    qk_kernels_destroy(kernels);
}
