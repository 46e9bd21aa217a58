/* tensorflow.Dequantize, checked in doubles that are rounded to floats at the same steps as in
 * TensorFlow's kernel. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/kernels/dequantize_oracle.h"
#include "tests/support/kernels/qk_test.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static const enum qk_type types[] = {QK_UINT8, QK_INT8, QK_UINT16, QK_INT16, QK_INT32};
static const char *const modes[] = {"MIN_COMBINED", "MIN_FIRST", "SCALED"};

/* ---- The oracle -------------------------------------------------------------------------- */

/* Rounds to a float. The sum, product or quotient of two floats, computed in doubles and then
 * rounded, equals that computed in floats. */
static double f32(double value)
{
    return (double)(float)value;
}

static double min_combined(enum qk_type type, double x, double min, double max)
{
    const int bits = qk_type_info(type)->bits;
    const double half = qk_type_info(type)->kind == QK_KIND_SIGNED ? ldexp(1, bits - 1) : 0;
    const double steps = type == QK_INT32 ? ldexp(1, 32) : ldexp(1, bits) - 1;
    const double scale = f32(f32(max - min) / steps);
    return f32(f32(f32(f32(x) + half) * scale) + min);
}

/* Returns the result of mode SCALED. `whole` says that there is one range; then a qint32 is
 * converted from float to int, where 2^31 overflows. */
static double scaled(enum qk_type type, double x, double min, double max, bool narrow, bool whole)
{
    const int bits = qk_type_info(type)->bits;
    if (qk_type_info(type)->kind == QK_KIND_UNSIGNED)
        return f32(x * f32(max / (ldexp(1, bits) - 1)));
    const double from_min = f32(min / f32(-ldexp(1, bits - 1) + narrow));
    const double from_max = f32(max / f32(ldexp(1, bits - 1) - 1));
    const double cast = whole && f32(x) == ldexp(1, 31) ? -ldexp(1, 31) : f32(x);
    return f32(cast * (from_min < from_max ? from_max : from_min));
}

static double min_first(enum qk_type type, double x, double min, double max)
{
    const int bits = qk_type_info(type)->bits;
    const double low = qk_type_info(type)->kind == QK_KIND_SIGNED ? -ldexp(1, bits - 1) : 0;
    const double scale = f32(f32(max - min) / (ldexp(1, bits) - 1));
    const double steps = f32(min / scale);
    const double whole = trunc(steps + copysign(0.5, steps));
    const double snapped = max == min ? min : f32(whole * scale);
    return f32(f32(snapped - f32(low * scale)) + f32(f32(x) * scale));
}

static float expected(enum qk_type type, size_t mode, bool narrow, bool whole, int64_t x, float min,
                      float max)
{
    const double v = (double)x;
    return (float)(mode == 0   ? min_combined(type, v, (double)min, (double)max)
                   : mode == 1 ? min_first(type, v, (double)min, (double)max)
                               : scaled(type, v, (double)min, (double)max, narrow, whole));
}

/* ---- Random calls ------------------------------------------------------------------------ */

struct sample {
    struct qk_call call;
    enum qk_type type;
    size_t mode;
    bool narrow;
    bool bfloat16;
    uint32_t axis; /* WHOLE: no axis */
    uint8_t *x;
    float *min;
    float *max;
};

#define WHOLE UINT32_MAX

static float random_limit(uint64_t *random)
{
    if (qk_test_random_below(random, 4) == 0)
        return dequantize_random_scale(random);
    return (float)((int)qk_test_random_below(random, 4001) - 2000) / 64;
}

static void sample_ranges(struct sample *sample, uint64_t *random, size_t count, uint32_t rank)
{
    sample->min = malloc((count + 1) * sizeof(float));
    sample->max = malloc((count + 1) * sizeof(float));
    cr_assert(sample->min && sample->max);
    for (size_t i = 0; i < count; i++) {
        sample->min[i] = random_limit(random);
        sample->max[i] = qk_test_random_below(random, 8) ? random_limit(random) : sample->min[i];
    }
    qk_test_call_input(&sample->call, "min_range", QK_FP32, sample->min, rank, &count);
    qk_test_call_input(&sample->call, "max_range", QK_FP32, sample->max,
                       rank == 1 && count > 1  ? 1
                       : sample->axis == WHOLE ? 1 - rank
                                               : 1,
                       &count);
}

