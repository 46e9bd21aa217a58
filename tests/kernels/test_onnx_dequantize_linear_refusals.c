/* What onnx.DequantizeLinear refuses, a test for each rule. */
#include "tests/support/qk_test.h"

#include <criterion/criterion.h>

struct shape {
    uint32_t rank;
    size_t dims[3];
};

#define SCALAR ((struct shape){.rank = 0})
#define ROW(n) ((struct shape){1, {n}})
#define MATRIX(m, n) ((struct shape){2, {m, n}})

/* A call on zeros. */
struct attempt {
    uint64_t version;
    struct shape x;
    struct shape scale;
    bool has_zero_point;
    struct shape zero_point;
    bool has_axis;
    int64_t axis;
};

/* Fails unless the attempt is refused with a text that names `field`. */
static void refuse(const char *field, struct attempt attempt)
{
    static const uint8_t zeros[64];
    struct qk_call call;
    qk_test_call_init(&call, "onnx.DequantizeLinear", attempt.version);
    qk_test_call_input(&call, "x", QK_UINT8, zeros, attempt.x.rank, attempt.x.dims);
    qk_test_call_input(&call, "x_scale", QK_FP32, zeros, attempt.scale.rank, attempt.scale.dims);
    if (attempt.has_zero_point)
        qk_test_call_input(&call, "x_zero_point", QK_UINT8, zeros, attempt.zero_point.rank,
                           attempt.zero_point.dims);
    if (attempt.has_axis)
        qk_test_call_int(&call, "axis", attempt.axis);
    qk_test_expect_refusal(&call, field);
}

#define REFUSE(field, ...) refuse(field, (struct attempt){__VA_ARGS__})

Test(onnx_dequantize_linear_refusals, a_row_of_scales_in_opset_10)
{
    REFUSE("x_scale", .version = 10, .x = MATRIX(2, 3), .scale = ROW(3));
    REFUSE("x_scale", .version = 10, .x = MATRIX(2, 0), .scale = ROW(0));
}

Test(onnx_dequantize_linear_refusals, scales_of_more_dims)
{
    REFUSE("x_scale", .version = 13, .x = MATRIX(2, 3), .scale = MATRIX(2, 3));
    REFUSE("x_scale", .version = 13, .x = MATRIX(2, 3), .scale = MATRIX(1, 1));
}

Test(onnx_dequantize_linear_refusals, scales_of_another_length)
{
    REFUSE("x_scale", .version = 13, .x = MATRIX(2, 3), .scale = ROW(4));
    REFUSE("x_scale", .version = 13, .x = MATRIX(2, 3), .scale = ROW(3), .has_axis = true,
           .axis = 0);
    REFUSE("x_scale", .version = 13, .x = MATRIX(2, 3), .scale = ROW(0));
}

Test(onnx_dequantize_linear_refusals, a_row_of_scales_for_a_scalar)
{
    REFUSE("x_scale", .version = 13, .x = SCALAR, .scale = ROW(2));
}

Test(onnx_dequantize_linear_refusals, an_axis_out_of_range)
{
    static const int64_t wrong[] = {2, -3, INT64_MIN, INT64_MAX};
    REFUSE("axis", .version = 13, .x = ROW(3), .scale = ROW(3));
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        REFUSE("axis", .version = 13, .x = MATRIX(2, 3), .scale = ROW(3), .has_axis = true,
               .axis = wrong[i]);
}

Test(onnx_dequantize_linear_refusals, zero_points_unlike_the_scales)
{
    REFUSE("x_zero_point", .version = 13, .x = MATRIX(2, 3), .scale = ROW(3),
           .has_zero_point = true, .zero_point = SCALAR);
    REFUSE("x_zero_point", .version = 13, .x = MATRIX(2, 3), .scale = ROW(3),
           .has_zero_point = true, .zero_point = ROW(1));
    REFUSE("x_zero_point", .version = 13, .x = MATRIX(2, 3), .scale = ROW(3),
           .has_zero_point = true, .zero_point = ROW(2));
    REFUSE("x_zero_point", .version = 13, .x = MATRIX(2, 3), .scale = ROW(3),
           .has_zero_point = true, .zero_point = MATRIX(1, 3));
    REFUSE("x_zero_point", .version = 13, .x = MATRIX(2, 3), .scale = SCALAR,
           .has_zero_point = true, .zero_point = ROW(3));
    REFUSE("x_zero_point", .version = 13, .x = MATRIX(2, 3), .scale = SCALAR,
           .has_zero_point = true, .zero_point = MATRIX(1, 1));
}

Test(onnx_dequantize_linear_refusals, a_zero_point_of_another_type)
{
    struct qk_call call;
    qk_test_call_init(&call, "onnx.DequantizeLinear", 13);
    qk_test_call_input(&call, "x", QK_UINT8, "\0", 0, NULL);
    qk_test_call_input(&call, "x_scale", QK_FP32, "\0\0\0", 0, NULL);
    qk_test_call_input(&call, "x_zero_point", QK_INT8, "\0", 0, NULL);
    qk_test_expect_refusal(&call, "x_zero_point");
}

Test(onnx_dequantize_linear_refusals, what_has_no_output_size)
{
    struct qk_call call;
    const size_t huge = SIZE_MAX / 2;
    qk_test_call_init(&call, "onnx.DequantizeLinear", 13);
    qk_test_call_input(&call, "x", QK_UINT8, NULL, 1, &huge); /* never read */
    qk_test_call_input(&call, "x_scale", QK_FP32, "\0\0\0", 0, NULL);
    qk_test_expect_refusal(&call, "x");
}

Test(onnx_dequantize_linear_refusals, texts_name_what_came)
{
    struct qk_kernels *kernels = qk_test_kernels("scalar");
    struct qk_test_result result;
    struct qk_call call;
    const size_t x_dims[] = {2, 4};
    const size_t scale_dims[] = {3};
    static const uint8_t zeros[16];
    qk_test_call_init(&call, "onnx.DequantizeLinear", 13);
    qk_test_call_input(&call, "x", QK_INT8, zeros, 2, x_dims);
    qk_test_call_input(&call, "x_scale", QK_FP32, zeros, 1, scale_dims);
    qk_test_run(kernels, &call, &result);
    cr_assert_eq(result.error.status, QK_INVALID);
    cr_assert_str_eq(result.error.text,
                     "x_scale: expected shape [4], as long as axis 1 of x of shape [2,4], got [3]");
    qk_test_call_int(&call, "axis", 7);
    qk_test_run(kernels, &call, &result);
    cr_assert_str_eq(result.error.text, "axis: expected -2 to 1 for x of shape [2,4], got 7");
    qk_kernels_destroy(kernels);
}
