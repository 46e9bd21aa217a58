/* QLinearConcat: what the golden cases cannot say, because it needs many units, absent inputs, huge
 * shapes or memory that runs out. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/support/kernels/qk_test.h"

static const float scales[] = {1, 2};
static const uint8_t zeros[2];

static void start(struct qk_call *call, int64_t axis)
{
    qk_test_call_init(call, "com.microsoft.QLinearConcat", 1);
    qk_test_call_int(call, "axis", axis);
    qk_test_call_input(call, "Y_scale", QK_FP32, &scales[1], 0, NULL);
    qk_test_call_input(call, "Y_zero_point", QK_UINT8, zeros, 0, NULL);
}

/* Adds x_i with Y's scale, which is copied, or with half of it. */
static void add(struct qk_call *call, size_t i, bool copied, const uint8_t *x, uint32_t rank,
                const size_t *dims)
{
    char name[32];
    snprintf(name, sizeof(name), "x_%zu", i);
    qk_test_call_input(call, name, QK_UINT8, x, rank, dims);
    snprintf(name, sizeof(name), "x_%zu_scale", i);
    qk_test_call_input(call, name, QK_FP32, &scales[copied], 0, NULL);
    snprintf(name, sizeof(name), "x_%zu_zero_point", i);
    qk_test_call_input(call, name, QK_UINT8, zeros, 0, NULL);
}

/* Returns half of x, ties to even. */
static uint8_t half(uint8_t x)
{
    return (uint8_t)(x / 2 + (x % 4 == 3));
}

/* ---- Many units ----------------------------------------------------------------------------- */

#define PART_COUNT 3

/* Joins matrices along their columns, which are few or many. */
static void check_columns(const struct qk_test_tiers *tiers, size_t rows, const size_t *columns,
                          const uint8_t *x)
{
    struct qk_call call;
    struct qk_test_result result;
    start(&call, -1);
    for (size_t i = 0; i < PART_COUNT; i++)
        add(&call, i, i == 1, x + i, 2, (const size_t[]){rows, columns[i]});
    qk_test_run_tiers(tiers, &call, rows, &result);
    cr_assert_eq(result.status, QK_OK, "%s", result.error.text);
    cr_expect_gt(result.plan.unit_count, 2);
    const uint8_t *y = result.output;
    for (size_t row = 0; row < rows; row++)
        for (size_t i = 0; i < PART_COUNT; i++)
            for (size_t k = 0; k < columns[i]; k++) {
                const uint8_t from = x[i + row * columns[i] + k];
                cr_assert_eq(*y++, i == 1 ? from : half(from), "row %zu, x_%zu, %zu", row, i, k);
            }
    qk_test_result_deinit(&result);
}

Test(qlinear_concat, many_units)
{
    static const struct {
        size_t rows, columns[PART_COUNT];
    } cases[] = {{1, {700001, 400000, 1}},
                 {3, {300000, 65, 300001}},
                 {90000, {1, 2, 4}},
                 {5000, {64, 0, 65}},
                 {0x10000, {16, 16, 16}}};
    const size_t bytes = (size_t)1 << 21;
    uint8_t *x = malloc(bytes);
    uint64_t random = 28;
    struct qk_test_tiers tiers;
    cr_assert(x);
    for (size_t i = 0; i < bytes; i++)
        x[i] = (uint8_t)qk_test_random(&random);
    qk_test_tiers_init(&tiers);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        check_columns(&tiers, cases[i].rows, cases[i].columns, x);
    qk_test_tiers_deinit(&tiers);
    free(x);
}

/* ---- Refusals ------------------------------------------------------------------------------- */

Test(qlinear_concat, parts_are_whole_and_without_gaps)
{
    static const size_t two[] = {2};
    static const char *const names[] = {"x_1", "x_1_scale", "x_1_zero_point"};
    struct qk_call call;
    for (size_t i = 0; i < 3; i++) {
        start(&call, 0);
        for (size_t k = 0; k < 3; k++)
            add(&call, k, false, zeros, 1, two);
        call.inputs[qk_test_input_index(call.op, names[i])].type = QK_NONE;
        qk_test_expect_refusal(&call, i == 0 ? "x_1_scale" : names[i]);
    }
    for (size_t i = 0; i < 3; i++) {
        start(&call, 0);
        add(&call, 0, false, zeros, 1, two);
        add(&call, 1, false, zeros, 1, two);
        for (size_t k = 0; k < 3; k++)
            if (k != i)
                call.inputs[qk_test_input_index(call.op, names[k])].type = QK_NONE;
        qk_test_expect_refusal(&call, i == 0 ? "x_1_scale" : names[i]);
    }
    start(&call, 0);
    qk_test_expect_refusal(&call, "x_0");
}

Test(qlinear_concat, parameters_of_x_are_single)
{
    static const size_t two[] = {2};
    struct qk_call call;
    start(&call, 0);
    add(&call, 0, false, zeros, 1, two);
    add(&call, 1, false, zeros, 1, two);
    qk_test_call_input(&call, "x_1_scale", QK_FP32, scales, 1, two);
    qk_test_expect_refusal(&call, "x_1_scale");
    add(&call, 1, false, zeros, 1, two);
    qk_test_call_input(&call, "x_1_zero_point", QK_UINT8, zeros, 1, two);
    qk_test_expect_refusal(&call, "x_1_zero_point");
}

/* Empty inputs may have axes of any length. Their sum may not overflow, nor what it makes. */
Test(qlinear_concat, lengths_that_overflow)
{
    static const size_t shapes[][3] = {
        {0, SIZE_MAX, 1}, {0, SIZE_MAX / 2 + 1, 1}, {0, SIZE_MAX / 4, 3}};
    struct qk_call call;
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        start(&call, 1);
        add(&call, 0, false, zeros, 3, shapes[i]);
        add(&call, 1, true, zeros, 3, shapes[i]);
        qk_test_expect_refusal(&call, "x_0");
    }
}

Test(qlinear_concat, every_allocation_may_fail)
{
    static const size_t two[] = {2};
    struct qk_kernels *kernels = qk_test_kernels("scalar");
    struct qk_call call;
    start(&call, 0);
    for (size_t i = 0; i < 10; i++)
        add(&call, i, i % 2, zeros, 1, two);
    cr_expect_eq(qk_test_fail_allocations(kernels, &call), 2);
    qk_kernels_destroy(kernels);
}
