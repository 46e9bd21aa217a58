/* com.microsoft.QLinearAdd and QLinearMul: what the golden cases cannot say, because ONNX Runtime
 * refuses it, or because it needs large tensors. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/binary/binary.h"
#include "kernels/dispatch.h"
#include "tests/support/kernels/qk_test.h"

static const char *const operators[] = {"com.microsoft.QLinearAdd", "com.microsoft.QLinearMul"};

static const float scales[] = {0.1F, 0.2F, 0.3F};
static const uint8_t zeros[] = {7, 130, 99};

/* Starts a call with scales and zero points of shape []. */
static void start(struct qk_call *call, const char *op, enum qk_type type, const uint8_t *a,
                  uint32_t a_rank, const size_t *a_dims, const uint8_t *b, uint32_t b_rank,
                  const size_t *b_dims)
{
    static const char *const names[][2] = {
        {"A_scale", "A_zero_point"}, {"B_scale", "B_zero_point"}, {"C_scale", "C_zero_point"}};
    qk_test_call_init(call, op, 1);
    qk_test_call_input(call, "A", type, a, a_rank, a_dims);
    qk_test_call_input(call, "B", type, b, b_rank, b_dims);
    for (size_t i = 0; i < 3; i++) {
        qk_test_call_input(call, names[i][0], QK_FP32, &scales[i], 0, NULL);
        qk_test_call_input(call, names[i][1], type, &zeros[i], 0, NULL);
    }
}

static int code_value(enum qk_type type, uint8_t code)
{
    return type == QK_INT8 ? (int8_t)code : code;
}

/* The formula of binary.h. */
static uint8_t expected(const char *op, enum qk_type type, bool exchanged, uint8_t a, uint8_t b)
{
    const int first = code_value(type, exchanged ? b : a);
    const int second = code_value(type, exchanged ? a : b);
    const int first_zero = code_value(type, zeros[exchanged]);
    const int second_zero = code_value(type, zeros[!exchanged]);
    const float y_zero = (float)code_value(type, zeros[2]);
    float v;
    if (op == operators[1]) {
        const float scale = scales[0] * scales[1] / scales[2];
        v = (float)((first - first_zero) * (second - second_zero)) * scale;
        v += y_zero;
    } else {
        const float first_factor = scales[exchanged] / scales[2];
        const float second_factor = scales[!exchanged] / scales[2];
        const float second_offset = second_factor * (float)second_zero;
        const float offset = y_zero - fmaf(first_factor, (float)first_zero, second_offset);
        v = fmaf((float)first, first_factor, fmaf((float)second, second_factor, offset));
    }
    const int low = type == QK_INT8 ? -128 : 0;
    const int rounded = (int)rintf(v);
    return (uint8_t)(rounded < low ? low : rounded > low + 255 ? low + 255 : rounded);
}

static size_t index_of(const size_t *dims, uint32_t rank, const struct qk_tensor *y, size_t i)
{
    size_t index = 0;
    size_t stride = 1;
    for (uint32_t k = 1; k <= y->rank; k++) {
        const size_t at = i % y->dims[y->rank - k];
        i /= y->dims[y->rank - k];
        if (k > rank)
            continue;
        index += dims[rank - k] == 1 ? 0 : at * stride;
        stride *= dims[rank - k];
    }
    return index;
}

static void fill(uint8_t *bytes, size_t count, uint64_t *random)
{
    for (size_t i = 0; i < count; i++)
        bytes[i] = (uint8_t)qk_test_random(random);
}

/* Long rows of one shape are looked up in tables. */
Test(binary, many_units_of_many_shapes)
{
    static const struct {
        uint32_t a_rank, b_rank;
        size_t a[4], b[4];
    } shapes[] = {
        {1, 1, {300007}, {300007}},
        {1, 0, {300007}, {0}},
        {0, 1, {0}, {300007}},
        {3, 2, {3, 47, 2111}, {47, 1}},
        {2, 4, {47, 1}, {3, 2, 47, 1131}},
        {3, 1, {311, 121, 7}, {7}},
        {4, 4, {19, 1, 61, 1}, {1, 43, 1, 7}},
        {2, 1, {2117, 130}, {130}},
        {2, 2, {90011, 1}, {1, 3}},
    };
    enum { ROOM = 3 * 2 * 47 * 1131 }; /* the largest operand */
    uint8_t *a = malloc(ROOM);
    uint8_t *b = malloc(ROOM);
    uint64_t random = 28;
    struct qk_test_tiers tiers;
    cr_assert(a && b);
    fill(a, ROOM, &random);
    fill(b, ROOM, &random);
    qk_test_tiers_init(&tiers);
    for (size_t i = 0; i < 4 * sizeof(shapes) / sizeof(shapes[0]); i++) {
        const char *op = operators[i & 1];
        const enum qk_type type = i & 2 ? QK_INT8 : QK_UINT8;
        const size_t *a_dims = shapes[i / 4].a;
        const size_t *b_dims = shapes[i / 4].b;
        struct qk_call call;
        struct qk_test_result result;
        start(&call, op, type, a, shapes[i / 4].a_rank, a_dims, b, shapes[i / 4].b_rank, b_dims);
        const struct qk_tensor *shape_a = &call.inputs[qk_test_input_index(call.op, "A")];
        const struct qk_tensor *shape_b = &call.inputs[qk_test_input_index(call.op, "B")];
        const bool exchanged = qk_binary_first_is_scalar(shape_a, shape_b);
        for (size_t k = 0; k < tiers.count; k++) /* every third call writes past the caches */
            tiers.kernels[k]->choice.elementwise.stream_bytes = i % 3 == 0 ? 1 : SIZE_MAX;
        qk_test_run_tiers(&tiers, &call, i + 1, &result);
        cr_assert_eq(result.status, QK_OK, "%s", result.error.text);
        cr_assert_gt(result.plan.unit_count, 1);
        const uint8_t *y = result.output;
        for (size_t k = 0; k < result.plan.outputs[0].count; k++) {
            const uint8_t a_code = a[index_of(a_dims, shape_a->rank, &result.plan.outputs[0], k)];
            const uint8_t b_code = b[index_of(b_dims, shape_b->rank, &result.plan.outputs[0], k)];
            cr_assert_eq(y[k], expected(op, type, exchanged, a_code, b_code),
                         "%s, shapes %zu, element %zu", op, i / 4, k);
        }
        qk_test_result_deinit(&result);
    }
    qk_test_tiers_deinit(&tiers);
    free(a);
    free(b);
}

