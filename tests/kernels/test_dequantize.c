/* onnx.DequantizeLinear and its kernels, against plain computations. */
#include "kernels/dispatch.h"
#include "tests/support/qk_test.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const tiers[] = {"scalar", "avx2"};
static const enum qk_type types[] = {QK_UINT8, QK_INT8, QK_INT32};

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* ---- The kernels ------------------------------------------------------------------------- */

static size_t bytes_of(enum qk_type type)
{
    return type == QK_INT32 ? 4 : 1;
}

static qk_dequantize_fn kernel_of(const struct qk_kernels *kernels, enum qk_type type)
{
    return type == QK_UINT8  ? kernels->dequantize.u8
           : type == QK_INT8 ? kernels->dequantize.s8
                             : kernels->dequantize.s32;
}

static int64_t element(enum qk_type type, const uint8_t *data, size_t index)
{
    int32_t wide;
    if (type == QK_UINT8)
        return data[index];
    if (type == QK_INT8)
        return data[index] < 128 ? data[index] : data[index] - 256;
    memcpy(&wide, data + 4 * index, sizeof(wide));
    return wide;
}

/* The same by another way: the difference brought into range in 64 bits, and a double, in which
 * the product of two floats is exact, rounded once. */
static float expected_one(int64_t x, int64_t zero_point, float scale)
{
    int64_t difference = x - zero_point;
    if (difference > INT32_MAX)
        difference -= INT64_C(1) << 32;
    if (difference < INT32_MIN)
        difference += INT64_C(1) << 32;
    float rounded = (float)(double)difference;
    return (float)((double)rounded * (double)scale);
}

static bool same_float(float a, float b)
{
    return (isnan(a) && isnan(b)) || memcmp(&a, &b, sizeof(a)) == 0;
}

static float float_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static float random_scale(uint64_t *random)
{
    static const uint32_t special[] = {0x00000000, 0x80000000, 0x00000001, 0x807fffff, 0x00800000,
                                       0x7f7fffff, 0x7f800000, 0xff800000, 0x7fc00000, 0xffc00001,
                                       0x7fa00001, 0x3f800000, 0xbf800000, 0x3dcccccd};
    if (qk_test_random_below(random, 2))
        return float_of_bits(special[qk_test_random_below(random, COUNT_OF(special))]);
    return float_of_bits((uint32_t)(qk_test_random(random) >> 32));
}

static int32_t random_zero_point(uint64_t *random, enum qk_type type)
{
    uint32_t bits = (uint32_t)(qk_test_random(random) >> 32);
    if (type == QK_UINT8)
        return (int32_t)(bits & 0xff);
    if (type == QK_INT8)
        return (int32_t)(bits & 0xff) - 128;
    if (bits % 4 == 0)
        return bits & 4 ? INT32_MIN : INT32_MAX;
    return (int32_t)bits;
}

/* Random bytes, or all as small or as large as the type has. */
static void fill(uint64_t *random, enum qk_type type, uint8_t *data, size_t bytes)
{
    static const uint32_t extremes[][2] = {[QK_UINT8] = {0, 0xffffffff},
                                           [QK_INT8] = {0x80808080, 0x7f7f7f7f},
                                           [QK_INT32] = {0x80000000, 0x7fffffff}};
    size_t kind = qk_test_random_below(random, 4);
    for (size_t i = 0; i < bytes; i++) {
        uint64_t bits =
            kind < 2 ? extremes[type][kind] >> 8 * (i % 4) : qk_test_random(random) >> 40;
        data[i] = (uint8_t)bits;
    }
}

/* One kernel call with x at an odd address and guards around y; y is returned in `y`. */
static void run_guarded(qk_dequantize_fn kernel, const uint8_t *x, size_t count, int32_t zero_point,
                        float scale, float *y)
{
    enum { GUARD = 16 };
    float buffer[GUARD + 1024 + GUARD];
    memset(buffer, 0x5a, sizeof(buffer));
    kernel(x, count, zero_point, scale, buffer + GUARD);
    memcpy(y, buffer + GUARD, count * sizeof(*y));
    memset(buffer + GUARD, 0x5a, count * sizeof(*y));
    for (size_t i = 0; i < sizeof(buffer); i++)
        cr_assert_eq(((const uint8_t *)buffer)[i], 0x5a, "written outside: byte %zu", i);
}

