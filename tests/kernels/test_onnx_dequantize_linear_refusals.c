/* What onnx.DequantizeLinear refuses, a test for each rule. */
#include "tests/support/kernels/qk_test.h"

#include <criterion/criterion.h>

struct shape {
    uint32_t rank;
    size_t dims[3];
};

#define SCALAR ((struct shape){.rank = 0})
#define ROW(n) ((struct shape){1, {n}})
#define MATRIX(m, n) ((struct shape){2, {m, n}})

/* A call whose data is all zeros. */
struct attempt {
    uint64_t version;
    struct shape x;
    struct shape scale;
    bool has_zero_point;
    struct shape zero_point;
    bool has_axis;
    int64_t axis;
    int64_t block_size; /* 0: not given */
    enum qk_type type;  /* type of x and the zero point; QK_NONE: UINT8 */
    const void *codes;  /* codes of the zero point; NULL: zeros */
};

/* Fails unless the attempt is refused with a text that names `field`. */
static void refuse(const char *field, struct attempt attempt)
{
    static const uint8_t zeros[64];
    struct qk_call call;
    qk_test_call_init(&call, "onnx.DequantizeLinear", attempt.version);
    const enum qk_type type = attempt.type == QK_NONE ? QK_UINT8 : attempt.type;
    qk_test_call_input(&call, "x", type, zeros, attempt.x.rank, attempt.x.dims);
    qk_test_call_input(&call, "x_scale", QK_FP32, zeros, attempt.scale.rank, attempt.scale.dims);
    if (attempt.has_zero_point)
        qk_test_call_input(&call, "x_zero_point", type, attempt.codes ? attempt.codes : zeros,
                           attempt.zero_point.rank, attempt.zero_point.dims);
    if (attempt.has_axis)
        qk_test_call_int(&call, "axis", attempt.axis);
    if (attempt.block_size)
        qk_test_call_int(&call, "block_size", attempt.block_size);
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

Test(onnx_dequantize_linear_refusals, a_block_size_below_zero)
{
    REFUSE("block_size", .version = 21, .x = MATRIX(2, 3), .scale = MATRIX(2, 3), .block_size = -1);
    REFUSE("block_size", .version = 25, .x = ROW(3), .scale = SCALAR, .block_size = INT64_MIN);
}

Test(onnx_dequantize_linear_refusals, a_block_size_above_the_limit)
{
    REFUSE("block_size", .version = 21, .x = MATRIX(2, 5), .scale = MATRIX(2, 1),
           .block_size = QK_LENGTH_MAX + 1);
    REFUSE("block_size", .version = 21, .x = MATRIX(2, 5), .scale = MATRIX(2, 1),
           .block_size = INT64_MAX);
}

Test(onnx_dequantize_linear_refusals, a_block_size_for_a_scalar_scale)
{
    REFUSE("block_size", .version = 21, .x = ROW(3), .scale = SCALAR, .block_size = 3);
    REFUSE("block_size", .version = 21, .x = SCALAR, .scale = SCALAR, .block_size = 1);
}

Test(onnx_dequantize_linear_refusals, blocks_of_another_shape)
{
    /* Another rank. */
    REFUSE("x_scale", .version = 21, .x = MATRIX(2, 3), .scale = ROW(3), .block_size = 2);
    REFUSE("x_scale", .version = 21, .x = MATRIX(1, 1), .scale = ROW(1), .block_size = 1);
    REFUSE("x_scale", .version = 21, .x = ROW(4), .scale = MATRIX(1, 2), .has_axis = true,
           .block_size = 2);
    REFUSE("x_scale", .version = 21, .x = SCALAR, .scale = ROW(1), .block_size = 2);
    /* Another length on another axis, and on the axis one too few or one too many. */
    REFUSE("x_scale", .version = 21, .x = MATRIX(2, 5), .scale = MATRIX(1, 3), .block_size = 2);
    REFUSE("x_scale", .version = 21, .x = MATRIX(2, 5), .scale = MATRIX(2, 2), .block_size = 2);
    REFUSE("x_scale", .version = 21, .x = MATRIX(2, 5), .scale = MATRIX(2, 4), .block_size = 2);
    REFUSE("x_scale", .version = 21, .x = MATRIX(2, 5), .scale = MATRIX(2, 2),
           .block_size = QK_LENGTH_MAX);
    REFUSE("x_scale", .version = 21, .x = MATRIX(2, 0), .scale = MATRIX(2, 1), .block_size = 2);
    REFUSE("x_scale", .version = 21, .x = ROW(5), .scale = ROW(1), .has_axis = true,
           .block_size = 2);
}

Test(onnx_dequantize_linear_refusals, blocks_on_an_axis_out_of_range)
{
    REFUSE("axis", .version = 21, .x = ROW(4), .scale = ROW(2), .block_size = 2);
    REFUSE("axis", .version = 21, .x = MATRIX(2, 4), .scale = MATRIX(2, 2), .block_size = 2,
           .has_axis = true, .axis = -3);
}

Test(onnx_dequantize_linear_refusals, zero_points_unlike_the_blocks)
{
    REFUSE("x_zero_point", .version = 21, .x = MATRIX(2, 4), .scale = MATRIX(2, 2), .block_size = 2,
           .has_zero_point = true, .zero_point = ROW(2));
    REFUSE("x_zero_point", .version = 21, .x = MATRIX(2, 4), .scale = MATRIX(2, 2), .block_size = 2,
           .has_zero_point = true, .zero_point = MATRIX(2, 4));
    REFUSE("x_zero_point", .version = 21, .x = MATRIX(2, 4), .scale = MATRIX(2, 2), .block_size = 2,
           .has_zero_point = true, .zero_point = SCALAR);
}

/* -0 is refused as well. */
Test(onnx_dequantize_linear_refusals, zero_points_of_floats_that_are_not_zero)
{
    static const enum qk_type types[] = {QK_FP8E4M3FN, QK_FP8E4M3FNUZ, QK_FP8E5M2, QK_FP8E5M2FNUZ,
                                         QK_FP4E2M1};
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        REFUSE("x_zero_point", .version = 23, .x = ROW(3), .scale = SCALAR, .has_zero_point = true,
               .zero_point = SCALAR, .type = types[i], .codes = "\x01");
        REFUSE("x_zero_point", .version = 23, .x = MATRIX(1, 3), .scale = ROW(3),
               .has_zero_point = true, .zero_point = ROW(3), .type = types[i],
               .codes = types[i] == QK_FP4E2M1 ? "\x00\x08" : "\x00\x00\x80");
    }
}

