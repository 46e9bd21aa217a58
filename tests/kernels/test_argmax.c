/* ArgMax: what the golden cases cannot say, because it needs large tensors or memory that runs
 * out. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/kernels/qk_test.h"

static void start(struct qk_call *call, const char *name, const uint8_t *x, const size_t *dims,
                  int64_t axis)
{
    qk_test_call_init(call, name, 13);
    qk_test_call_input(call, "data", QK_UINT8, x, 3, dims);
    qk_test_call_int(call, "axis", axis);
}

/* Returns the index of the first largest or least element, `stride` elements apart. */
static int64_t expected(const uint8_t *x, size_t length, size_t stride, bool is_min)
{
    size_t best = 0;
    for (size_t i = 1; i < length; i++)
        if (is_min ? x[i * stride] < x[best * stride] : x[i * stride] > x[best * stride])
            best = i;
    return (int64_t)best;
}

static void check_shape(const struct qk_test_tiers *tiers, const uint8_t *x, const size_t *dims,
                        uint32_t axis, bool is_min)
{
    struct qk_call call;
    struct qk_test_result result;
    size_t inner = 1;
    start(&call, is_min ? "onnx.ArgMin" : "onnx.ArgMax", x, dims, axis);
    qk_test_run_tiers(tiers, &call, 1, &result);
    cr_assert_eq(result.status, QK_OK, "%s", result.error.text);
    for (uint32_t i = axis + 1; i < 3; i++)
        inner *= dims[i];
    const int64_t *y = result.output;
    for (size_t i = 0; i < result.plan.outputs[0].count; i++)
        cr_assert_eq(
            y[i],
            expected(x + i / inner * dims[axis] * inner + i % inner, dims[axis], inner, is_min),
            "axis %u, element %zu", axis, i);
    qk_test_result_deinit(&result);
}

Test(argmax, many_units)
{
    static const size_t dims[][3] = {{3, 600, 2500}, {2000, 1, 900}, {1, 7, 1025}, {1025, 9, 1}};
    const size_t bytes = dims[0][0] * dims[0][1] * dims[0][2];
    uint8_t *x = malloc(bytes);
    uint64_t random = 28;
    struct qk_test_tiers tiers;
    cr_assert(x);
    for (size_t i = 0; i < bytes; i++)
        x[i] = (uint8_t)qk_test_random_below(&random, i % 3 ? 256 : 2);
    qk_test_tiers_init(&tiers);
    for (size_t i = 0; i < sizeof(dims) / sizeof(dims[0]); i++)
        for (uint32_t axis = 0; axis < 3; axis++)
            check_shape(&tiers, x, dims[i], axis, (i + axis) % 2);
    qk_test_tiers_deinit(&tiers);
    free(x);
}

Test(argmax, refusals_name_the_field)
{
    static const uint8_t data[8];
    static const size_t dims[3] = {1, 2, 3};
    static const size_t empty[3] = {1, 0, 3};
    struct qk_call call;
    start(&call, "onnx.ArgMax", data, dims, 3);
    qk_test_expect_refusal(&call, "axis");
    start(&call, "onnx.ArgMax", data, empty, 1);
    qk_test_expect_refusal(&call, "data");
    qk_test_call_init(&call, "onnx.ArgMin", 13);
    qk_test_call_input(&call, "data", QK_INT16, data, 3, empty);
    qk_test_expect_refusal(&call, "data");
}

Test(argmax, every_allocation_may_fail)
{
    static const uint8_t data[8];
    static const size_t dims[3] = {2, 2, 2};
    struct qk_kernels *kernels = qk_test_kernels("scalar");
    struct qk_call call;
    start(&call, "onnx.ArgMax", data, dims, 1);
    cr_expect_eq(qk_test_fail_allocations(kernels, &call), 2);
    qk_kernels_destroy(kernels);
}
