/* com.microsoft.QLinearSoftmax and onnx.Softmax: what golden cases (softmax.jsonl and float.jsonl
 * in tests/data/operators) cannot say. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/kernels/qk_test.h"

static const float x_scale = 0.05F;
static const float y_scale = 1.0F / 256;
static const uint8_t zero_point = 0;

static void start(struct qk_call *call, const uint8_t *x, uint32_t rank, const size_t *dims)
{
    qk_test_call_init(call, "com.microsoft.QLinearSoftmax", 1);
    qk_test_call_input(call, "X", QK_UINT8, x, rank, dims);
    qk_test_call_input(call, "X_scale", QK_FP32, &x_scale, 0, NULL);
    qk_test_call_input(call, "y_scale", QK_FP32, &y_scale, 0, NULL);
    qk_test_call_input(call, "y_zero_point", QK_UINT8, &zero_point, 0, NULL);
    qk_test_call_int(call, "opset", 13);
}

/* Rows of neighbouring elements, and rows of elements that are far apart. */
Test(softmax, units_in_any_order_give_the_same_bytes)
{
    static const size_t dims[] = {3, 900, 37};
    uint64_t random = 3;
    uint8_t *x = malloc(dims[0] * dims[1] * dims[2]);
    struct qk_test_tiers tiers;
    cr_assert_not_null(x);
    for (size_t i = 0; i < dims[0] * dims[1] * dims[2]; i++)
        x[i] = (uint8_t)qk_test_random(&random);
    qk_test_tiers_init(&tiers);
    for (int64_t axis = 0; axis < 3; axis++) {
        struct qk_call call;
        struct qk_test_result result;
        start(&call, x, 3, dims);
        qk_test_call_int(&call, "axis", axis);
        qk_test_run_tiers(&tiers, &call, (uint64_t)axis + 1, &result);
        cr_assert_eq(result.status, QK_OK, "%s", result.error.text);
        cr_assert_gt(result.plan.unit_count, 1);
        qk_test_result_deinit(&result);
    }
    qk_test_tiers_deinit(&tiers);
    free(x);
}

/* Returns the softmax of codes x over their last axis or, without `last`, over their first. */
static void run_codes(const struct qk_test_tiers *tiers, enum qk_type type, const uint8_t *x,
                      const size_t dims[2], bool last, struct qk_test_result *result)
{
    struct qk_call call;
    start(&call, x, 2, dims);
    qk_test_call_input(&call, "X", type, x, 2, dims);
    qk_test_call_input(&call, "y_zero_point", type, &zero_point, 0, NULL);
    qk_test_call_int(&call, "axis", last ? 1 : 0);
    qk_test_run_tiers(tiers, &call, 7, result);
    cr_assert_eq(result->status, QK_OK, "%s", result->error.text);
}

/* Rows that lie one behind the other, of any length, have the bits of rows side by side. */
Test(softmax, codes_of_long_and_short_rows)
{
    enum { ROWS = 101, LENGTH_MAX = 700 };
    static uint8_t rows[ROWS * LENGTH_MAX], columns[ROWS * LENGTH_MAX];
    static const size_t lengths[] = {1, 2, 21, 85, 86, 127, 128, 129, 255, 256, 257, LENGTH_MAX};
    uint64_t random = 12;
    struct qk_test_tiers tiers;
    qk_test_tiers_init(&tiers);
    for (size_t k = 0; k < 2 * sizeof(lengths) / sizeof(lengths[0]); k++) {
        const size_t length = lengths[k / 2];
        const enum qk_type type = k % 2 == 0 ? QK_UINT8 : QK_INT8;
        struct qk_test_result expected, result;
        for (size_t r = 0; r < ROWS; r++)
            for (size_t i = 0; i < length; i++) {
                const uint8_t code = (uint8_t)(qk_test_random(&random) % (r + 1) * 255 / ROWS);
                rows[r * length + i] = code;
                columns[i * ROWS + r] = code;
            }
        run_codes(&tiers, type, columns, (const size_t[]){length, ROWS}, false, &expected);
        run_codes(&tiers, type, rows, (const size_t[]){ROWS, length}, true, &result);
        const uint8_t *of = expected.output, *got = result.output;
        for (size_t r = 0; r < ROWS; r++)
            for (size_t i = 0; i < length; i++)
                cr_assert_eq(got[r * length + i], of[i * ROWS + r], "length %zu, row %zu", length,
                             r);
        qk_test_result_deinit(&expected);
        qk_test_result_deinit(&result);
    }
    qk_test_tiers_deinit(&tiers);
}

