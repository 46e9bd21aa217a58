/* What onnx.QuantizeLinear refuses, a test for each rule. Rules about shapes are checked by the
 * code of DequantizeLinear. These tests check that this code is called. */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/support/kernels/qk_test.h"

static const uint8_t zeros[64];

/* Starts a call on zeros, with x of shape [2,4] and one scale. */
static void start(struct qk_call *call, uint64_t version, enum qk_type x_type,
                  enum qk_type scale_type)
{
    const size_t dims[] = {2, 4};
    qk_test_call_init(call, "onnx.QuantizeLinear", version);
    qk_test_call_input(call, "x", x_type, zeros, 2, dims);
    qk_test_call_input(call, "y_scale", scale_type, zeros, 0, NULL);
}

static void give_scale(struct qk_call *call, uint32_t rank, size_t first, size_t second)
{
    const size_t dims[] = {first, second};
    qk_test_call_input(call, "y_scale", QK_FP32, zeros, rank, dims);
}

static void give_zero_point(struct qk_call *call, enum qk_type type, uint32_t rank, size_t first)
{
    const size_t dims[] = {first, 1};
    qk_test_call_input(call, "y_zero_point", type, zeros, rank, dims);
}

static void expect_text(const struct qk_call *call, const char *text)
{
    struct qk_kernels *kernels = qk_test_kernels("scalar");
    struct qk_test_result result;
    qk_test_run(kernels, call, &result);
    cr_assert_eq(result.status, QK_INVALID);
    cr_assert_str_eq(result.error.text, text);
    qk_kernels_destroy(kernels);
}

Test(onnx_quantize_linear_refusals, scales_of_other_shapes)
{
    struct qk_call call;
    start(&call, 10, QK_FP32, QK_FP32);
    give_scale(&call, 1, 4, 0);
    expect_text(&call, "y_scale: expected one scale, of shape [] or [1], for onnx.QuantizeLinear "
                       "10, got shape [4]");
    start(&call, 13, QK_FP32, QK_FP32);
    give_scale(&call, 1, 3, 0);
    expect_text(&call, "y_scale: expected shape [4], as long as axis 1 of x of shape [2,4], got "
                       "[3]");
    give_scale(&call, 2, 1, 1);
    qk_test_expect_refusal(&call, "y_scale");
}

Test(onnx_quantize_linear_refusals, axes_out_of_range)
{
    static const int64_t wrong[] = {2, -3, INT64_MIN, INT64_MAX};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct qk_call call;
        start(&call, 13, QK_FP32, QK_FP32);
        give_scale(&call, 1, 4, 0);
        qk_test_call_int(&call, "axis", wrong[i]);
        qk_test_expect_refusal(&call, "axis");
    }
}

Test(onnx_quantize_linear_refusals, blocks_of_other_shapes)
{
    struct qk_call call;
    start(&call, 21, QK_FP32, QK_FP32);
    qk_test_call_int(&call, "block_size", 3);
    qk_test_expect_refusal(&call, "block_size"); /* a block_size with a scalar scale */
    give_scale(&call, 2, 2, 1);
    expect_text(&call, "y_scale: expected shape [2,2] for blocks of 3 on axis 1 of x, got [2,1]");
    qk_test_call_int(&call, "block_size", -1);
    qk_test_expect_refusal(&call, "block_size");
}

Test(onnx_quantize_linear_refusals, zero_points_unlike_the_scale)
{
    struct qk_call call;
    start(&call, 13, QK_FP32, QK_FP32);
    give_zero_point(&call, QK_UINT8, 1, 4);
    qk_test_expect_refusal(&call, "y_zero_point");
    give_scale(&call, 1, 4, 0);
    give_zero_point(&call, QK_UINT8, 0, 0);
    expect_text(&call, "y_zero_point: expected the shape of y_scale, [4], got shape []");
    give_zero_point(&call, QK_UINT8, 1, 2);
    qk_test_expect_refusal(&call, "y_zero_point");
}

Test(onnx_quantize_linear_refusals, an_output_dtype_unlike_the_zero_point)
{
    struct qk_call call;
    start(&call, 21, QK_FP32, QK_FP32);
    give_zero_point(&call, QK_UINT8, 0, 0);
    qk_test_call_int(&call, "output_dtype", 3);
    expect_text(&call,
                "output_dtype: expected 0 or 2 (UINT8), the datatype of y_zero_point, got 3");
}

/* Types that no version has, and types that this version does not have yet. */
Test(onnx_quantize_linear_refusals, other_output_dtypes)
{
    static const int64_t wrong[] = {1, 6, 11, 24, -1, 2 + (INT64_C(1) << 32), INT64_MIN, 23, 25};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct qk_call call;
        start(&call, 21, QK_FP32, QK_FP32);
        qk_test_call_int(&call, "output_dtype", wrong[i]);
        qk_test_expect_refusal(&call, "output_dtype");
    }
    struct qk_call call;
    start(&call, 21, QK_FP32, QK_FP32);
    qk_test_call_int(&call, "output_dtype", 23);
    expect_text(&call, "output_dtype: expected UINT8, INT8, UINT16, INT16, UINT4, INT4, FP8E4M3FN, "
                       "FP8E4M3FNUZ, FP8E5M2, FP8E5M2FNUZ, the datatypes of y in "
                       "onnx.QuantizeLinear 21, got 23");
}