static void sample_init(struct sample *sample, uint64_t *random, uint32_t rank, const size_t *dims,
                        uint32_t axis)
{
    struct qk_call *call = &sample->call;
    qk_test_call_init(call, "tensorflow.Dequantize", 1);
    qk_test_call_input(call, "input", sample->type, NULL, rank, dims);
    sample->axis = axis;
    sample->narrow = qk_test_random_below(random, 2);
    sample->bfloat16 = sample->mode == 0 && qk_test_random_below(random, 2);
    sample->x = malloc(dequantize_bytes(sample->type, call->inputs[0].count) + 1);
    cr_assert_not_null(sample->x);
    dequantize_random_elements(random, sample->type, sample->x + 1, call->inputs[0].count);
    call->inputs[0].data = sample->x + 1;
    if (axis == WHOLE)
        sample_ranges(sample, random, 1, (uint32_t)qk_test_random_below(random, 2));
    else
        sample_ranges(sample, random, dims[axis], 1);
    if (sample->mode != 0 || qk_test_random_below(random, 2))
        qk_test_call_string(call, "mode", modes[sample->mode]);
    if (axis != WHOLE || qk_test_random_below(random, 2))
        qk_test_call_int(call, "axis", axis == WHOLE ? -1 : (int64_t)axis);
    if (sample->narrow || qk_test_random_below(random, 2))
        qk_test_call_bool(call, "narrow_range", sample->narrow);
    if (sample->bfloat16)
        qk_test_call_string(call, "dtype", qk_test_random_below(random, 2) ? "bfloat16" : "BF16");
    else if (qk_test_random_below(random, 2))
        qk_test_call_string(call, "dtype", qk_test_random_below(random, 2) ? "float32" : "FP32");
}

static void sample_deinit(struct sample *sample)
{
    free(sample->x);
    free(sample->min);
    free(sample->max);
}

static void check_sample(const struct qk_test_tiers *tiers, const struct sample *sample,
                         uint64_t seed)
{
    const struct qk_tensor *x = &sample->call.inputs[0];
    struct qk_test_result result;
    qk_test_run_tiers(tiers, &sample->call, seed, &result);
    cr_assert_eq(result.status, QK_OK, "%s", result.error.text);
    const struct qk_tensor *y = &result.plan.outputs[0];
    cr_assert_eq(y->type, sample->bfloat16 ? QK_BF16 : QK_FP32);
    cr_assert_eq(y->rank, x->rank);
    cr_assert_eq(memcmp(y->dims, x->dims, x->rank * sizeof(x->dims[0])), 0);
    const bool whole = sample->axis == WHOLE || x->dims[sample->axis] == 1;
    for (size_t i = 0; i < x->count; i++) {
        size_t slice = i; /* the index on the axis */
        for (uint32_t k = x->rank; k-- > sample->axis + 1 && sample->axis != WHOLE;)
            slice /= x->dims[k];
        slice = sample->axis == WHOLE ? 0 : slice % x->dims[sample->axis];
        const int64_t value = dequantize_element(x->type, sample->x + 1, i);
        const float wanted = expected(sample->type, sample->mode, sample->narrow, whole, value,
                                      sample->min[slice], sample->max[slice]);
        cr_assert(dequantize_is(y->type, result.output, i, wanted),
                  "%s %s %lld in [%a, %a], narrow %d: expected %a", qk_type_info(x->type)->name,
                  modes[sample->mode], (long long)value, (double)sample->min[slice],
                  (double)sample->max[slice], sample->narrow, (double)wanted);
    }
    qk_test_result_deinit(&result);
}

Test(tensorflow_dequantize, every_type_and_mode_in_random_shapes)
{
    struct qk_test_tiers tiers;
    uint64_t random = 21;
    qk_test_tiers_init(&tiers);
    for (size_t round = 0; round < 1500; round++) {
        struct sample sample = {.type = types[round % 5], .mode = round / 5 % 3};
        size_t dims[5];
        if (!qk_test_runs(round))
            continue;
        const uint32_t rank = (uint32_t)qk_test_random_below(&random, 6);
        for (uint32_t i = 0; i < rank; i++)
            dims[i] = qk_test_random_below(&random, 20) ? 1 + qk_test_random_below(&random, 6) : 0;
        uint32_t axis = (uint32_t)qk_test_random_below(&random, rank + 1);
        axis = axis == rank ? WHOLE : axis;
        if (axis != WHOLE && sample.mode == 1)
            dims[axis] = 1;
        sample_init(&sample, &random, rank, dims, axis);
        check_sample(&tiers, &sample, qk_test_random(&random));
        sample_deinit(&sample);
    }
    qk_test_tiers_deinit(&tiers);
}

Test(tensorflow_dequantize, many_units)
{
    static const size_t dims[] = {3, 70001};
    static const uint32_t axes[] = {0, 1, WHOLE};
    struct qk_test_tiers tiers;
    uint64_t random = 22;
    qk_test_tiers_init(&tiers);
    for (size_t i = 0; i < COUNT_OF(axes); i++) {
        struct sample sample = {.type = types[i], .mode = axes[i] == WHOLE ? 1 : 2 * i};
        sample_init(&sample, &random, 2, dims, axes[i]);
        check_sample(&tiers, &sample, qk_test_random(&random));
        sample_deinit(&sample);
    }
    qk_test_tiers_deinit(&tiers);
}

