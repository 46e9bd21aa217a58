/* Pooling: what golden cases (tests/data/operators/pool.jsonl) cannot say. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/kernels/qk_test.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static const float scales[2] = {0.03F, 0.05F};
static const uint8_t zero_points[2] = {100, 7};

static const char *const names[] = {"onnx.MaxPool", "com.microsoft.QLinearAveragePool",
                                    "com.microsoft.QLinearGlobalAveragePool"};

/* Starts a call of operator `which` on x. Operators with windows get `kernel`, of as many axes as x
 * has spatial ones. */
static void start(struct qk_call *call, size_t which, const uint8_t *x, uint32_t rank,
                  const size_t *dims, const int64_t *kernel)
{
    qk_test_call_init(call, names[which], which == 0 ? 12 : 1);
    qk_test_call_input(call, "X", QK_UINT8, x, rank, dims);
    if (which < 2)
        qk_test_call_ints(call, "kernel_shape", kernel, rank - 2);
    if (which == 0)
        return;
    qk_test_call_input(call, "x_scale", QK_FP32, &scales[0], 0, NULL);
    qk_test_call_input(call, "x_zero_point", QK_UINT8, &zero_points[0], 0, NULL);
    qk_test_call_input(call, "y_scale", QK_FP32, &scales[1], 0, NULL);
    qk_test_call_input(call, "y_zero_point", QK_UINT8, &zero_points[1], 0, NULL);
}

static uint8_t *random_bytes(uint64_t seed, size_t count)
{
    uint8_t *x = malloc(count);
    cr_assert_not_null(x);
    for (size_t i = 0; i < count; i++)
        x[i] = (uint8_t)qk_test_random(&seed);
    return x;
}

/* Rows that are cut into segments, planes of many units or bands, and channels that are cut into
 * parts. */
Test(pool, units_in_any_order_give_the_same_bytes)
{
    static const struct {
        uint32_t rank;
        size_t dims[5];
        int64_t kernel[3];
        bool last;
    } shapes[] = {
        {3, {1, 2, 70000}, {9}, false},           {3, {2, 3, 20000}, {19999}, false},
        {4, {2, 64, 56, 57}, {3, 3}, false},      {4, {2, 300, 7, 7}, {3, 3}, false},
        {4, {1, 40, 41, 96}, {3, 3}, true},       {4, {1, 5, 6, 9000}, {2, 3}, true},
        {5, {1, 3, 9, 30, 31}, {2, 3, 5}, false}, {5, {1, 9, 30, 31, 3}, {2, 3, 5}, true},
        {4, {1, 2, 200, 301}, {3, 2}, false},     {4, {1, 2, 210, 299}, {5, 3}, false},
    };
    struct qk_test_tiers tiers;
    qk_test_tiers_init(&tiers);
    for (size_t i = 0; i < COUNT_OF(shapes); i++)
        for (size_t which = shapes[i].last; which < COUNT_OF(names); which++) {
            static const int64_t strides[] = {1, 2, 1};
            static const int64_t pads[] = {1, 1, 1, 1, 1, 1};
            const uint32_t axes = shapes[i].rank - 2;
            size_t count = 1;
            for (uint32_t d = 0; d < shapes[i].rank; d++)
                count *= shapes[i].dims[d];
            uint8_t *x = random_bytes(i + 1, count);
            struct qk_call call;
            struct qk_test_result result;
            start(&call, which, x, shapes[i].rank, shapes[i].dims, shapes[i].kernel);
            if (shapes[i].last)
                qk_test_call_int(&call, "channels_last", 1);
            if (which < 2 && i % 2 == 0) {
                qk_test_call_ints(&call, "strides", strides + (axes == 2), axes);
                qk_test_call_ints(&call, "pads", pads, (size_t)2 * axes);
            }
            qk_test_run_tiers(&tiers, &call, i + 1, &result);
            cr_expect_eq(result.status, QK_OK, "shape %zu, %s: %s", i, names[which],
                         result.error.text);
            qk_test_result_deinit(&result);
            free(x);
        }
    qk_test_tiers_deinit(&tiers);
}

Test(pool, every_allocation_may_fail)
{
    static const size_t dims[] = {1, 2, 5, 6};
    static const int64_t kernel[] = {2, 3};
    uint8_t *x = random_bytes(1, 60);
    struct qk_kernels *kernels = qk_test_kernels("scalar");
    for (size_t which = 0; which < COUNT_OF(names); which++) {
        struct qk_call call;
        start(&call, which, x, 4, dims, kernel);
        cr_expect_eq(qk_test_fail_allocations(kernels, &call), 2);
    }
    qk_kernels_destroy(kernels);
    free(x);
}

/* Windows of which almost nothing is inside x cost no more than what they read. */
Test(pool, large_kernels_cost_what_they_read)
{
    static const size_t dims[] = {1, 1, 1};
    static const int64_t most = INT32_MAX;
    static const int64_t pads[] = {INT32_MAX - 1, INT32_MAX - 1};
    static const int64_t stride = INT32_MAX - 1;
    const uint8_t x = 9;
    struct qk_kernels *kernels = qk_test_kernels("scalar");
    for (size_t which = 0; which < 2; which++) {
        struct qk_call call;
        struct qk_test_result result;
        start(&call, which, &x, 3, dims, &most);
        qk_test_call_ints(&call, "pads", pads, 2);
        qk_test_call_ints(&call, "strides", &stride, 1);
        qk_test_run(kernels, &call, &result);
        cr_assert_eq(result.status, QK_OK, "%s", result.error.text);
        cr_expect_eq(result.plan.output_bytes[0], 2);
        cr_expect_leq(result.plan.workspace_bytes, 1 << 16);
        cr_expect_eq(((uint8_t *)result.output)[0], ((uint8_t *)result.output)[1]);
        qk_test_result_deinit(&result);
    }
    qk_kernels_destroy(kernels);
}

