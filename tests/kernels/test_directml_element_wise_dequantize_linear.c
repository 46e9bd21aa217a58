/* directml.ElementWiseDequantizeLinear against plain index computation, and what it refuses. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/kernels/dequantize_oracle.h"
#include "tests/support/kernels/qk_test.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))
#define MODEL "directml.ElementWiseDequantizeLinear"

static const char *const names[] = {"InputTensor", "ScaleTensor", "ZeroPointTensor"};
static const enum qk_type types[] = {QK_UINT8, QK_INT8, QK_UINT16, QK_INT16, QK_UINT32, QK_INT32};

/* A call with everything that it borrows. */
struct sample {
    struct qk_call call;
    uint8_t *data[3];
    int64_t strides[3][8];
    bool has_strides[3];
};

/* Draws strides: packed, padded, transposed or repeating. */
static void random_strides(uint64_t *random, uint32_t rank, const size_t *dims, int64_t *strides)
{
    int64_t stride = 1;
    for (uint32_t i = rank; i-- > 0;) {
        const size_t kind = qk_test_random_below(random, 8);
        strides[i] = kind == 0   ? 0
                     : kind == 1 ? (int64_t)qk_test_random_below(random, 5)
                                 : stride + (kind == 2);
        stride = kind == 0 ? stride : strides[i] * (int64_t)dims[i];
    }
}

enum layout { PACKED, REPEATED, STRIDED };

/* Fills the input `index`. Its physical buffer ends after the farthest element. */
static void sample_input(struct sample *sample, uint64_t *random, size_t index, enum layout layout,
                         enum qk_type type, uint32_t rank, const size_t *dims)
{
    struct qk_tensor *tensor = &sample->call.inputs[index];
    qk_test_call_input(&sample->call, names[index], type, NULL, rank, dims);
    sample->has_strides[index] = layout != PACKED;
    if (sample->has_strides[index]) {
        if (layout == STRIDED) /* REPEATED: all are 0 */
            random_strides(random, rank, dims, sample->strides[index]);
        qk_test_call_strides(&sample->call, names[index], sample->strides[index], rank);
    }
    sample->data[index] = malloc(dequantize_bytes(type, tensor->stored) + 1);
    cr_assert_not_null(sample->data[index]);
    dequantize_random_elements(random, type, sample->data[index] + 1, tensor->stored);
    tensor->data = sample->data[index] + 1;
    for (size_t i = 0; type == QK_FP32 && i < tensor->stored; i++) {
        const float scale = dequantize_random_scale(random);
        memcpy(sample->data[index] + 1 + i * sizeof(scale), &scale, sizeof(scale));
    }
}

static void sample_init(struct sample *sample, uint64_t *random, enum qk_type type,
                        enum qk_type scale_type, uint32_t rank, const size_t *dims)
{
    memset(sample, 0, sizeof(*sample));
    qk_test_call_init(&sample->call, MODEL, 62);
    enum layout layout = (enum layout)qk_test_random_below(random, 3);
    const bool as_scale = qk_test_random_below(random, 2);
    sample_input(sample, random, 0, qk_test_random_below(random, 2) ? PACKED : STRIDED, type, rank,
                 dims);
    sample_input(sample, random, 1, layout, scale_type, rank, dims);
    if (!as_scale)
        layout = (enum layout)qk_test_random_below(random, 3);
    if (qk_test_random_below(random, 4))
        sample_input(sample, random, 2, layout, type, rank, dims);
}

static void sample_deinit(struct sample *sample)
{
    for (size_t i = 0; i < 3; i++)
        free(sample->data[i]);
}

/* Returns where in its buffer the input `index` has element i. */
static size_t address_of(const struct sample *sample, size_t index, size_t i)
{
    const struct qk_tensor *tensor = &sample->call.inputs[index];
    size_t address = 0;
    if (!sample->has_strides[index])
        return i;
    for (uint32_t axis = tensor->rank; axis-- > 0;) {
        address += i % tensor->dims[axis] * (size_t)sample->strides[index][axis];
        i /= tensor->dims[axis];
    }
    return address;
}

/* Differences do not wrap. The difference of two 32-bit integers is an int64, which becomes the
 * nearest FP32. */
static float expected_element(const struct sample *sample, size_t i)
{
    const struct qk_tensor *inputs = sample->call.inputs;
    int64_t difference =
        dequantize_element(inputs[0].type, inputs[0].data, address_of(sample, 0, i));
    if (inputs[2].type != QK_NONE)
        difference -= dequantize_element(inputs[2].type, inputs[2].data, address_of(sample, 2, i));
    const double scale = dequantize_value(inputs[1].type, inputs[1].data, address_of(sample, 1, i));
    return dequantize_product((double)(float)(double)difference, (float)scale);
}