static void refuse_output_dtype(enum qk_type scale_type, uint64_t version, bool given,
                                int64_t number)
{
    struct qk_call call;
    qk_test_call_init(&call, "onnx.DequantizeLinear", version);
    qk_test_call_input(&call, "x", QK_UINT8, "", 0, NULL);
    qk_test_call_input(&call, "x_scale", scale_type, "\0\0\0", 0, NULL);
    if (given)
        qk_test_call_int(&call, "output_dtype", number);
    qk_test_expect_refusal(&call, "output_dtype");
}

Test(onnx_dequantize_linear_refusals, other_output_dtypes)
{
    static const int64_t wrong[] = {2, 3, 11, 24, -1, 17, 1 + (INT64_C(1) << 32), INT64_MIN};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        refuse_output_dtype(QK_FP32, 23, true, wrong[i]);
        refuse_output_dtype(QK_FP8E8M0, 25, true, wrong[i]);
    }
}

Test(onnx_dequantize_linear_refusals, an_e8m0_scale_without_output_dtype)
{
    refuse_output_dtype(QK_FP8E8M0, 24, false, 0);
    refuse_output_dtype(QK_FP8E8M0, 24, true, 0);
}

Test(onnx_dequantize_linear_refusals, attributes_of_later_versions)
{
    static const struct {
        const char *name;
        uint64_t versions[5];
    } cases[] = {{"axis", {10}}, {"block_size", {10, 13, 19}}, {"output_dtype", {10, 13, 19, 21}}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        for (size_t v = 0; cases[i].versions[v]; v++) {
            struct qk_call call;
            qk_test_call_init(&call, "onnx.DequantizeLinear", cases[i].versions[v]);
            qk_test_call_input(&call, "x", QK_UINT8, "", 0, NULL);
            qk_test_call_input(&call, "x_scale", QK_FP32, "\0\0\0", 0, NULL);
            qk_test_call_int(&call, cases[i].name, 0);
            qk_test_expect_refusal(&call, cases[i].name);
        }
    }
}