/* Returns the softmax of x [planes][length][neighbours] over its second axis or, with x [planes]
 * [neighbours][length], over its last axis. */
static void run_floats(const struct qk_test_tiers *tiers, const float *x, const size_t dims[3],
                       int64_t axis, struct qk_test_result *result)
{
    struct qk_call call;
    qk_test_call_init(&call, "onnx.Softmax", 13);
    qk_test_call_input(&call, "input", QK_FP32, x, 3, dims);
    qk_test_call_int(&call, "axis", axis);
    qk_test_run_tiers(tiers, &call, 7, result);
    cr_assert_eq(result->status, QK_OK, "%s", result->error.text);
}

/* Neighbouring rows are computed together, and have the bits that each row has alone. */
Test(softmax, floats_of_neighbouring_rows)
{
    enum { PLANES = 2, LENGTH_MAX = 50, NEIGHBOURS = 300 };
    static float near[PLANES * LENGTH_MAX * NEIGHBOURS], far[PLANES * LENGTH_MAX * NEIGHBOURS];
    uint64_t random = 11;
    struct qk_test_tiers tiers;
    qk_test_tiers_init(&tiers);
    for (size_t length = 1; length <= LENGTH_MAX; length += 7) {
        const size_t far_dims[] = {PLANES, length, NEIGHBOURS};
        const size_t near_dims[] = {PLANES, NEIGHBOURS, length};
        struct qk_test_result expected, result;
        for (size_t p = 0; p < PLANES; p++)
            for (size_t r = 0; r < NEIGHBOURS; r++)
                for (size_t i = 0; i < length; i++) {
                    const float value = (float)(int8_t)qk_test_random(&random) / 7;
                    near[(p * NEIGHBOURS + r) * length + i] = value;
                    far[(p * length + i) * NEIGHBOURS + r] = value;
                }
        near[3] = far[3 % length * NEIGHBOURS + 3 / length] = NAN;
        run_floats(&tiers, near, near_dims, 2, &expected);
        run_floats(&tiers, far, far_dims, 1, &result);
        for (size_t p = 0; p < PLANES; p++)
            for (size_t r = 0; r < NEIGHBOURS; r++)
                for (size_t i = 0; i < length; i++) {
                    const float *of = expected.output, *got = result.output;
                    const size_t at = (p * NEIGHBOURS + r) * length + i;
                    cr_assert_eq(
                        memcmp(&of[at], &got[(p * length + i) * NEIGHBOURS + r], sizeof(float)), 0,
                        "length %zu, plane %zu, row %zu, element %zu", length, p, r, i);
                }
        qk_test_result_deinit(&expected);
        qk_test_result_deinit(&result);
    }
    qk_test_tiers_deinit(&tiers);
}

Test(softmax, rules)
{
    static const uint8_t x[6] = {0};
    static const size_t dims[] = {2, 3};
    struct qk_call call;
    start(&call, x, 2, dims);
    call.attributes[qk_test_attribute_index(call.op, "opset")].present = false;
    qk_test_expect_refusal(&call, "opset");
    start(&call, x, 2, dims);
    qk_test_call_int(&call, "opset", 0);
    qk_test_expect_refusal(&call, "opset");
    for (int64_t axis = INT64_MIN; axis != 0; axis = axis == INT64_MIN ? 2 : 0) {
        start(&call, x, 2, dims);
        qk_test_call_int(&call, "axis", axis);
        qk_test_expect_refusal(&call, "axis");
    }
    start(&call, x, 0, NULL);
    qk_test_expect_refusal(&call, "axis");
    start(&call, x, 2, dims);
    qk_test_call_input(&call, "X_scale", QK_FP32, x, 1, (const size_t[]){0});
    qk_test_expect_refusal(&call, "X_scale");
}

Test(softmax, every_allocation_may_fail)
{
    static const uint8_t x[6] = {0};
    struct qk_kernels *kernels = qk_test_kernels("scalar");
    struct qk_call call;
    start(&call, x, 2, (const size_t[]){2, 3});
    cr_assert_geq(qk_test_fail_allocations(kernels, &call), 2);
    qk_kernels_destroy(kernels);
}
