/* The registry, its checks for every operator, and what every operator uses. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "kernels/operators/operator.h"
#include "kernels/operators/shape_text.h"
#include "tests/support/kernels/qk_test.h"

/* ---- Operators and versions -------------------------------------------------------------- */

Test(registry, finds_operators_by_name)
{
    size_t count;
    const struct qk_operator *const *operators = qk_operators(&count);
    cr_assert_gt(count, 0);
    for (size_t i = 0; i < count; i++)
        cr_assert_eq(qk_operator_by_name(operators[i]->name), operators[i]);
    cr_assert_null(qk_operator_by_name("onnx.dequantizelinear"));
    cr_assert_null(qk_operator_by_name("onnx.DequantizeLinear "));
    cr_assert_null(qk_operator_by_name(""));
}

static unsigned resolve(const char *name, uint64_t number)
{
    const struct qk_version *version = qk_operator_version(qk_operator_by_name(name), number);
    return version ? version->number : 0;
}

Test(registry, resolves_versions_as_opset_imports)
{
    static const uint64_t numbers[][2] = {
        {0, 0},   {9, 0},   {10, 10}, {11, 10}, {12, 10}, {13, 13}, {18, 13}, {19, 19},
        {20, 19}, {21, 21}, {22, 21}, {23, 23}, {24, 24}, {25, 25}, {26, 0},  {UINT64_MAX, 0},
    };
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        cr_assert_eq(resolve("onnx.DequantizeLinear", numbers[i][0]), numbers[i][1], "version %llu",
                     (unsigned long long)numbers[i][0]);
}

/* The feature levels of DirectML. */
Test(registry, resolves_only_numbers_that_exist)
{
    static const struct qk_version versions[] = {{.number = 10}, {.number = 21}};
    static const unsigned numbers[] = {10, 20, 21, 30};
    static const struct qk_operator op = {.versions = versions,
                                          .version_count = 2,
                                          .version_last = 30,
                                          .numbers = numbers,
                                          .number_count = 4};
    cr_assert_eq(qk_operator_version(&op, 10), &versions[0]);
    cr_assert_eq(qk_operator_version(&op, 20), &versions[0]);
    cr_assert_eq(qk_operator_version(&op, 21), &versions[1]);
    cr_assert_eq(qk_operator_version(&op, 30), &versions[1]);
    cr_assert_null(qk_operator_version(&op, 11));
    cr_assert_null(qk_operator_version(&op, 25));
    cr_assert_null(qk_operator_version(&op, 31));
    cr_assert_null(qk_operator_version(&op, 0));
}

static void check_inputs(const struct qk_operator *op)
{
    cr_assert_leq(op->input_count, QK_INPUT_COUNT_MAX);
    for (size_t i = 0; i < op->input_count; i++) {
        cr_assert(op->inputs[i].name && op->inputs[i].name[0]);
        cr_assert(op->inputs[i].shape && op->inputs[i].shape[0]);
        for (size_t v = 0; v < op->version_count; v++) {
            const struct qk_input_def *inputs = op->versions[v].inputs;
            if (inputs[i].types == 0) /* not in this version; nor are those behind it */
                cr_assert(i > 0 && inputs[i].optional &&
                          (i + 1 == op->input_count || inputs[i + 1].types == 0));
            cr_assert_eq(op->versions[v].inputs[i].types & QK_BIT(QK_NONE), 0);
            cr_assert_eq(op->versions[v].inputs[i].types >> QK_TYPE_COUNT, 0);
        }
    }
}