static void check_sample(const struct qk_test_tiers *tiers, const struct sample *sample,
                         uint64_t seed)
{
    const struct qk_tensor *inputs = sample->call.inputs;
    struct qk_test_result result;
    qk_test_run_tiers(tiers, &sample->call, seed, &result);
    cr_assert_eq(result.status, QK_OK, "%s", result.error.text);
    const struct qk_tensor *y = &result.plan.outputs[0];
    cr_assert_eq(y->type, inputs[1].type);
    cr_assert_eq(y->rank, inputs[0].rank);
    cr_assert_eq(memcmp(y->dims, inputs[0].dims, y->rank * sizeof(y->dims[0])), 0);
    cr_assert_eq(y->count, inputs[0].count);
    cr_assert_eq(y->stored, inputs[0].count);
    cr_assert_eq(result.plan.output_bytes[0], dequantize_bytes(y->type, y->count));
    for (size_t i = 0; i < y->count; i++)
        cr_assert(dequantize_is(y->type, result.output, i, expected_element(sample, i)),
                  "%s to %s, element %zu of %zu: expected %a", qk_type_info(inputs[0].type)->name,
                  qk_type_info(y->type)->name, i, y->count, (double)expected_element(sample, i));
    qk_test_result_deinit(&result);
}

Test(directml_dequantize, every_type_in_random_layouts)
{
    struct qk_test_tiers tiers;
    uint64_t random = 31;
    qk_test_tiers_init(&tiers);
    for (size_t round = 0; round < 1500; round++) {
        struct sample sample;
        size_t dims[8];
        if (!qk_test_runs(round))
            continue;
        const uint32_t rank = 1 + (uint32_t)qk_test_random_below(&random, 8);
        for (uint32_t i = 0; i < rank; i++)
            dims[i] = 1 + qk_test_random_below(&random, rank > 4 ? 3 : 7);
        if (qk_test_random_below(&random, 2))
            dims[rank - 1] = 1 + qk_test_random_below(&random, 40);
        sample_init(&sample, &random, types[round % 6], round / 6 % 2 ? QK_FP16 : QK_FP32, rank,
                    dims);
        check_sample(&tiers, &sample, qk_test_random(&random));
        sample_deinit(&sample);
    }
    qk_test_tiers_deinit(&tiers);
}

Test(directml_dequantize, many_units)
{
    static const size_t dims[][2] = {{3, 70001}, {70001, 3}, {1, 140000}};
    struct qk_test_tiers tiers;
    uint64_t random = 32;
    qk_test_tiers_init(&tiers);
    for (size_t i = 0; i < 2 * COUNT_OF(types); i++) {
        struct sample sample;
        sample_init(&sample, &random, types[i / 2], i % 2 ? QK_FP16 : QK_FP32, 2, dims[i % 3]);
        check_sample(&tiers, &sample, qk_test_random(&random));
        sample_deinit(&sample);
    }
    qk_test_tiers_deinit(&tiers);
}

/* ONNX's differences wrap. */
Test(directml_dequantize, differences_do_not_wrap)
{
    static const int32_t x[] = {INT32_MIN, INT32_MAX};
    static const int32_t zero_point[] = {INT32_MAX, INT32_MIN};
    static const float scales[] = {1, 1};
    static const float expected[][2] = {{-4294967296.0F, 4294967296.0F}, {1, -1}};
    static const size_t count = 2;
    struct qk_kernels *kernels = qk_test_kernels("auto");
    for (size_t i = 0; i < 2; i++) {
        struct qk_test_result result;
        struct qk_call call;
        const enum qk_type type = i ? QK_UINT32 : QK_INT32;
        qk_test_call_init(&call, MODEL, 30);
        qk_test_call_input(&call, names[0], type, x, 1, &count);
        qk_test_call_input(&call, names[1], QK_FP32, scales, 1, &count);
        qk_test_call_input(&call, names[2], type, zero_point, 1, &count);
        qk_test_run(kernels, &call, &result);
        cr_assert_eq(result.status, QK_OK);
        cr_assert_eq(memcmp(result.output, expected[i], sizeof(expected[i])), 0);
        qk_test_result_deinit(&result);
    }
    qk_kernels_destroy(kernels);
}

Test(directml_dequantize, survives_every_failed_allocation)
{
    struct qk_kernels *kernels = qk_test_kernels("auto");
    static const size_t dims[] = {2, 8};
    uint64_t random = 33;
    for (size_t i = 0; i < COUNT_OF(types); i++) {
        struct sample sample;
        sample_init(&sample, &random, types[i], QK_FP16, 2, dims);
        cr_assert_geq(qk_test_fail_allocations(kernels, &sample.call),
                      sample.call.inputs[2].type == QK_NONE ? 3 : 4);
        sample_deinit(&sample);
    }
    qk_kernels_destroy(kernels);
}