Test(binary, absent_zero_points_are_0)
{
    static const uint8_t a[] = {1, 2, 3, 250};
    static const uint8_t nothing;
    static const float one[] = {1};
    static const size_t dims[] = {4};
    static const size_t single[] = {1};
    struct qk_kernels *kernels = qk_test_kernels("scalar");
    for (size_t i = 0; i < 2; i++) {
        struct qk_call call;
        struct qk_test_result result;
        qk_test_call_init(&call, operators[i], 1);
        qk_test_call_input(&call, "A", QK_UINT8, a, 1, dims);
        qk_test_call_input(&call, "B", QK_UINT8, a, 1, dims);
        qk_test_call_input(&call, "A_scale", QK_FP32, one, 0, NULL);
        qk_test_call_input(&call, "B_scale", QK_FP32, one, 1, single);
        qk_test_call_input(&call, "C_scale", QK_FP32, one, 0, NULL);
        qk_test_call_input(&call, "B_zero_point", QK_UINT8, &nothing, 1, single);
        qk_test_run(kernels, &call, &result);
        cr_assert_eq(result.status, QK_OK, "%s", result.error.text);
        const uint8_t sums[] = {2, 4, 6, 255};
        const uint8_t products[] = {1, 4, 9, 255};
        cr_expect_eq(memcmp(result.output, i ? products : sums, sizeof(a)), 0);
        qk_test_result_deinit(&result);
    }
    qk_kernels_destroy(kernels);
}

Test(binary, refusals_name_the_field)
{
    static const uint8_t data[8];
    static const size_t two[] = {2};
    static const size_t three[] = {3};
    static const size_t single[] = {1, 1};
    struct qk_call call;
    start(&call, operators[0], QK_UINT8, data, 1, two, data, 1, three);
    qk_test_expect_refusal(&call, "B");
    start(&call, operators[0], QK_UINT8, data, 1, two, data, 1, two);
    qk_test_call_input(&call, "C_scale", QK_FP32, data, 2, single);
    qk_test_expect_refusal(&call, "C_scale");
    start(&call, operators[1], QK_INT8, data, 1, two, data, 1, two);
    qk_test_call_input(&call, "A_zero_point", QK_UINT8, data, 0, NULL);
    qk_test_expect_refusal(&call, "A_zero_point");
    start(&call, operators[1], QK_INT8, data, 1, two, data, 1, two);
    qk_test_call_input(&call, "B_zero_point", QK_INT8, data, 1, two);
    qk_test_expect_refusal(&call, "B_zero_point");
}

/* The shapes ask for an output of 2^80 bytes. Nothing is allocated for it. */
Test(binary, an_output_beyond_memory_is_refused)
{
    static const uint8_t nothing[8];
    const size_t tall[] = {(size_t)1 << 40, 1};
    const size_t wide[] = {(size_t)1 << 40};
    struct qk_kernels *kernels = qk_test_kernels("scalar");
    struct qk_call call;
    struct qk_test_memory memory;
    struct qk_plan plan;
    struct qk_error error;
    const struct qk_instance *instance;
    start(&call, operators[0], QK_UINT8, nothing, 2, tall, nothing, 1, wide);
    qk_test_memory_init(&memory, SIZE_MAX);
    struct qk_memory face = qk_test_memory_face(&memory);
    cr_assert_eq(qk_create(kernels, &call, face, &instance, &error), QK_OK);
    cr_expect_eq(qk_plan(instance, call.inputs, face, &plan, &error), QK_INVALID);
    cr_expect_eq(strncmp(error.text, "B: expected an output that fits", 31), 0, "%s", error.text);
    qk_test_memory_deinit(&memory);
    qk_kernels_destroy(kernels);
}

Test(binary, every_allocation_may_fail)
{
    static const uint8_t data[8];
    static const size_t two[] = {2};
    struct qk_kernels *kernels = qk_test_kernels("scalar");
    struct qk_call call;
    start(&call, operators[0], QK_UINT8, data, 1, two, data, 1, two);
    cr_expect_eq(qk_test_fail_allocations(kernels, &call), 2);
    call.variable &= ~(1U << qk_test_input_index(call.op, "B")); /* B is fixed */
    cr_expect_eq(qk_test_fail_allocations(kernels, &call), 4);
    qk_kernels_destroy(kernels);
}
