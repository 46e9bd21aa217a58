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

/* All tiers, with ranges whose scale is tiny, subnormal, 0 or infinite, and NaNs. */
Test(dynamic_quantize, tiers_agree)
{
    enum { COUNT = 1000 };
    static const float ends[] = {1, 0x1p-70F, 0x1p-126F, 0x1p-149F, 0x1p-143F, 0x1p126F, INFINITY};
    struct qk_test_tiers tiers;
    uint64_t seed = 4;
    qk_test_tiers_init(&tiers);
    for (size_t e = 0; e < sizeof(ends) / sizeof(ends[0]); e++)
        for (size_t nans = 0; nans < 2; nans++) {
            struct qk_test_result result;
            struct qk_call call;
            float x[COUNT];
            for (size_t i = 0; i < COUNT; i++)
                x[i] = ends[e] * (float)(int32_t)(uint32_t)qk_test_random(&seed) / 0x1p31F;
            x[3] = ends[e];
            x[5] = nans ? NAN : 0;
            dynamic_call(&call, x, COUNT);
            qk_test_run_tiers(&tiers, &call, 6, &result);
            cr_expect_eq(result.status, QK_OK);
            qk_test_result_deinit(&result);
        }
    qk_test_tiers_deinit(&tiers);
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