static void check_kernel(const struct qk_kernels *kernels, enum qk_type type, size_t count,
                         uint64_t *random)
{
    uint8_t bytes[1024 * 4 + 16];
    float y[1024];
    float scalar_y[1024];
    struct qk_dequantize_kernels table;
    qk_dequantize_init_scalar(&table);
    struct qk_kernels scalar = {.dequantize = table};

    uint8_t *x = bytes + qk_test_random_below(random, 16);
    fill(random, type, x, count * bytes_of(type));
    int32_t zero_point = random_zero_point(random, type);
    float scale = random_scale(random);
    run_guarded(kernel_of(kernels, type), x, count, zero_point, scale, y);
    run_guarded(kernel_of(&scalar, type), x, count, zero_point, scale, scalar_y);
    cr_assert_eq(memcmp(y, scalar_y, count * sizeof(*y)), 0, "%s, %s, %zu elements: not scalar's",
                 kernels->dequantize.name, qk_type_info(type)->name, count);
    for (size_t i = 0; i < count; i++) {
        float expected = expected_one(element(type, x, i), zero_point, scale);
        cr_assert(same_float(y[i], expected), "%s, %s, (%lld - %d) * %a: expected %a, got %a",
                  kernels->dequantize.name, qk_type_info(type)->name,
                  (long long)element(type, x, i), zero_point, (double)scale, (double)expected,
                  (double)y[i]);
    }
}

static void check_tier(const char *tier)
{
    struct qk_kernels *kernels = qk_test_kernels(tier);
    uint64_t random = 2;
    char name[64];
    if (!kernels)
        return;
    snprintf(name, sizeof(name), "dequantize_%s", tier);
    cr_assert_str_eq(kernels->dequantize.name, name);
    for (size_t count = 0; count <= 1024; count += count < 70 ? 1 : 159) {
        for (size_t type = 0; type < COUNT_OF(types); type++) {
            for (int round = 0; round < 40; round++)
                check_kernel(kernels, types[type], count, &random);
        }
    }
    qk_kernels_destroy(kernels);
}

Test(dequantize, scalar_kernels)
{
    check_tier("scalar");
}

Test(dequantize, avx2_kernels)
{
    check_tier("avx2");
}

Test(dequantize, every_uint8_and_int8)
{
    struct qk_dequantize_kernels table;
    qk_dequantize_init_scalar(&table);
    uint8_t x[256];
    float y[256];
    for (size_t i = 0; i < 256; i++)
        x[i] = (uint8_t)i;
    for (int32_t zero_point = 0; zero_point < 256; zero_point++) {
        table.u8(x, 256, zero_point, 0.1F, y);
        for (int i = 0; i < 256; i++)
            cr_assert(same_float(y[i], expected_one(i, zero_point, 0.1F)));
        table.s8(x, 256, zero_point - 128, 0.1F, y);
        for (int i = 0; i < 256; i++)
            cr_assert(
                same_float(y[i], expected_one(i < 128 ? i : i - 256, zero_point - 128, 0.1F)));
    }
}

/* ---- The operator ------------------------------------------------------------------------ */

/* A call with all that it borrows. */
struct sample {
    struct qk_call call;
    uint8_t *x;
    uint8_t *scales;
    uint8_t *zero_points;
    uint32_t axis; /* from the front */
    bool per_tensor;
    bool has_zero_points;
};

static uint8_t *random_bytes(uint64_t *random, enum qk_type type, size_t count)
{
    /* One byte ahead of the data: nothing is aligned. */
    uint8_t *block = malloc(count * bytes_of(type) + 1);
    cr_assert_not_null(block);
    fill(random, type, block + 1, count * bytes_of(type));
    return block;
}

static uint8_t *random_scales(uint64_t *random, size_t count)
{
    uint8_t *block = malloc(count * sizeof(float) + 1);
    cr_assert_not_null(block);
    for (size_t i = 0; i < count; i++) {
        float scale = random_scale(random);
        memcpy(block + 1 + i * sizeof(scale), &scale, sizeof(scale));
    }
    return block;
}