Test(registry, describes_each_operator_whole)
{
    size_t count;
    const struct qk_operator *const *operators = qk_operators(&count);
    for (size_t i = 0; i < count; i++) {
        const struct qk_operator *op = operators[i];
        cr_assert(op->platform && op->about && op->outputs[0].name && op->outputs[0].shape);
        cr_assert(op->code && op->code->prepare && op->code->plan);
        check_inputs(op);
        cr_assert_leq(op->attribute_count, QK_ATTRIBUTE_COUNT_MAX);
        for (size_t a = 0; a < op->attribute_count; a++)
            cr_assert(op->attributes[a].name && op->attributes[a].about);
        cr_assert_gt(op->version_count, 0);
        for (size_t v = 0; v < op->version_count; v++) {
            cr_assert_neq(op->versions[v].output_types[0], 0);
            cr_assert(v == 0 || op->versions[v].number > op->versions[v - 1].number);
        }
        cr_assert_geq(op->version_last, op->versions[op->version_count - 1].number);
    }
}

/* ---- The checks of qk_create ------------------------------------------------------------- */

static const uint8_t zeros[64];

static void valid_call(struct qk_call *call, uint64_t version)
{
    const size_t dims[] = {2, 3};
    qk_test_call_init(call, "onnx.DequantizeLinear", version);
    qk_test_call_input(call, "x", QK_UINT8, zeros, 2, dims);
    qk_test_call_input(call, "x_scale", QK_FP32, zeros, 0, NULL);
}

static void expect_text(const struct qk_call *call, const char *text)
{
    struct qk_kernels *kernels = qk_test_kernels("scalar");
    struct qk_test_result result;
    qk_test_run(kernels, call, &result);
    cr_assert_eq(result.status, QK_INVALID);
    cr_assert_eq(result.error.status, QK_INVALID);
    cr_assert_str_eq(result.error.text, text);
    qk_kernels_destroy(kernels);
}

Test(registry, accepts_a_valid_call)
{
    struct qk_kernels *kernels = qk_test_kernels("scalar");
    struct qk_test_result result;
    struct qk_call call;
    valid_call(&call, 10);
    qk_test_run(kernels, &call, &result);
    cr_assert_eq(result.status, QK_OK);
    qk_test_result_deinit(&result);
    qk_kernels_destroy(kernels);
}

Test(registry, refuses_a_missing_input)
{
    struct qk_call call;
    valid_call(&call, 13);
    call.inputs[1].type = QK_NONE;
    expect_text(&call,
                "x_scale: expected this input, which onnx.DequantizeLinear 13 requires, got none");
}

Test(registry, refuses_a_type_that_the_version_lacks)
{
    struct qk_call call;
    valid_call(&call, 10);
    call.inputs[0].type = QK_FP32;
    expect_text(&call,
                "x: expected datatype UINT8, INT8, INT32 for onnx.DequantizeLinear 10, got FP32");
}

Test(registry, refuses_an_attribute_that_the_version_lacks)
{
    struct qk_call call;
    valid_call(&call, 10);
    qk_test_call_int(&call, "axis", 0);
    expect_text(&call,
                "axis: expected version 13 or later of onnx.DequantizeLinear, got version 10");
}

Test(registry, refuses_a_tensor_that_contradicts_itself)
{
    struct qk_call call;
    valid_call(&call, 13);
    call.inputs[0].count = 7;
    expect_text(&call, "x: its count does not match its shape");
    valid_call(&call, 13);
    for (size_t i = 0; i < QK_RANK_MAX; i++)
        call.inputs[0].dims[i] = 1;
    call.inputs[0].count = 1;
    call.inputs[0].rank = QK_RANK_MAX + 1;
    expect_text(&call, "x: its count does not match its shape");
    valid_call(&call, 13);
    call.inputs[0].stored = 5;
    expect_text(&call, "x: its stored elements do not match its layout");
    valid_call(&call, 13);
    call.inputs[0].dims[0] = SIZE_MAX;
    expect_text(&call, "x: its count does not match its shape");
}

/* ---- Types, sizes, texts ----------------------------------------------------------------- */