/* Each version takes its own types and no others, as in the table of onnx/defs/quantization. */
Test(onnx_dequantize_linear_refusals, types_of_later_versions)
{
    static const struct {
        enum qk_type type;
        unsigned as_x; /* the first version that takes it; 99: none does */
        unsigned as_scale;
    } since[] = {
        {QK_UINT8, 10, 99},       {QK_INT8, 10, 99},    {QK_INT32, 10, 99},
        {QK_UINT16, 21, 99},      {QK_INT16, 21, 99},   {QK_UINT32, 99, 99},
        {QK_FP16, 99, 19},        {QK_BF16, 99, 19},    {QK_FP32, 99, 10},
        {QK_UINT4, 21, 99},       {QK_INT4, 21, 99},    {QK_UINT2, 25, 99},
        {QK_INT2, 25, 99},        {QK_FP4E2M1, 23, 99}, {QK_FP8E4M3FN, 19, 99},
        {QK_FP8E4M3FNUZ, 19, 99}, {QK_FP8E5M2, 19, 99}, {QK_FP8E5M2FNUZ, 19, 99},
        {QK_FP8E8M0, 99, 24},     {QK_INT64, 99, 99},   {QK_BOOL, 99, 99},
    };
    const struct qk_operator *op = qk_operator_by_name("onnx.DequantizeLinear");
    cr_assert_eq(op->version_count, 7);
    cr_assert_eq(sizeof(since) / sizeof(since[0]), QK_TYPE_COUNT - 1);
    for (size_t v = 0; v < op->version_count; v++) {
        const struct qk_version *version = &op->versions[v];
        for (size_t i = 0; i < sizeof(since) / sizeof(since[0]); i++) {
            const uint32_t bit = QK_BIT(since[i].type);
            const char *name = qk_type_info(since[i].type)->name;
            cr_expect_eq((version->inputs[0].types & bit) != 0, since[i].as_x <= version->number,
                         "%s %u", name, version->number);
            cr_expect_eq(version->inputs[2].types, version->inputs[0].types);
            cr_expect_eq((version->inputs[1].types & bit) != 0,
                         since[i].as_scale <= version->number, "%s %u", name, version->number);
            cr_expect_eq((version->output_types[0] & bit) != 0,
                         since[i].as_scale <= version->number && since[i].type != QK_FP8E8M0,
                         "%s %u", name, version->number);
        }
    }
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

/* An instance may be planned for many x, but only of the type and layout for which it was made. */
Test(onnx_dequantize_linear_refusals, another_x_to_plan)
{
    struct qk_kernels *kernels = qk_test_kernels("scalar");
    struct qk_test_memory memory;
    const struct qk_instance *instance;
    struct qk_plan plan;
    struct qk_error error;
    struct qk_call call;
    qk_test_memory_init(&memory, SIZE_MAX);
    struct qk_memory face = qk_test_memory_face(&memory);
    qk_test_call_init(&call, "onnx.DequantizeLinear", 13);
    qk_test_call_input(&call, "x", QK_INT8, "", 0, NULL);
    qk_test_call_input(&call, "x_scale", QK_FP32, "\0\0\0", 0, NULL);
    cr_assert_eq(qk_create(kernels, &call, face, &instance, &error), QK_OK);
    call.inputs[0].type = QK_INT32;
    cr_assert_eq(qk_plan(instance, call.inputs, face, &plan, &error), QK_INVALID);
    cr_assert_str_eq(error.text, "x: expected datatype INT8 as for create, got INT32");
    call.inputs[0].type = QK_INT8;
    call.inputs[0].count = 2;
    cr_assert_eq(qk_plan(instance, call.inputs, face, &plan, &error), QK_INVALID);
    cr_assert_str_eq(error.text, "x: its count does not match its shape");
    qk_test_memory_deinit(&memory);
    qk_kernels_destroy(kernels);
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
