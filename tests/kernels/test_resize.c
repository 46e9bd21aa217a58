/* Resize in mode linear: what the golden cases cannot say, because it needs large tensors or memory
 * that runs out. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/kernels/qk_test.h"

static void start(struct qk_call *call, const void *x, const size_t *dims, const float *scales)
{
    qk_test_call_init(call, "onnx.Resize", 13);
    qk_test_call_input(call, "X", QK_UINT8, x, 4, dims);
    qk_test_call_input(call, "scales", QK_FP32, scales, 1, (size_t[]){4});
    qk_test_call_string(call, "mode", "linear");
}

/* Between equal columns and rows, each element of y is the mean of two or four elements of x. */
static void check_means(const struct qk_test_tiers *tiers, bool last)
{
    static const size_t first_dims[] = {2, 3, 300, 401};
    static const size_t last_dims[] = {2, 300, 401, 3};
    static const float first_scales[] = {1, 1, 2, 2};
    static const float last_scales[] = {1, 2, 2, 1};
    const size_t count = (size_t)2 * 300 * 401 * 3;
    uint8_t *x = malloc(count);
    uint64_t random = 28;
    struct qk_call call;
    struct qk_test_result result;
    cr_assert(x);
    for (size_t i = 0; i < count; i++)
        x[i] = (uint8_t)qk_test_random(&random);
    start(&call, x, last ? last_dims : first_dims, last ? last_scales : first_scales);
    qk_test_call_string(&call, "coordinate_transformation_mode", "asymmetric");
    qk_test_run_tiers(tiers, &call, 3, &result);
    cr_assert_eq(result.status, QK_OK, "%s", result.error.text);
    cr_expect_gt(result.plan.unit_count, 1);
    const uint8_t *y = result.output;
    const size_t step = last ? 3 : 1;
    const size_t planes = last ? 2 : 6;
    for (size_t i = 0; i < planes * 300 * 401 * step; i++) {
        const size_t c = i % step;
        const size_t column = i / step % 401;
        const size_t row = i / step / 401 % 300;
        const size_t at = ((i / step / 401 / 300 * 600 + 2 * row) * 802 + 2 * column) * step + c;
        cr_assert_eq(y[at], x[i]);
        if (column < 400)
            cr_assert_eq(y[at + step], (x[i] + x[i + step]) / 2);
        if (row < 299)
            cr_assert_eq(y[at + 802 * step], (x[i] + x[i + 401 * step]) / 2);
        if (column < 400 && row < 299)
            cr_assert_eq(y[at + 803 * step],
                         (x[i] + x[i + step] + x[i + 401 * step] + x[i + 402 * step]) / 4);
    }
    qk_test_result_deinit(&result);
    free(x);
}

Test(resize, many_units)
{
    struct qk_test_tiers tiers;
    qk_test_tiers_init(&tiers);
    check_means(&tiers, false);
    check_means(&tiers, true);
    qk_test_tiers_deinit(&tiers);
}

/* Data of a request may begin at any byte. */
Test(resize, floats_of_any_alignment)
{
    enum { COUNT = 4 * 5 * 3 };
    static const size_t first_dims[] = {1, 3, 4, 5};
    static const size_t last_dims[] = {1, 4, 5, 3};
    static const float first_scales[] = {1, 1, 2, 1.5F};
    static const float last_scales[] = {1, 2, 1.5F, 1};
    static float x[COUNT];
    static char bytes[sizeof(x) + 1];
    for (size_t i = 0; i < COUNT; i++)
        x[i] = (float)(i * i) / 7;
    memcpy(bytes + 1, x, sizeof(x));
    struct qk_kernels *kernels = qk_test_kernels("scalar");
    for (size_t i = 0; i < 2; i++) {
        struct qk_test_result results[2];
        for (size_t k = 0; k < 2; k++) {
            struct qk_call call;
            const size_t *dims = i == 0 ? first_dims : last_dims;
            start(&call, x, dims, i == 0 ? first_scales : last_scales);
            qk_test_call_input(&call, "X", QK_FP32, k == 0 ? (const void *)x : bytes + 1, 4, dims);
            qk_test_run(kernels, &call, &results[k]);
            cr_assert_eq(results[k].status, QK_OK, "%s", results[k].error.text);
        }
        cr_expect_arr_eq(results[1].output, results[0].output, results[0].plan.output_bytes[0]);
        qk_test_result_deinit(&results[0]);
        qk_test_result_deinit(&results[1]);
    }
    qk_kernels_destroy(kernels);
}