/* Scales for `x_dims` along `axis`, or one scale if axis is UINT32_MAX. */
static void sample_init(struct sample *sample, uint64_t *random, enum qk_type type, uint32_t rank,
                        const size_t *x_dims, uint32_t axis)
{
    sample->per_tensor = axis == UINT32_MAX;
    sample->axis = axis;
    size_t scale_count = sample->per_tensor ? 1 : x_dims[axis];
    uint32_t scale_rank = sample->per_tensor ? (uint32_t)qk_test_random_below(random, 2) : 1;
    uint32_t zero_rank = sample->per_tensor ? (uint32_t)qk_test_random_below(random, 2) : 1;
    struct qk_call *call = &sample->call;
    qk_test_call_init(call, "onnx.DequantizeLinear", 13);
    qk_test_call_input(call, "x", type, NULL, rank, x_dims);
    sample->x = random_bytes(random, type, call->inputs[0].count);
    call->inputs[0].data = sample->x + 1;
    sample->scales = random_scales(random, scale_count);
    qk_test_call_input(call, "x_scale", QK_FP32, sample->scales + 1, scale_rank, &scale_count);
    sample->zero_points = random_bytes(random, type, scale_count);
    sample->has_zero_points = qk_test_random_below(random, 4) != 0;
    if (sample->has_zero_points)
        qk_test_call_input(call, "x_zero_point", type, sample->zero_points + 1, zero_rank,
                           &scale_count);
    if (sample->per_tensor)
        qk_test_call_int(call, "axis", 9); /* out of range, and not read */
    else if (axis != 1 || qk_test_random_below(random, 2))
        qk_test_call_int(call, "axis",
                         qk_test_random_below(random, 2) ? (int64_t)axis : (int64_t)axis - rank);
}

static void sample_deinit(struct sample *sample)
{
    free(sample->x);
    free(sample->scales);
    free(sample->zero_points);
}

/* Where on the axis the flattened element `index` is. */
static size_t position_on_axis(const struct qk_tensor *x, uint32_t axis, size_t index)
{
    for (uint32_t i = x->rank - 1; i > axis; i--)
        index /= x->dims[i];
    return index % x->dims[axis];
}

static void check_result(const struct sample *sample, const struct qk_test_result *result)
{
    const struct qk_tensor *x = &sample->call.inputs[0];
    const struct qk_tensor *y = &result->plan.output;
    cr_assert_eq(result->status, QK_OK, "%s", result->error.text);
    cr_assert_eq(y->type, QK_FP32);
    cr_assert_eq(y->rank, x->rank);
    cr_assert_eq(memcmp(y->dims, x->dims, x->rank * sizeof(x->dims[0])), 0);
    cr_assert_eq(y->count, x->count);
    cr_assert_eq(result->plan.output_bytes, x->count * sizeof(float));
    for (size_t i = 0; i < x->count; i++) {
        size_t at = sample->per_tensor ? 0 : position_on_axis(x, sample->axis, i);
        int64_t zero_point =
            sample->has_zero_points ? element(x->type, sample->zero_points + 1, at) : 0;
        float scale;
        memcpy(&scale, sample->scales + 1 + at * sizeof(scale), sizeof(scale));
        float expected = expected_one(element(x->type, sample->x + 1, i), zero_point, scale);
        float got = ((const float *)result->output)[i];
        cr_assert(same_float(got, expected), "element %zu, scale %zu: expected %a, got %a", i, at,
                  (double)expected, (double)got);
    }
}

/* The call on every tier, whole and in shuffled pieces. */
static void check_sample(struct qk_kernels *const *kernels, const struct sample *sample,
                         uint64_t seed)
{
    for (size_t tier = 0; tier < COUNT_OF(tiers); tier++) {
        struct qk_test_result whole;
        struct qk_test_result pieces;
        if (!kernels[tier])
            continue;
        qk_test_run(kernels[tier], &sample->call, &whole);
        check_result(sample, &whole);
        qk_test_run_shuffled(kernels[tier], &sample->call, seed, &pieces);
        check_result(sample, &pieces);
        cr_assert_eq(memcmp(whole.output, pieces.output, whole.plan.output_bytes), 0);
        cr_assert_eq(strncmp(whole.plan.kernel, "dequantize_", 11), 0);
        cr_assert_str_eq(whole.plan.kernel + 11, tiers[tier]);
        qk_test_result_deinit(&whole);
        qk_test_result_deinit(&pieces);
    }
}

static void all_tiers(struct qk_kernels **kernels)
{
    for (size_t tier = 0; tier < COUNT_OF(tiers); tier++)
        kernels[tier] = qk_test_kernels(tiers[tier]);
}

static void destroy_tiers(struct qk_kernels **kernels)
{
    for (size_t tier = 0; tier < COUNT_OF(tiers); tier++) {
        if (kernels[tier])
            qk_kernels_destroy(kernels[tier]);
    }
}