/* ---- Refusals ---------------------------------------------------------------------------- */

struct shape {
    uint32_t rank;
    size_t dims[9];
};

#define SHAPE(n, ...) ((struct shape){(n), {__VA_ARGS__}})

/* The data is never read, because all calls are refused. */
static void refuse(const char *field, uint64_t level, struct shape x, struct shape scale,
                   struct shape zero_point)
{
    struct qk_call call;
    qk_test_call_init(&call, MODEL, level);
    qk_test_call_input(&call, names[0], QK_UINT8, NULL, x.rank, x.dims);
    qk_test_call_input(&call, names[1], QK_FP32, NULL, scale.rank, scale.dims);
    qk_test_call_input(&call, names[2], QK_UINT8, NULL, zero_point.rank, zero_point.dims);
    qk_test_expect_refusal(&call, field);
}

static void refuse_all(uint64_t level, struct shape shape)
{
    refuse("ScaleTensor", level, shape, shape, shape);
}

Test(directml_dequantize_refusals, other_dimension_counts)
{
    refuse_all(10, SHAPE(3, 1, 1, 1));
    refuse_all(21, SHAPE(5, 1, 1, 1, 1, 1));
    refuse_all(20, SHAPE(1, 4));
    refuse_all(30, SHAPE(0, 0));
    refuse_all(64, SHAPE(9, 1, 1, 1, 1, 1, 1, 1, 1, 1));
}

Test(directml_dequantize_refusals, sizes_of_zero)
{
    refuse_all(10, SHAPE(4, 1, 0, 1, 1));
    refuse_all(62, SHAPE(1, 0));
}

Test(directml_dequantize_refusals, more_elements_than_32_bits_count)
{
    refuse_all(62, SHAPE(2, 65536, 65536));
    refuse_all(62, SHAPE(1, SIZE_MAX));
}

/* The error must name the tensor that differs from InputTensor. */
Test(directml_dequantize_refusals, sizes_that_differ)
{
    const struct shape a = SHAPE(2, 2, 3);
    const struct shape others[] = {SHAPE(2, 3, 2), SHAPE(2, 2, 1), SHAPE(1, 6), SHAPE(3, 1, 2, 3)};
    static const uint8_t zeros[64];
    for (size_t i = 0; i < COUNT_OF(others); i++) {
        for (size_t wrong = 1; wrong < 4; wrong++) { /* 1: scale, 2: zero point, 3: both */
            struct qk_call call;
            const struct shape scale = (wrong & 1) != 0 ? others[i] : a;
            const struct shape zero_point = (wrong & 2) != 0 ? others[i] : a;
            qk_test_call_init(&call, MODEL, 62);
            qk_test_call_input(&call, names[0], QK_UINT8, zeros, a.rank, a.dims);
            qk_test_call_input(&call, names[1], QK_FP32, zeros, scale.rank, scale.dims);
            qk_test_call_input(&call, names[2], QK_UINT8, zeros, zero_point.rank, zero_point.dims);
            call.constants_stay = true;
            qk_test_expect_refusal(&call, (wrong & 1) != 0 ? names[1] : names[2]);
            call.constants_stay = false;
            qk_test_expect_refusal(&call,
                                   wrong == 3 ? names[1] : "ScaleTensor and ZeroPointTensor");
        }
    }
}

Test(directml_dequantize_refusals, the_way_out_is_named)
{
    static const float scales[1];
    static const uint8_t zeros[4];
    struct qk_kernels *kernels = qk_test_kernels("scalar");
    struct qk_test_result result;
    struct qk_call call;
    qk_test_call_init(&call, MODEL, 62);
    qk_test_call_input(&call, names[0], QK_UINT8, zeros, 2, (const size_t[]){2, 2});
    qk_test_call_input(&call, names[1], QK_FP32, scales, 2, (const size_t[]){1, 1});
    qk_test_run(kernels, &call, &result);
    cr_assert_str_eq(result.error.text,
                     "ScaleTensor: expected the sizes of InputTensor, [2,2], got [1,1]; "
                     "parameters.ScaleTensor.strides of 0 repeat elements along a dimension");
    qk_test_result_deinit(&result);
    qk_kernels_destroy(kernels);
}

/* InputTensor breaks a rule, and the scale does not. */
Test(directml_dequantize_refusals, an_input_of_other_dimensions)
{
    static const uint8_t zeros[64];
    const struct shape scale = SHAPE(4, 1, 1, 2, 3);
    const struct shape others[] = {SHAPE(2, 2, 3), SHAPE(5, 1, 1, 1, 2, 3), SHAPE(4, 1, 0, 2, 3)};
    for (size_t i = 0; i < COUNT_OF(others); i++) {
        struct qk_call call;
        qk_test_call_init(&call, MODEL, 21);
        qk_test_call_input(&call, names[0], QK_UINT8, zeros, others[i].rank, others[i].dims);
        qk_test_call_input(&call, names[1], QK_FP32, zeros, scale.rank, scale.dims);
        qk_test_call_input(&call, names[2], QK_UINT8, zeros, scale.rank, scale.dims);
        qk_test_expect_refusal(&call, "InputTensor");
    }
}

