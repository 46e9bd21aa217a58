/* QLinearWhere: what the golden cases cannot say, because it needs many units, huge shapes or
 * memory that runs out. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "tests/support/kernels/qk_test.h"

static const float scales[] = {1, 2};
static const uint8_t zeros[2];

struct shape {
    uint32_t rank;
    size_t dims[3];
};

/* X has half of Z's scale, and Y has Z's scale. */
static void start(struct qk_call *call)
{
    qk_test_call_init(call, "com.microsoft.QLinearWhere", 1);
    qk_test_call_input(call, "x_scale", QK_FP32, &scales[0], 0, NULL);
    qk_test_call_input(call, "x_zero_point", QK_UINT8, zeros, 0, NULL);
    qk_test_call_input(call, "y_scale", QK_FP32, &scales[1], 0, NULL);
    qk_test_call_input(call, "y_zero_point", QK_UINT8, zeros, 0, NULL);
    qk_test_call_input(call, "z_scale", QK_FP32, &scales[1], 0, NULL);
    qk_test_call_input(call, "z_zero_point", QK_UINT8, zeros, 0, NULL);
}

static void add(struct qk_call *call, const char *name, const uint8_t *data,
                const struct shape *shape)
{
    qk_test_call_input(call, name, name[0] == 'c' ? QK_BOOL : QK_UINT8, data, shape->rank,
                       shape->dims);
}

/* ---- Many units ----------------------------------------------------------------------------- */

#define ELEMENTS ((size_t)1 << 20)

/* Returns the index of the element that makes element (i, j, k) of Z. All shapes have rank 3. */
static size_t index_in(const struct shape *shape, size_t i, size_t j, size_t k)
{
    const size_t *dims = shape->dims;
    return ((dims[0] > 1 ? i : 0) * dims[1] + (dims[1] > 1 ? j : 0)) * dims[2] +
           (dims[2] > 1 ? k : 0);
}

static void check_shapes(const struct qk_test_tiers *tiers, const struct shape *shapes,
                         const uint8_t *condition, const uint8_t *codes)
{
    struct qk_call call;
    struct qk_test_result result;
    start(&call);
    add(&call, "condition", condition, &shapes[0]);
    add(&call, "X", codes, &shapes[1]);
    add(&call, "Y", codes + 1, &shapes[2]);
    qk_test_run_tiers(tiers, &call, shapes[0].dims[0], &result);
    cr_assert_eq(result.status, QK_OK, "%s", result.error.text);
    cr_expect_gt(result.plan.unit_count, 2);
    const size_t *dims = result.plan.outputs[0].dims;
    const uint8_t *z = result.output;
    for (size_t i = 0; i < dims[0]; i++)
        for (size_t j = 0; j < dims[1]; j++)
            for (size_t k = 0; k < dims[2]; k++) {
                const uint8_t x = codes[index_in(&shapes[1], i, j, k)];
                const uint8_t y = codes[1 + index_in(&shapes[2], i, j, k)];
                const uint8_t half = (uint8_t)(x / 2 + (x % 4 == 3)); /* ties to even */
                const bool from_x = condition[index_in(&shapes[0], i, j, k)];
                cr_assert_eq(*z++, from_x ? half : y, "[%zu, %zu, %zu]", i, j, k);
            }
    qk_test_result_deinit(&result);
}

Test(qlinear_where, many_units)
{
    static const struct shape cases[][3] = {
        {{3, {1, 1, 700001}}, {3, {1, 1, 700001}}, {3, {1, 1, 700001}}},
        {{3, {3, 1, 200001}}, {3, {1, 1, 200001}}, {3, {3, 1, 1}}},
        {{3, {700, 1, 1}}, {3, {700, 1, 1000}}, {3, {1, 1, 1000}}},
        {{3, {50, 1, 513}}, {3, {50, 40, 1}}, {3, {1, 40, 513}}},
        {{3, {100000, 1, 3}}, {3, {1, 1, 3}}, {3, {100000, 2, 1}}},
    };
    uint8_t *condition = malloc(ELEMENTS);
    uint8_t *codes = malloc(ELEMENTS);
    uint64_t random = 28;
    struct qk_test_tiers tiers;
    cr_assert(condition && codes);
    for (size_t i = 0; i < ELEMENTS; i++) {
        condition[i] = qk_test_random(&random) & 1;
        codes[i] = (uint8_t)qk_test_random(&random);
    }
    qk_test_tiers_init(&tiers);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        check_shapes(&tiers, cases[i], condition, codes);
    qk_test_tiers_deinit(&tiers);
    free(condition);
    free(codes);
}

/* ---- Refusals ------------------------------------------------------------------------------- */

Test(qlinear_where, refusals_name_the_field)
{
    static const struct shape two = {1, {2}};
    static const struct shape three = {1, {3}};
    static const char *const parameters[] = {"x_scale", "y_scale", "z_scale"};
    struct qk_call call;
    start(&call);
    qk_test_expect_refusal(&call, "condition");
    add(&call, "condition", zeros, &two);
    add(&call, "X", zeros, &two);
    add(&call, "Y", zeros, &three);
    qk_test_expect_refusal(&call, "Y");
    add(&call, "X", zeros, &three);
    qk_test_expect_refusal(&call, "X");
    for (size_t i = 0; i < sizeof(parameters) / sizeof(parameters[0]); i++) {
        start(&call);
        add(&call, "condition", zeros, &two);
        add(&call, "X", zeros, &two);
        add(&call, "Y", zeros, &two);
        qk_test_call_input(&call, parameters[i], QK_FP32, scales, 1, two.dims);
        qk_test_expect_refusal(&call, parameters[i]);
    }
}

/* Kernels rely on 0 and 1. A constant's bytes come from a file as they are. */
Test(qlinear_where, a_constant_condition_of_other_bytes)
{
    static const struct shape two = {1, {2}};
    static const uint8_t bytes[] = {1, 2};
    struct qk_call call;
    start(&call);
    add(&call, "condition", bytes, &two);
    add(&call, "X", zeros, &two);
    add(&call, "Y", zeros, &two);
    call.variable &= ~(UINT32_C(1) << qk_test_input_index(call.op, "condition"));
    qk_test_expect_refusal(&call, "condition");
}

/* Three empty tensors fit, but what they broadcast to has too many elements but for its 0. */
Test(qlinear_where, lengths_that_overflow)
{
    static const struct shape zero = {3, {0, 1, SIZE_MAX / 2}};
    static const struct shape three = {3, {0, 3, 1}};
    struct qk_call call;
    start(&call);
    add(&call, "condition", zeros, &zero);
    add(&call, "X", zeros, &three);
    add(&call, "Y", zeros, &zero);
    qk_test_expect_refusal(&call, "X");
}

Test(qlinear_where, every_allocation_may_fail)
{
    static const struct shape two = {1, {2}};
    struct qk_kernels *kernels = qk_test_kernels("scalar");
    struct qk_call call;
    start(&call);
    add(&call, "condition", zeros, &two);
    add(&call, "X", zeros, &two);
    add(&call, "Y", zeros, &two);
    cr_expect_eq(qk_test_fail_allocations(kernels, &call), 2);
    qk_kernels_destroy(kernels);
}