Test(dequantize, random_shapes)
{
    struct qk_kernels *kernels[COUNT_OF(tiers)];
    uint64_t random = 3;
    all_tiers(kernels);
    for (int round = 0; round < 600; round++) {
        size_t dims[6];
        struct sample sample;
        uint32_t rank = (uint32_t)qk_test_random_below(&random, 7);
        for (uint32_t i = 0; i < rank; i++)
            dims[i] = qk_test_random_below(&random, 20) ? 1 + qk_test_random_below(&random, 6) : 0;
        uint32_t axis = (uint32_t)qk_test_random_below(&random, rank + 1);
        sample_init(&sample, &random, types[round % 3], rank, dims,
                    axis == rank ? UINT32_MAX : axis);
        check_sample(kernels, &sample, qk_test_random(&random));
        sample_deinit(&sample);
    }
    destroy_tiers(kernels);
}

/* More than one unit, with units that begin in the middle of a row, and rows in a unit's middle. */
Test(dequantize, many_units)
{
    static const struct {
        size_t dims[3];
        uint32_t axis;
    } cases[] = {
        {{3, 70001, 1}, 0}, {{3, 70001, 1}, 1}, {{70001, 3, 1}, 0},         {{5, 3, 20011}, 1},
        {{2, 2, 65536}, 1}, {{1, 2, 65537}, 2}, {{7, 9, 4099}, UINT32_MAX},
    };
    struct qk_kernels *kernels[COUNT_OF(tiers)];
    uint64_t random = 4;
    all_tiers(kernels);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct sample sample;
        sample_init(&sample, &random, types[i % 3], 3, cases[i].dims, cases[i].axis);
        check_sample(kernels, &sample, qk_test_random(&random));
        sample_deinit(&sample);
    }
    destroy_tiers(kernels);
}

Test(dequantize, plan_splits_into_units)
{
    struct qk_kernels *kernels = qk_test_kernels("scalar");
    static const size_t counts[][2] = {{0, 0}, {1, 1}, {65536, 1}, {65537, 2}, {131073, 3}};
    uint64_t random = 5;
    for (size_t i = 0; i < COUNT_OF(counts); i++) {
        struct sample sample;
        struct qk_test_result result;
        sample_init(&sample, &random, QK_UINT8, 1, &counts[i][0], UINT32_MAX);
        qk_test_run(kernels, &sample.call, &result);
        check_result(&sample, &result);
        cr_assert_eq(result.plan.unit_count, counts[i][1]);
        cr_assert_eq(result.plan.workspace_bytes, 0);
        cr_assert_gt(result.plan.unit_cost_ns, 0);
        qk_test_result_deinit(&result);
        sample_deinit(&sample);
    }
    qk_kernels_destroy(kernels);
}

/* ---- Refusals ---------------------------------------------------------------------------- */

/* A call on zeros: x of x_rank dims, scale and, if zero_rank is not NONE, a zero point. */
#define NONE UINT32_MAX

static void refuse(uint64_t version, uint32_t x_rank, const size_t *x_dims, uint32_t scale_rank,
                   const size_t *scale_dims, uint32_t zero_rank, const size_t *zero_dims,
                   const int64_t *axis, const char *field)
{
    static const uint8_t zeros[4096];
    struct qk_call call;
    qk_test_call_init(&call, "onnx.DequantizeLinear", version);
    qk_test_call_input(&call, "x", QK_UINT8, zeros, x_rank, x_dims);
    qk_test_call_input(&call, "x_scale", QK_FP32, zeros, scale_rank, scale_dims);
    if (zero_rank != NONE)
        qk_test_call_input(&call, "x_zero_point", QK_UINT8, zeros, zero_rank, zero_dims);
    if (axis)
        qk_test_call_int(&call, "axis", *axis);
    qk_test_expect_refusal(&call, field);
}

#define DIMS(...) ((const size_t[]){__VA_ARGS__})
#define AXIS(number) (&(const int64_t){number})

Test(dequantize, refuses_a_row_of_scales_in_opset_10)
{
    refuse(10, 2, DIMS(2, 3), 1, DIMS(3), NONE, NULL, NULL, "x_scale");
    refuse(10, 2, DIMS(2, 0), 1, DIMS(0), NONE, NULL, NULL, "x_scale");
}

Test(dequantize, refuses_scales_of_more_dims)
{
    refuse(13, 2, DIMS(2, 3), 2, DIMS(2, 3), NONE, NULL, NULL, "x_scale");
    refuse(13, 2, DIMS(2, 3), 2, DIMS(1, 1), NONE, NULL, NULL, "x_scale");
}