Test(onnx_quantize_linear_refusals, other_precisions)
{
    static const int64_t wrong[] = {2, 6, 11, 24, -1, 1 + (INT64_C(1) << 32), INT64_MIN};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct qk_call call;
        start(&call, 23, QK_FP32, QK_FP32);
        qk_test_call_int(&call, "precision", wrong[i]);
        qk_test_expect_refusal(&call, "precision");
    }
}

Test(onnx_quantize_linear_refusals, saturate_that_is_no_truth)
{
    static const int64_t wrong[] = {2, -1, INT64_MAX};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct qk_call call;
        start(&call, 19, QK_FP32, QK_FP32);
        qk_test_call_int(&call, "saturate", wrong[i]);
        qk_test_expect_refusal(&call, "saturate");
    }
}

Test(onnx_quantize_linear_refusals, scales_of_another_type_than_x)
{
    static const unsigned versions[] = {19, 21};
    struct qk_call call;
    for (size_t i = 0; i < 2; i++) {
        start(&call, versions[i], QK_FP32, QK_FP16);
        expect_text(&call, "y_scale: expected the datatype of x, FP32, got FP16");
        start(&call, versions[i], QK_INT32, QK_FP32);
        qk_test_expect_refusal(&call, "y_scale");
    }
    start(&call, 23, QK_FP16, QK_FP8E8M0);
    qk_test_expect_refusal(&call, "y_scale");
}

Test(onnx_quantize_linear_refusals, attributes_of_later_versions)
{
    static const struct {
        const char *name;
        uint64_t versions[5];
    } cases[] = {{"axis", {10}},
                 {"block_size", {10, 13, 19}},
                 {"saturate", {10, 13}},
                 {"output_dtype", {10, 13, 19}},
                 {"precision", {10, 13, 19, 21}}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        for (size_t v = 0; cases[i].versions[v]; v++) {
            struct qk_call call;
            start(&call, cases[i].versions[v], QK_FP32, QK_FP32);
            qk_test_call_int(&call, cases[i].name, 0);
            qk_test_expect_refusal(&call, cases[i].name);
        }
    }
}

/* Each version takes its own types and no others, as in the table of onnx/defs/quantization. */
Test(onnx_quantize_linear_refusals, types_of_later_versions)
{
    static const struct {
        enum qk_type type;
        unsigned as_x; /* the first version that takes it; 99: none does */
        unsigned as_scale;
        unsigned as_y;
    } since[] = {
        {QK_UINT8, 99, 99, 10},       {QK_INT8, 99, 99, 10},    {QK_INT32, 10, 19, 99},
        {QK_UINT16, 99, 99, 21},      {QK_INT16, 99, 99, 21},   {QK_UINT32, 99, 99, 99},
        {QK_FP16, 19, 19, 99},        {QK_BF16, 19, 19, 99},    {QK_FP32, 10, 10, 99},
        {QK_UINT4, 99, 99, 21},       {QK_INT4, 99, 99, 21},    {QK_UINT2, 99, 99, 25},
        {QK_INT2, 99, 99, 25},        {QK_FP4E2M1, 99, 99, 23}, {QK_FP8E4M3FN, 99, 99, 19},
        {QK_FP8E4M3FNUZ, 99, 99, 19}, {QK_FP8E5M2, 99, 99, 19}, {QK_FP8E5M2FNUZ, 99, 99, 19},
        {QK_FP8E8M0, 99, 24, 99},     {QK_INT64, 99, 99, 99},   {QK_BOOL, 99, 99, 99},
    };
    const struct qk_operator *op = qk_operator_by_name("onnx.QuantizeLinear");
    cr_assert_eq(op->version_count, 7);
    cr_assert_eq(sizeof(since) / sizeof(since[0]), QK_TYPE_COUNT - 1);
    for (size_t v = 0; v < op->version_count; v++) {
        const struct qk_version *version = &op->versions[v];
        for (size_t i = 0; i < sizeof(since) / sizeof(since[0]); i++) {
            const uint32_t bit = QK_BIT(since[i].type);
            const char *name = qk_type_info(since[i].type)->name;
            cr_expect_eq((version->inputs[0].types & bit) != 0, since[i].as_x <= version->number,
                         "%s %u", name, version->number);
            cr_expect_eq((version->inputs[1].types & bit) != 0,
                         since[i].as_scale <= version->number, "%s %u", name, version->number);
            cr_expect_eq((version->inputs[2].types & bit) != 0, since[i].as_y <= version->number,
                         "%s %u", name, version->number);
            cr_expect_eq(version->inputs[2].types, version->output_types[0]);
        }
    }
}

/* A plan reads shapes alone, so a test may have any. */
Test(onnx_quantize_linear_refusals, an_x_with_more_bytes_than_64_bits_count)
{
    const size_t huge = SIZE_MAX / 4 + 1;
    struct qk_call call;
    qk_test_call_init(&call, "onnx.QuantizeLinear", 13);
    qk_test_call_input(&call, "x", QK_FP32, NULL, 1, &huge); /* never read */
    qk_test_call_input(&call, "y_scale", QK_FP32, "\0\0\0", 0, NULL);
    qk_test_expect_refusal(&call, "x");
}