Test(registry, knows_the_element_types)
{
    for (enum qk_type type = QK_NONE + 1; type < QK_TYPE_COUNT; type++)
        cr_assert_eq(qk_type_by_name(qk_type_info(type)->name), type);
    cr_assert_eq(qk_type_by_name("uint8"), QK_NONE);
    cr_assert_eq(qk_type_by_name(""), QK_NONE);
    cr_assert_eq(qk_type_info(QK_INT8)->min, -128);
    cr_assert_eq(qk_type_info(QK_UINT8)->max, 255);
    cr_assert_eq(qk_type_info(QK_INT32)->min, INT32_MIN);
    cr_assert_eq(qk_type_info(QK_INT32)->onnx, 6);
    cr_assert_eq(qk_type_info(QK_FP32)->onnx, 1);
}

/* TensorProto.DataType and wire names differ for each type. */
Test(registry, element_types_differ)
{
    for (enum qk_type a = QK_NONE + 1; a < QK_TYPE_COUNT; a++) {
        const struct qk_type_info *info = qk_type_info(a);
        cr_assert(info->bits == 2 || info->bits == 4 || info->bits == 8 || info->bits == 16 ||
                  info->bits == 32 || a == QK_INT64);
        if (info->kind != QK_KIND_FLOAT && a != QK_BOOL)
            cr_assert_eq((uint64_t)info->max - (uint64_t)info->min, UINT64_MAX >> (64 - info->bits),
                         "%s", info->name);
        for (enum qk_type b = QK_NONE + 1; b < a; b++) {
            cr_assert_neq(info->onnx, qk_type_info(b)->onnx);
            cr_assert_str_neq(info->name, qk_type_info(b)->name);
        }
    }
}

Test(registry, sizes_do_not_overflow)
{
    size_t size;
    cr_assert(qk_mul_size(SIZE_MAX / 2, 2, &size));
    cr_assert_eq(size, SIZE_MAX - 1);
    cr_assert_not(qk_mul_size(SIZE_MAX / 2 + 1, 2, &size));
    cr_assert(qk_type_bytes(QK_UINT8, SIZE_MAX, &size));
    cr_assert_eq(size, SIZE_MAX);
    cr_assert(qk_type_bytes(QK_FP32, 7, &size));
    cr_assert_eq(size, 28);
    cr_assert(qk_type_bytes(QK_FP32, SIZE_MAX / 4, &size));
    cr_assert_eq(size, SIZE_MAX / 4 * 4);
    cr_assert_not(qk_type_bytes(QK_FP32, SIZE_MAX / 4 + 1, &size));
    cr_assert(qk_type_bytes(QK_INT32, 0, &size));
    cr_assert_eq(size, 0);
}

Test(registry, counts_elements)
{
    struct qk_tensor tensor = {.rank = 0};
    cr_assert(qk_tensor_set_count(&tensor));
    cr_assert_eq(tensor.count, 1);
    tensor = (struct qk_tensor){.rank = 3, .dims = {2, 3, 5}};
    cr_assert(qk_tensor_set_count(&tensor));
    cr_assert_eq(tensor.count, 30);
    tensor = (struct qk_tensor){.rank = 3, .dims = {2, 0, SIZE_MAX / 2}};
    cr_assert(qk_tensor_set_count(&tensor));
    cr_assert_eq(tensor.count, 0);
    tensor = (struct qk_tensor){.rank = 2, .dims = {2, SIZE_MAX / 2 + 1}};
    cr_assert_not(qk_tensor_set_count(&tensor));
    /* The tensor is empty, but the product of its other dims overflows a size. */
    tensor = (struct qk_tensor){.rank = 3, .dims = {0, 2, SIZE_MAX / 2 + 1}};
    cr_assert_not(qk_tensor_set_count(&tensor));
}

static bool set_strides(struct qk_tensor *tensor, int64_t outer, int64_t inner)
{
    const int64_t strides[] = {outer, inner};
    cr_assert(qk_tensor_set_count(tensor));
    cr_assert_eq(tensor->stored, tensor->count);
    return qk_tensor_set_strides(tensor, strides, 2);
}