Test(dequantize, refuses_scales_of_another_length)
{
    refuse(13, 2, DIMS(2, 3), 1, DIMS(4), NONE, NULL, NULL, "x_scale");
    refuse(13, 2, DIMS(2, 3), 1, DIMS(3), NONE, NULL, AXIS(0), "x_scale");
    refuse(13, 2, DIMS(2, 3), 1, DIMS(0), NONE, NULL, NULL, "x_scale");
}

Test(dequantize, refuses_a_row_of_scales_for_a_scalar)
{
    refuse(13, 0, NULL, 1, DIMS(2), NONE, NULL, NULL, "x_scale");
}

Test(dequantize, refuses_an_axis_out_of_range)
{
    refuse(13, 1, DIMS(3), 1, DIMS(3), NONE, NULL, NULL, "axis");
    refuse(13, 2, DIMS(2, 3), 1, DIMS(3), NONE, NULL, AXIS(2), "axis");
    refuse(13, 2, DIMS(2, 3), 1, DIMS(3), NONE, NULL, AXIS(-3), "axis");
    refuse(13, 2, DIMS(2, 3), 1, DIMS(3), NONE, NULL, AXIS(INT64_MIN), "axis");
    refuse(13, 2, DIMS(2, 3), 1, DIMS(3), NONE, NULL, AXIS(INT64_MAX), "axis");
}

Test(dequantize, refuses_zero_points_unlike_the_scales)
{
    refuse(13, 2, DIMS(2, 3), 1, DIMS(3), 0, NULL, NULL, "x_zero_point");
    refuse(13, 2, DIMS(2, 3), 1, DIMS(3), 1, DIMS(1), NULL, "x_zero_point");
    refuse(13, 2, DIMS(2, 3), 1, DIMS(3), 1, DIMS(2), NULL, "x_zero_point");
    refuse(13, 2, DIMS(2, 3), 1, DIMS(3), 2, DIMS(1, 3), NULL, "x_zero_point");
    refuse(13, 2, DIMS(2, 3), 0, NULL, 1, DIMS(3), NULL, "x_zero_point");
    refuse(13, 2, DIMS(2, 3), 0, NULL, 2, DIMS(1, 1), NULL, "x_zero_point");
}

Test(dequantize, refuses_a_zero_point_of_another_type)
{
    struct qk_call call;
    qk_test_call_init(&call, "onnx.DequantizeLinear", 13);
    qk_test_call_input(&call, "x", QK_UINT8, "\0", 0, NULL);
    qk_test_call_input(&call, "x_scale", QK_FP32, "\0\0\0", 0, NULL);
    qk_test_call_input(&call, "x_zero_point", QK_INT8, "\0", 0, NULL);
    qk_test_expect_refusal(&call, "x_zero_point");
}

Test(dequantize, refuses_what_has_no_output_size)
{
    struct qk_call call;
    const size_t huge = SIZE_MAX / 2;
    qk_test_call_init(&call, "onnx.DequantizeLinear", 13);
    qk_test_call_input(&call, "x", QK_UINT8, NULL, 1, &huge); /* never read */
    qk_test_call_input(&call, "x_scale", QK_FP32, "\0\0\0", 0, NULL);
    qk_test_expect_refusal(&call, "x");
}

Test(dequantize, texts_name_what_came)
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

/* ---- Memory ------------------------------------------------------------------------------ */

Test(dequantize, survives_every_failed_allocation)
{
    struct qk_kernels *kernels = qk_test_kernels("auto");
    const size_t dims[] = {4, 8};
    struct sample sample;
    uint64_t random = 6;
    enum qk_status status = QK_NO_MEMORY;
    size_t fail_at = 0;
    sample_init(&sample, &random, QK_INT8, 2, dims, 1);
    for (; status != QK_OK; fail_at++) {
        struct qk_test_memory memory;
        struct qk_plan plan;
        struct qk_error error = {0};
        const struct qk_instance *instance;
        qk_test_memory_init(&memory, fail_at);
        struct qk_memory face = qk_test_memory_face(&memory);
        status = qk_create(kernels, &sample.call, face, &instance, &error);
        if (status == QK_OK)
            status = qk_plan(instance, &sample.call, face, &plan, &error);
        if (status != QK_OK) {
            cr_assert_eq(status, QK_NO_MEMORY);
            cr_assert_eq(error.status, QK_NO_MEMORY);
            cr_assert(error.text[0]);
        }
        qk_test_memory_deinit(&memory);
    }
    cr_assert_geq(fail_at, 4, "only %zu allocations", fail_at - 1);
    sample_deinit(&sample);
    qk_kernels_destroy(kernels);
}