/* No size of a client overflows: y has more elements than 64 bits count, or x longer axes than a
 * process can address. Nothing is run. */
Test(pool, hostile_sizes_are_refused)
{
    static const size_t shapes[][5] = {
        {SIZE_MAX / 2, 1, 1, 1, 1}, {1, 1, SIZE_MAX, 1, 1}, {0, 1, SIZE_MAX, 1, 1}};
    static const int64_t kernel[] = {INT32_MAX, INT32_MAX, INT32_MAX};
    static const int64_t pads[] = {INT32_MAX - 1, INT32_MAX - 1, INT32_MAX - 1,
                                   INT32_MAX - 1, INT32_MAX - 1, INT32_MAX - 1};
    struct qk_kernels *kernels = qk_test_kernels("scalar");
    for (size_t i = 0; i < COUNT_OF(shapes); i++)
        for (size_t which = 0; which < 2; which++) {
            struct qk_call call;
            struct qk_test_memory memory;
            struct qk_error error;
            struct qk_plan plan;
            const struct qk_instance *instance;
            start(&call, which, zero_points, 5, shapes[i], kernel);
            qk_test_call_ints(&call, "pads", pads, 6);
            call.variable = 1;
            qk_test_memory_init(&memory, SIZE_MAX);
            cr_assert_eq(qk_create(kernels, &call, qk_test_memory_face(&memory), &instance, &error),
                         QK_OK, "%s", error.text);
            cr_expect_eq(
                qk_plan(instance, call.inputs, qk_test_memory_face(&memory), &plan, &error),
                QK_INVALID, "%zu", i);
            qk_test_memory_deinit(&memory);
        }
    qk_kernels_destroy(kernels);
}

/* Plans a call on the scalar kernels. */
static void plan_alone(const struct qk_call *call, struct qk_plan *plan)
{
    struct qk_kernels *kernels = qk_test_kernels("scalar");
    struct qk_test_memory memory;
    struct qk_error error;
    const struct qk_instance *instance;
    qk_test_memory_init(&memory, SIZE_MAX);
    const struct qk_memory face = qk_test_memory_face(&memory);
    cr_assert_eq(qk_create(kernels, call, face, &instance, &error), QK_OK, "%s", error.text);
    cr_assert_eq(qk_plan(instance, call->inputs, face, plan, &error), QK_OK, "%s", error.text);
    qk_test_memory_deinit(&memory);
    qk_kernels_destroy(kernels);
}

/* A window of a million elements for each of many positions: a worker cannot stop within a unit. */
Test(pool, units_of_large_windows_are_bounded)
{
    static const size_t dims[] = {1, 1, 1000, 1000};
    static const int64_t kernel[] = {1000, 1000};
    static const int64_t pads[] = {999, 999, 999, 999};
    for (size_t which = 0; which < 2; which++) {
        struct qk_call call;
        struct qk_plan plan;
        start(&call, which, zero_points, 4, dims, kernel);
        qk_test_call_ints(&call, "pads", pads, 4);
        call.variable = 1;
        plan_alone(&call, &plan);
        cr_expect_leq(plan.unit_cost_ns, 100000000);
    }
}

/* SAME pads are negative where a stride is longer than the kernel. They cost nothing. */
Test(pool, skipped_elements_cost_nothing)
{
    static const size_t dims[] = {1, 1, 150};
    static const int64_t kernel[] = {100};
    static const int64_t stride[] = {300};
    struct qk_call call;
    struct qk_plan plan;
    start(&call, 0, zero_points, 3, dims, kernel);
    qk_test_call_ints(&call, "strides", stride, 1);
    qk_test_call_string(&call, "auto_pad", "SAME_UPPER");
    call.variable = 1;
    plan_alone(&call, &plan);
    cr_expect_lt(plan.unit_cost_ns, 100000);
}

Test(pool, refusals_name_the_field)
{
    static const size_t dims[] = {1, 2, 5, 6};
    static const int64_t kernel[] = {2, 3};
    static const int64_t wrong[] = {0, 1, 0, 3};
    struct qk_call call;
    uint8_t *x = random_bytes(1, 60);
    start(&call, 0, x, 4, dims, kernel);
    qk_test_call_ints(&call, "pads", wrong, 4);
    qk_test_expect_refusal(&call, "pads");
    start(&call, 0, x, 4, dims, kernel);
    qk_test_call_ints(&call, "strides", wrong, 2);
    qk_test_expect_refusal(&call, "strides");
    start(&call, 0, x, 4, dims, kernel);
    qk_test_call_int(&call, "ceil_mode", 2);
    qk_test_expect_refusal(&call, "ceil_mode");
    start(&call, 0, x, 4, dims, kernel);
    qk_test_call_string(&call, "auto_pad", "SAME");
    qk_test_expect_refusal(&call, "auto_pad");
    start(&call, 0, x, 4, dims, kernel);
    call.attributes[qk_test_attribute_index(call.op, "kernel_shape")].present = false;
    qk_test_expect_refusal(&call, "kernel_shape");
    start(&call, 1, x, 4, dims, kernel);
    qk_test_call_input(&call, "x_scale", QK_FP32, scales, 1, (const size_t[]){2});
    qk_test_expect_refusal(&call, "x_scale");
    start(&call, 2, x, 4, dims, kernel);
    qk_test_call_input(&call, "y_zero_point", QK_INT8, zero_points, 0, NULL);
    qk_test_expect_refusal(&call, "y_zero_point");
    start(&call, 2, x, 2, dims, kernel);
    qk_test_expect_refusal(&call, "X");
    free(x);
}