Test(registry, counts_what_strides_reach)
{
    struct qk_tensor tensor = {.rank = 2, .dims = {2, 3}};
    cr_assert(set_strides(&tensor, 3, 1));
    cr_assert_eq(tensor.stored, 6);
    cr_assert(set_strides(&tensor, 0, 0));
    cr_assert_eq(tensor.stored, 1);
    cr_assert(set_strides(&tensor, 10, 2));
    cr_assert_eq(tensor.stored, 15);
    cr_assert(set_strides(&tensor, 1, 2));
    cr_assert_eq(tensor.stored, 6);
    cr_assert_eq(tensor.count, 6);
    cr_assert_not(set_strides(&tensor, -1, 1));
    cr_assert_not(set_strides(&tensor, 0, INT64_MIN));
    cr_assert_not(qk_tensor_set_strides(&tensor, (const int64_t[]){1}, 1));
    cr_assert_not(qk_tensor_set_strides(&tensor, (const int64_t[]){1, 1, 1}, 3));
    tensor = (struct qk_tensor){.rank = 2, .dims = {4, 3}};
    cr_assert_not(set_strides(&tensor, INT64_MAX, 1));
    cr_assert_not(set_strides(&tensor, 0, INT64_MAX));
    cr_assert_not(set_strides(&tensor, 0, QK_STRIDE_MAX + 1));
    cr_assert(set_strides(&tensor, 0, QK_STRIDE_MAX));
    cr_assert_eq(tensor.stored, 2 * (size_t)UINT32_MAX + 1);
    tensor = (struct qk_tensor){.rank = 2, .dims = {(size_t)1 << 32, (size_t)1 << 31}};
    cr_assert_not(set_strides(&tensor, QK_STRIDE_MAX, QK_STRIDE_MAX));
    tensor = (struct qk_tensor){.rank = 2, .dims = {(size_t)1 << 33, 2}};
    cr_assert_not(set_strides(&tensor, QK_STRIDE_MAX, 1));
    tensor = (struct qk_tensor){.rank = 2, .dims = {1, 1}};
    cr_assert(set_strides(&tensor, QK_STRIDE_MAX, QK_STRIDE_MAX));
    cr_assert_eq(tensor.stored, 1);
    tensor = (struct qk_tensor){.rank = 2, .dims = {0, 3}};
    cr_assert(set_strides(&tensor, QK_STRIDE_MAX, QK_STRIDE_MAX));
    cr_assert_eq(tensor.stored, 0);
}

Test(registry, errors_are_cut_to_their_room)
{
    struct qk_error error;
    char text[1000];
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    cr_assert_eq(qk_fail(&error, QK_INVALID, "%s", text), QK_INVALID);
    cr_assert_eq(error.status, QK_INVALID);
    cr_assert_eq(strlen(error.text), sizeof(error.text) - 1);
}

Test(registry, prints_shapes)
{
    struct qk_shape_text buffer;
    struct qk_tensor tensor = {.rank = 0};
    cr_assert_str_eq(qk_shape_text(&tensor, &buffer), "[]");
    tensor = (struct qk_tensor){.rank = 1, .dims = {7}};
    cr_assert_str_eq(qk_shape_text(&tensor, &buffer), "[7]");
    tensor = (struct qk_tensor){.rank = 3, .dims = {2, 0, SIZE_MAX}};
    cr_assert_str_eq(qk_shape_text(&tensor, &buffer), "[2,0,18446744073709551615]");
}

/* The longest texts, at every length at which they can be cut. */
Test(registry, cuts_long_shapes)
{
    for (uint32_t ones = 0; ones < QK_RANK_MAX; ones++) {
        struct qk_shape_text buffer;
        struct qk_tensor tensor = {.rank = QK_RANK_MAX};
        for (uint32_t i = 0; i < QK_RANK_MAX; i++)
            tensor.dims[i] = i < ones ? 1 : SIZE_MAX;
        memset(&buffer, 'x', sizeof(buffer));
        const char *text = qk_shape_text(&tensor, &buffer);
        size_t length = strnlen(text, sizeof(buffer.text));
        cr_assert_lt(length, sizeof(buffer.text));
        cr_assert_str_eq(text + length - 5, ",...]");
    }
}