/* ---- What TensorFlow's sources state ------------------------------------------------------ */

/* Returns the result for one element. */
static float one(const char *mode, enum qk_type type, int32_t x, float min, float max, bool narrow)
{
    struct qk_kernels *kernels = qk_test_kernels("auto");
    struct qk_test_result result;
    struct qk_call call;
    float y;
    qk_test_call_init(&call, "tensorflow.Dequantize", 1);
    qk_test_call_input(&call, "input", type, &x, 0, NULL);
    qk_test_call_input(&call, "min_range", QK_FP32, &min, 0, NULL);
    qk_test_call_input(&call, "max_range", QK_FP32, &max, 0, NULL);
    qk_test_call_string(&call, "mode", mode);
    qk_test_call_bool(&call, "narrow_range", narrow);
    qk_test_run(kernels, &call, &result);
    cr_assert_eq(result.status, QK_OK);
    memcpy(&y, result.output, sizeof(y));
    qk_test_result_deinit(&result);
    qk_kernels_destroy(kernels);
    return y;
}

Test(tensorflow_dequantize, min_first_snaps_the_minimum)
{
    cr_assert(dequantize_same(one("MIN_FIRST", QK_UINT8, 0, -1, 1, false), -0.99607849F));
    cr_assert_lt(fabsf(one("MIN_FIRST", QK_UINT8, 128, -1, 1, false) - 0.00784314F), 1e-8F);
    cr_assert(dequantize_same(one("MIN_FIRST", QK_UINT8, 255, -1, 1, false), 1.0039215F));
    cr_assert(dequantize_same(one("MIN_FIRST", QK_INT8, 5, 3, 3, false), 3.0F));
}

Test(tensorflow_dequantize, scaled_divides_by_the_lowest)
{
    cr_assert(dequantize_same(one("SCALED", QK_UINT8, 255, -512, 255, false), 255.0F));
    cr_assert(dequantize_same(one("SCALED", QK_INT8, 1, -2, 1, false), 0.015625F));
    cr_assert(dequantize_same(one("SCALED", QK_INT8, 1, -2, 1, true), 2.0F / 127));
    cr_assert(dequantize_same(one("SCALED", QK_INT32, 1, -1, 0, true),
                              one("SCALED", QK_INT32, 1, -1, 0, false)));
}

Test(tensorflow_dequantize, scaled_takes_the_larger_as_std_max_does)
{
    cr_assert(dequantize_same(one("SCALED", QK_INT8, 1, 0, 0, false), -0.0F));
    cr_assert(isnan(one("SCALED", QK_INT8, 1, NAN, 1, false)));
    cr_assert(dequantize_same(one("SCALED", QK_INT8, 1, -128, NAN, false), 1.0F));
}

Test(tensorflow_dequantize, takes_ranges_upside_down)
{
    cr_assert(dequantize_same(one("MIN_COMBINED", QK_UINT8, 255, 6, 0, false), 0.0F));
    cr_assert(dequantize_same(one("MIN_COMBINED", QK_UINT8, 0, 6, 0, false), 6.0F));
}

Test(tensorflow_dequantize, survives_every_failed_allocation)
{
    struct qk_kernels *kernels = qk_test_kernels("auto");
    static const size_t dims[] = {1, 8};
    static const size_t counts[] = {6, 5,
                                    4}; /* instance, scales, offsets, zeros; a plan needs two */
    uint64_t random = 23;
    for (size_t mode = 0; mode < 3; mode++) {
        struct sample sample = {.type = QK_INT16, .mode = mode};
        sample_init(&sample, &random, 2, dims, 0);
        cr_assert_eq(qk_test_fail_allocations(kernels, &sample.call), counts[mode]);
        sample_deinit(&sample);
    }
    qk_kernels_destroy(kernels);
}

/* ---- Refusals ---------------------------------------------------------------------------- */

struct attempt {
    const char *mode;
    const char *dtype;
    bool has_axis;
    int64_t axis;
    uint32_t min_rank;
    size_t min_dims[2];
    uint32_t max_rank;
    size_t max_dims[2];
};