Test(resize, refusals_name_the_field)
{
    static const float x[36];
    static const size_t dims[] = {1, 1, 6, 6};
    static const float ones[] = {1, 1, 2, 2};
    static const float channels[] = {1, 2, 2, 2};
    struct qk_call call;
    start(&call, x, dims, ones);
    qk_test_call_string(&call, "mode", "cubic");
    qk_test_expect_refusal(&call, "mode");
    start(&call, x, dims, channels);
    qk_test_expect_refusal(&call, "X");
    start(&call, x, dims, ones);
    qk_test_call_input(&call, "X", QK_INT32, x, 4, dims);
    qk_test_expect_refusal(&call, "X");
    qk_test_call_init(&call, "onnx.Resize", 18);
    qk_test_call_input(&call, "X", QK_UINT8, x, 4, dims);
    qk_test_call_input(&call, "scales", QK_FP32, ones, 1, (size_t[]){4});
    qk_test_call_string(&call, "mode", "linear");
    qk_test_call_int(&call, "antialias", 1);
    qk_test_expect_refusal(&call, "antialias");
}

static void expect_plan_refused(const struct qk_call *call)
{
    struct qk_kernels *kernels = qk_test_kernels("scalar");
    struct qk_test_memory memory;
    const struct qk_instance *instance;
    struct qk_plan plan;
    struct qk_error error;
    qk_test_memory_init(&memory, SIZE_MAX);
    const struct qk_memory face = qk_test_memory_face(&memory);
    cr_assert_eq(qk_create(kernels, call, face, &instance, &error), QK_OK, "%s", error.text);
    cr_expect_eq(qk_plan(instance, call->inputs, face, &plan, &error), QK_INVALID);
    cr_expect_eq(strncmp(error.text, "X: ", 3), 0, "%s", error.text);
    qk_test_memory_deinit(&memory);
    qk_kernels_destroy(kernels);
}

/* The quotient of the sizes of an axis that is not resized rounds to 1 in FP32. No data is read. */
Test(resize, sizes_beyond_floats)
{
    static const uint8_t x[1];
    static const struct {
        size_t dims[4];
        float scales[4]; /* 0: by sizes */
        int64_t sizes[4];
    } cases[] = {
        {{16777217, 1, 1, 1}, {1, 1, 2, 1}, {0}},
        {{1, 1, 1, 16777217}, {1, 2, 1, 1}, {0}},
        {{16777216, 1, 1, 1}, {0}, {16777217, 1, 2, 1}},
        {{16777217, 1, 1, 1}, {0}, {16777216, 1, 2, 1}},
        {{1, 1, 1, 16777216}, {0}, {1, 2, 1, 16777217}},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct qk_call call;
        start(&call, x, cases[i].dims, cases[i].scales);
        if (cases[i].scales[0] == 0) {
            call.inputs[2] = (struct qk_tensor){.type = QK_NONE};
            qk_test_call_input(&call, "sizes", QK_INT64, cases[i].sizes, 1, (size_t[]){4});
        }
        call.variable = 1; /* X */
        expect_plan_refused(&call);
    }
}

/* Before the output itself is too large, the tables of its axes would be. */
Test(resize, refuses_tables_of_billions)
{
    static const uint8_t x[4];
    static const size_t dims[] = {1, 1, 1, 4};
    static const float scales[] = {1, 1, 1, 1e9F};
    struct qk_call call;
    start(&call, x, dims, scales);
    qk_test_expect_refusal(&call, "X");
}

Test(resize, every_allocation_may_fail)
{
    static const uint8_t x[36];
    static const size_t dims[] = {1, 1, 6, 6};
    static const float scales[] = {1, 1, 2, 2};
    struct qk_kernels *kernels = qk_test_kernels("scalar");
    struct qk_call call;
    start(&call, x, dims, scales);
    cr_expect_geq(qk_test_fail_allocations(kernels, &call), 4);
    qk_kernels_destroy(kernels);
}