Test(directml_dequantize_refusals, a_zero_point_of_another_type)
{
    struct qk_call call;
    const size_t one = 1;
    qk_test_call_init(&call, MODEL, 62);
    qk_test_call_input(&call, names[0], QK_INT32, NULL, 1, &one);
    qk_test_call_input(&call, names[1], QK_FP32, NULL, 1, &one);
    qk_test_call_input(&call, names[2], QK_UINT32, NULL, 1, &one);
    qk_test_expect_refusal(&call, "ZeroPointTensor");
}

Test(directml_dequantize_refusals, no_zero_point_before_6_2)
{
    static const uint64_t levels[] = {10, 21, 30, 60, 61};
    for (size_t i = 0; i < COUNT_OF(levels); i++) {
        struct qk_call call;
        const size_t dims[] = {1, 1, 1, 1};
        qk_test_call_init(&call, MODEL, levels[i]);
        qk_test_call_input(&call, names[0], QK_UINT8, NULL, 4, dims);
        qk_test_call_input(&call, names[1], QK_FP32, NULL, 4, dims);
        qk_test_expect_refusal(&call, "ZeroPointTensor");
    }
}

static void refuse_strides(size_t input, const int64_t *strides, size_t count)
{
    static const size_t dims[] = {2, 3};
    static const uint8_t zeros[64];
    struct qk_call call;
    char field[64];
    qk_test_call_init(&call, MODEL, 62);
    qk_test_call_input(&call, names[0], QK_UINT8, zeros, 2, dims);
    qk_test_call_input(&call, names[1], QK_FP32, zeros, 2, dims);
    qk_test_call_input(&call, names[2], QK_UINT8, zeros, 2, dims);
    qk_test_call_strides(&call, names[input], strides, count);
    snprintf(field, sizeof(field), "%s.strides", names[input]);
    qk_test_expect_refusal(&call, field);
}

Test(directml_dequantize_refusals, strides_unlike_the_sizes)
{
    for (size_t input = 0; input < 3; input++) {
        refuse_strides(input, (const int64_t[]){3}, 1);
        refuse_strides(input, (const int64_t[]){3, 1, 1}, 3);
        refuse_strides(input, NULL, 0);
        refuse_strides(input, (const int64_t[]){-3, 1}, 2);
        refuse_strides(input, (const int64_t[]){3, -1}, 2);
        refuse_strides(input, (const int64_t[]){QK_STRIDE_MAX + 1, 1}, 2);
        refuse_strides(input, (const int64_t[]){INT64_MAX, INT64_MAX}, 2);
    }
}

/* Each level takes its own types and no others. */
Test(directml_dequantize_refusals, types_of_later_levels)
{
    const struct qk_operator *op = qk_operator_by_name(MODEL);
    cr_assert_eq(op->version_count, 5);
    for (size_t v = 0; v < op->version_count; v++) {
        const struct qk_version *version = &op->versions[v];
        uint32_t set = QK_BIT(QK_UINT8);
        for (size_t i = 0; version->number >= 21 && i < COUNT_OF(types); i++)
            set |= QK_BIT(types[i]);
        cr_expect_eq(version->inputs[0].types, set);
        cr_expect_eq(version->inputs[2].types, set);
        set = QK_BIT(QK_FP32) | (version->number >= 60 ? QK_BIT(QK_FP16) : 0);
        cr_expect_eq(version->inputs[1].types, set);
        cr_expect_eq(version->output_types[0], set);
        cr_expect_eq(version->inputs[2].optional, version->number >= 62);
    }
}

Test(directml_dequantize_refusals, levels_that_do_not_exist)
{
    static const unsigned rows[][2] = {{10, 10}, {20, 10}, {21, 21}, {30, 30}, {31, 30},
                                       {40, 30}, {41, 30}, {50, 30}, {51, 30}, {52, 30},
                                       {60, 60}, {61, 60}, {62, 62}, {63, 62}, {64, 62}};
    const struct qk_operator *op = qk_operator_by_name(MODEL);
    size_t row = 0;
    for (unsigned number = 0; number < 80; number++) {
        const struct qk_version *version = qk_operator_version(op, number);
        const bool known = row < COUNT_OF(rows) && rows[row][0] == number;
        cr_expect_eq(version ? version->number : 0, known ? rows[row][1] : 0, "%u", number);
        row += known;
    }
}