/* The input has the shape [2, 3]. */
static void refuse(const char *field, struct attempt attempt)
{
    static const size_t dims[] = {2, 3};
    static const uint8_t zeros[64];
    struct qk_call call;
    qk_test_call_init(&call, "tensorflow.Dequantize", 1);
    qk_test_call_input(&call, "input", QK_INT8, zeros, 2, dims);
    qk_test_call_input(&call, "min_range", QK_FP32, zeros, attempt.min_rank, attempt.min_dims);
    qk_test_call_input(&call, "max_range", QK_FP32, zeros, attempt.max_rank, attempt.max_dims);
    if (attempt.mode)
        qk_test_call_string(&call, "mode", attempt.mode);
    if (attempt.dtype)
        qk_test_call_string(&call, "dtype", attempt.dtype);
    if (attempt.has_axis)
        qk_test_call_int(&call, "axis", attempt.axis);
    qk_test_expect_refusal(&call, field);
}

#define REFUSE(field, ...) refuse(field, (struct attempt){__VA_ARGS__})
#define RANGES(n) .min_rank = 1, .min_dims = {n}, .max_rank = 1, .max_dims = {n}
#define AXIS(n) .has_axis = true, .axis = (n)

Test(tensorflow_dequantize_refusals, other_modes)
{
    REFUSE("mode", .mode = "min_combined");
    REFUSE("mode", .mode = "");
}

Test(tensorflow_dequantize_refusals, other_dtypes)
{
    REFUSE("dtype", .dtype = "float16");
    REFUSE("dtype", .dtype = "");
}

Test(tensorflow_dequantize_refusals, bfloat16_but_with_min_combined)
{
    REFUSE("dtype", .mode = "SCALED", .dtype = "bfloat16");
    REFUSE("dtype", .mode = "MIN_FIRST", .dtype = "BF16");
}

Test(tensorflow_dequantize_refusals, an_axis_out_of_range)
{
    REFUSE("axis", AXIS(-2));
    REFUSE("axis", AXIS(INT64_MIN), RANGES(3));
    REFUSE("axis", AXIS(2), RANGES(3));
    REFUSE("axis", AXIS(QK_RANK_MAX), RANGES(3));
    REFUSE("axis", AXIS(INT64_MAX), RANGES(3));
}

Test(tensorflow_dequantize_refusals, min_first_with_slices)
{
    REFUSE("axis", .mode = "MIN_FIRST", AXIS(1), RANGES(3));
    REFUSE("min_range", .mode = "MIN_FIRST", AXIS(1), RANGES(1));
}

Test(tensorflow_dequantize_refusals, ranges_without_an_axis)
{
    REFUSE("min_range", RANGES(3));
    REFUSE("min_range", RANGES(0), AXIS(-1));
    REFUSE("max_range", .max_rank = 1, .max_dims = {2});
    REFUSE("max_range", .max_rank = 2, .max_dims = {1, 1});
}

Test(tensorflow_dequantize_refusals, ranges_unlike_the_axis)
{
    REFUSE("min_range", AXIS(1), RANGES(2));
    REFUSE("min_range", AXIS(0), RANGES(3));
    REFUSE("min_range", AXIS(0));
    REFUSE("min_range", AXIS(0), .min_rank = 2, .min_dims = {2, 1}, .max_rank = 1, .max_dims = {2});
    REFUSE("max_range", AXIS(0), .min_rank = 1, .min_dims = {2});
    REFUSE("min_range and max_range", AXIS(0), .min_rank = 1, .min_dims = {2}, .max_rank = 1,
           .max_dims = {3});
}

Test(tensorflow_dequantize_refusals, other_types)
{
    const struct qk_version *version =
        qk_operator_version(qk_operator_by_name("tensorflow.Dequantize"), 1);
    uint32_t set = 0;
    for (size_t i = 0; i < COUNT_OF(types); i++)
        set |= QK_BIT(types[i]);
    cr_assert_eq(version->inputs[0].types, set);
    cr_assert_eq(version->inputs[1].types, QK_BIT(QK_FP32));
    cr_assert_eq(version->inputs[2].types, QK_BIT(QK_FP32));
    cr_assert_eq(version->output_types[0], QK_BIT(QK_FP32) | QK_BIT(QK_BF16));
    cr_assert_null(qk_operator_version(qk_operator_by_name("tensorflow.Dequantize"), 2));
    cr_assert_null(qk_operator_version(qk_operator_by_name("tensorflow.Dequantize"), 0));
}

Test(tensorflow_dequantize_refusals, a_bool_that_is_none)
{
    struct qk_call call;
    qk_test_call_init(&call, "tensorflow.Dequantize", 1);
    qk_test_call_input(&call, "input", QK_INT8, "", 0, NULL);
    qk_test_call_input(&call, "min_range", QK_FP32, "\0\0\0", 0, NULL);
    qk_test_call_input(&call, "max_range", QK_FP32, "\0\0\0", 0, NULL);
    qk_test_call_int(&call, "narrow_range", 2);
    qk_test_expect_refusal(&call, "narrow_range");
}
