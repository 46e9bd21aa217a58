/* DynamicQuantizeLinear where golden cases are too small: many units, and failing allocations. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/kernels/qk_test.h"

static void dynamic_call(struct qk_call *call, const float *x, size_t count)
{
    qk_test_call_init(call, "onnx.DynamicQuantizeLinear", 11);
    qk_test_call_input(call, "x", QK_FP32, x, 1, &count);
}

Test(dynamic_quantize, units_agree)
{
    enum { COUNT = 1000003 };
    struct qk_kernels *kernels = qk_test_kernels("scalar");
    struct qk_test_result whole;
    struct qk_test_result parts;
    struct qk_call call;
    uint64_t seed = 3;
    float *x = malloc(COUNT * sizeof(*x));
    cr_assert_not_null(x);
    for (size_t i = 0; i < COUNT; i++)
        x[i] = (float)(int32_t)(uint32_t)qk_test_random(&seed) / 1e6F;
    x[COUNT - 1] = -5000; /* the last unit has the least number */
    dynamic_call(&call, x, COUNT);
    qk_test_run(kernels, &call, &whole);
    qk_test_run_shuffled(kernels, &call, 5, &parts);
    cr_assert(whole.status == QK_OK && parts.status == QK_OK);
    cr_expect_gt(whole.plan.unit_count, 1);
    for (size_t i = 0; i < 3; i++)
        cr_expect_eq(memcmp(whole.outputs[i], parts.outputs[i], whole.plan.output_bytes[i]), 0);
    float scale;
    memcpy(&scale, whole.outputs[1], sizeof(scale));
    const int32_t zero_point = *(const uint8_t *)whole.outputs[2];
    cr_expect_eq(((const uint8_t *)whole.output)[COUNT - 1], 0);
    for (size_t i = 0; i < COUNT; i += 1009)
        cr_assert_eq(((const uint8_t *)whole.output)[i],
                     fmaxf(0, fminf(255, rintf(x[i] / scale) + (float)zero_point)));
    qk_test_result_deinit(&whole);
    qk_test_result_deinit(&parts);
    free(x);
    qk_kernels_destroy(kernels);
}

Test(dynamic_quantize, failed_allocations)
{
    struct qk_kernels *kernels = qk_test_kernels("scalar");
    struct qk_call call;
    const float x[3] = {1, 2, 3};
    dynamic_call(&call, x, 3);
    cr_expect_eq(qk_test_fail_allocations(kernels, &call), 2);
    qk_kernels_destroy(kernels);
}
