/* onnx.QuantizeLinear as a whole, on every tier, against plain index computation. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/dispatch.h"
#include "tests/support/dequantize_oracle.h"
#include "tests/support/granularity.h"
#include "tests/support/qk_test.h"
#include "tests/support/quantize_oracle.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* What to ask for. */
struct spec {
    struct quantize_rule rule;
    struct granularity granularity;
};

/* A call with all that it borrows. */
struct sample {
    struct spec spec;
    struct qk_call call;
    uint8_t *x;
    uint8_t *scales;
    uint8_t *zero_points;
    bool has_zero_points;
};

typedef uint32_t random_fn(uint64_t *random, enum qk_type type);

/* One byte ahead of the data: nothing is aligned. */
static uint8_t *random_elements(uint64_t *random, enum qk_type type, size_t count, random_fn *one)
{
    uint8_t *block = malloc(dequantize_bytes(type, count) + 1);
    cr_assert_not_null(block);
    enum { PERIOD = 300007 }; /* of large tensors, as in dequantize_random_elements */
    if (one) {
        for (size_t i = 0; i < count && i < PERIOD; i++)
            qk_test_store(type, block + 1, i, one(random, type));
        dequantize_repeat(block + 1, dequantize_bytes(type, PERIOD), dequantize_bytes(type, count));
    } else {
        dequantize_random_elements(random, type, block + 1, count);
    }
    return block;
}

static void add_attributes(struct sample *sample, uint64_t *random)
{
    const struct spec *spec = &sample->spec;
    const struct quantize_rule *rule = &spec->rule;
    struct qk_call *call = &sample->call;
    granularity_add(&spec->granularity, call, random);
    const bool implied = sample->has_zero_points || rule->y_type == QK_UINT8;
    if (!implied || qk_test_random_below(random, 2))
        qk_test_call_int(call, "output_dtype", qk_type_info(rule->y_type)->onnx);
    if (!rule->saturates || qk_test_random_below(random, 2))
        qk_test_call_int(call, "saturate", rule->saturates);
    if (rule->precision != QK_NONE)
        qk_test_call_int(call, "precision", qk_type_info(rule->precision)->onnx);
}

static void sample_init(struct sample *sample, uint64_t *random, const struct spec *spec)
{
    const struct quantize_rule *rule = &spec->rule;
    struct qk_call *call = &sample->call;
    size_t dims[QK_RANK_MAX];
    uint32_t rank = granularity_scale_shape(&spec->granularity, random, dims);
    sample->spec = *spec;
    qk_test_call_init(call, "onnx.QuantizeLinear", rule->version);
    qk_test_call_input(call, "x", rule->x_type, NULL, spec->granularity.rank,
                       spec->granularity.dims);
    sample->x = random_elements(random, rule->x_type, call->inputs[0].count, quantize_random_x);
    call->inputs[0].data = sample->x + 1;
    qk_test_call_input(call, "y_scale", rule->scale_type, NULL, rank, dims);
    sample->scales =
        random_elements(random, rule->scale_type, call->inputs[1].count, quantize_random_scale);
    call->inputs[1].data = sample->scales + 1;
    sample->zero_points = random_elements(random, rule->y_type, call->inputs[1].count, NULL);
    sample->has_zero_points = qk_test_random_below(random, 4) != 0;
    if (spec->granularity.axis == WHOLE)
        rank = (uint32_t)qk_test_random_below(random, 2); /* [] and [1] mix */
    if (sample->has_zero_points)
        qk_test_call_input(call, "y_zero_point", rule->y_type, sample->zero_points + 1, rank, dims);
    add_attributes(sample, random);
}

static void sample_deinit(struct sample *sample)
{
    free(sample->x);
    free(sample->scales);
    free(sample->zero_points);
}

/* What comes of element i with this x. */
static uint32_t expected_of(const struct sample *sample, size_t i, double x, double scale)
{
    const struct quantize_rule *rule = &sample->spec.rule;
    const size_t at =
        granularity_scale_index(&sample->spec.granularity, sample->call.inputs[1].dims, i);
    const double zero = dequantize_value(rule->y_type, sample->zero_points + 1, at);
    const unsigned bits = qk_type_info(rule->y_type)->bits;
    return quantize_expected(rule, x, scale, sample->has_zero_points ? &zero : NULL) &
           ((1U << bits) - 1);
}

/* Where both are NaN, a quotient is one of them: x on x86, and on ARM a signalling scale first. */
static bool is_expected(const struct sample *sample, size_t i, uint32_t element, uint32_t *expected)
{
    const struct quantize_rule *rule = &sample->spec.rule;
    const size_t at =
        granularity_scale_index(&sample->spec.granularity, sample->call.inputs[1].dims, i);
    const double x = dequantize_value(rule->x_type, sample->x + 1, i);
    const double scale = dequantize_value(rule->scale_type, sample->scales + 1, at);
    *expected = expected_of(sample, i, x, scale);
#ifdef __aarch64__
    if (isnan(x) && isnan(scale) && element == expected_of(sample, i, scale, scale))
        return true;
#endif
    return element == *expected;
}

static void check_result(const struct sample *sample, const struct qk_test_result *result)
{
    const struct spec *spec = &sample->spec;
    const struct qk_tensor *x = &sample->call.inputs[0];
    const struct qk_tensor *y = &result->plan.outputs[0];
    cr_assert_eq(result->status, QK_OK, "%s", result->error.text);
    cr_assert_eq(y->type, spec->rule.y_type);
    cr_assert_eq(y->rank, x->rank);
    cr_assert_eq(memcmp(y->dims, x->dims, x->rank * sizeof(x->dims[0])), 0);
    cr_assert_eq(y->count, x->count);
    cr_assert_eq(result->plan.output_bytes[0], dequantize_bytes(y->type, x->count));
    for (size_t i = 0; i < x->count; i++) {
        const uint32_t element = qk_element_load(y->type, result->output, i);
        uint32_t expected;
        if (!is_expected(sample, i, element, &expected))
            cr_assert_fail("%s / %s to %s, axis %u, block %zu: element %zu of %zu is %#x, not %#x",
                           qk_type_info(spec->rule.x_type)->name,
                           qk_type_info(spec->rule.scale_type)->name, qk_type_info(y->type)->name,
                           spec->granularity.axis, spec->granularity.block, i, x->count, element,
                           expected);
    }
}

/* What is behind the last element in its byte is 0. */
static void check_padding(const struct sample *sample, const struct qk_test_result *result)
{
    const unsigned bits = qk_type_info(sample->spec.rule.y_type)->bits;
    const size_t used = sample->call.inputs[0].count * bits % 8;
    if (used > 0)
        cr_assert_eq(((const uint8_t *)result->output)[result->plan.output_bytes[0] - 1] >> used,
                     0);
}

/* On every tier, whole and in pieces. */
static void check_sample(const struct qk_test_tiers *tiers, const struct sample *sample,
                         uint64_t seed)
{
    struct qk_test_result result;
    qk_test_run_tiers(tiers, &sample->call, seed, &result);
    check_result(sample, &result);
    check_padding(sample, &result);
    qk_test_result_deinit(&result);
}

/* A version from 21 on that has these types. */
static unsigned random_version(uint64_t *random, const struct quantize_rule *rule)
{
    const bool differ = rule->x_type != rule->scale_type || rule->precision != QK_NONE;
    const unsigned least = rule->y_type == QK_UINT2 || rule->y_type == QK_INT2 ? 25
                           : rule->scale_type == QK_FP8E8M0                    ? 24
                           : differ || rule->y_type == QK_FP4E2M1              ? 23
                                                                               : 21;
    static const unsigned versions[] = {21, 23, 24, 25};
    unsigned version;
    do
        version = versions[qk_test_random_below(random, COUNT_OF(versions))];
    while (version < least);
    return version;
}

/* Any shape and granularity, for types that the caller chose. */
static void check_random(const struct qk_test_tiers *tiers, struct spec spec, uint64_t *random)
{
    size_t dims[GRANULARITY_RANK_MAX];
    struct sample sample;
    spec.granularity = granularity_random(random, dims);
    sample_init(&sample, random, &spec);
    check_sample(tiers, &sample, qk_test_random(random));
    sample_deinit(&sample);
}

Test(onnx_quantize_linear, every_type_in_random_shapes)
{
    static const enum qk_type precisions[] = {QK_NONE, QK_NONE, QK_NONE, QK_FP32, QK_FP16, QK_BF16};
    struct qk_test_tiers tiers;
    uint64_t random = 31;
    qk_test_tiers_init(&tiers);
    for (size_t i = 0; i < 13 * 4 * 5 * 6; i++) {
        struct spec spec = {.rule = {.y_type = quantize_y_type(i % 13),
                                     .x_type = quantize_x_type(i / 13 % 4),
                                     .scale_type = quantize_scale_type(i / 52 % 5),
                                     .precision = precisions[i / 260],
                                     .saturates = qk_test_random_below(&random, 2)}};
        spec.rule.version = random_version(&random, &spec.rule);
        if (qk_test_runs(i))
            check_random(&tiers, spec, &random);
    }
    qk_test_tiers_deinit(&tiers);
}

/* More than one unit, with units that begin in the middle of a row, of a block and of a byte of
 * rows that do not; and rows in a unit's middle. */
Test(onnx_quantize_linear, many_units)
{
    static const struct {
        size_t dims[3];
        uint32_t axis;
        size_t block;
    } cases[] = {
        {{3, 100001, 1}, 0, 0},  {{3, 50001, 1}, 1, 0},  {{50001, 3, 1}, 0, 0},
        {{5, 3, 10011}, 1, 0},   {{1, 2, 80001}, 2, 0},  {{3, 9, 4099}, WHOLE, 0},
        {{4, 33333, 1}, 1, 32},  {{3, 33333, 1}, 1, 7},  {{4, 1000, 33}, 1, 31},
        {{2, 3, 20001}, 0, 2},   {{10, 100, 80}, 1, 0},  {{10, 3, 2500}, 1, 0},
        {{100, 1024, 1}, 1, 32}, {{1500, 64, 1}, 1, 64}, {{500, 7, 63}, 1, 0},
        {{100, 999, 1}, 1, 17},
    };
    struct qk_test_tiers tiers;
    uint64_t random = 32;
    qk_test_tiers_init(&tiers);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        for (size_t n = i % 3; n < 13; n += 3) {
            struct sample sample;
            const enum qk_type x_type = quantize_x_type((i + n) % 4);
            if (!qk_test_runs(i + n))
                continue;
            sample_init(
                &sample, &random,
                &(struct spec){.rule = {.x_type = x_type,
                                        .scale_type = n % 2 ? x_type : QK_FP32,
                                        .y_type = quantize_y_type(n),
                                        .saturates = n % 5 != 0,
                                        .version = 25},
                               .granularity = {3, cases[i].dims, cases[i].axis, cases[i].block}});
            check_sample(&tiers, &sample, qk_test_random(&random));
            sample_deinit(&sample);
        }
    }
    qk_test_tiers_deinit(&tiers);
}

/* So large that they go past the caches. Scalar, which the other tests check, says what is right.
 */
Test(onnx_quantize_linear, large_outputs)
{
    static const struct {
        enum qk_type y_type;
        size_t dims[2];
        uint32_t axis;
        size_t block;
    } cases[] = {
        {QK_UINT16, {34000, 787}, 0, 0},
        {QK_INT16, {13000, 2048}, 1, 32},
        {QK_INT16, {13000, 2047}, WHOLE, 0},
    };
    struct qk_test_tiers tiers;
    uint64_t random = 33;
    qk_test_tiers_init(&tiers);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        if (!qk_test_runs(i))
            continue;
        const struct spec spec = {{QK_FP16, QK_FP16, cases[i].y_type, QK_NONE, true, 25},
                                  {2, cases[i].dims, cases[i].axis, cases[i].block}};
        struct sample sample;
        struct qk_test_result result;
        sample_init(&sample, &random, &spec);
        qk_test_run_tiers(&tiers, &sample.call, i + 1, &result);
        cr_assert_eq(result.status, QK_OK, "%s", result.error.text);
        cr_assert_gt(result.plan.output_bytes[0], 50000000);
        qk_test_result_deinit(&result);
        sample_deinit(&sample);
    }
    qk_test_tiers_deinit(&tiers);
}

/* The name that an answer gives is that of the tier's, for all types and granularities. */
Test(onnx_quantize_linear, names_the_kernel_that_runs)
{
    const size_t dims[] = {3, 40};
    struct qk_test_tiers tiers;
    uint64_t random = 34;
    qk_test_tiers_init(&tiers);
    for (size_t i = 0; i < 13 * tiers.count; i++) {
        struct qk_kernels *table = tiers.kernels[i % tiers.count];
        const size_t n = i / tiers.count;
        struct sample sample;
        struct qk_test_result result;
        sample_init(
            &sample, &random,
            &(struct spec){{quantize_x_type(n % 4), QK_FP32, quantize_y_type(n), 0, true, 25},
                           {2, dims, n % 3 == 2 ? WHOLE : (uint32_t)n % 3, 0}});
        qk_test_run(table, &sample.call, &result);
        cr_assert_eq(result.status, QK_OK, "%s", result.error.text);
        cr_expect_str_eq(result.plan.kernel, table->quantize.name);
        cr_expect_eq(strncmp(result.plan.kernel, "quantize_", 9), 0);
        qk_test_result_deinit(&result);
        sample_deinit(&sample);
    }
    qk_test_tiers_deinit(&tiers);
}

Test(onnx_quantize_linear, survives_every_failed_allocation)
{
    struct qk_kernels *kernels = qk_test_kernels("auto");
    const size_t dims[] = {4, 8};
    uint64_t random = 35;
    for (size_t n = 0; n < 13; n++) {
        struct sample sample;
        sample_init(
            &sample, &random,
            &(struct spec){{QK_FP32, QK_FP16, quantize_y_type(n), 0, true, 25}, {2, dims, 1, 3}});
        /* The instance, its scales, and a plan of two. */
        cr_assert_geq(qk_test_fail_allocations(kernels, &sample.call), 4);
        sample_deinit(&sample);
    }
    qk_kernels_destroy(kernels);
}

/* ---- By hand ------------------------------------------------------------------------------ */

static void quantize(uint64_t version, const float *x, size_t count, float scale,
                     enum qk_type y_type, const void *zero, void *y)
{
    struct qk_kernels *kernels = qk_test_kernels("auto");
    struct qk_test_result result;
    struct qk_call call;
    qk_test_call_init(&call, "onnx.QuantizeLinear", version);
    qk_test_call_input(&call, "x", QK_FP32, x, 1, &count);
    qk_test_call_input(&call, "y_scale", QK_FP32, &scale, 0, NULL);
    if (zero)
        qk_test_call_input(&call, "y_zero_point", y_type, zero, 0, NULL);
    qk_test_run(kernels, &call, &result);
    cr_assert_eq(result.status, QK_OK, "%s", result.error.text);
    cr_assert_eq(result.plan.outputs[0].type, y_type);
    memcpy(y, result.output, result.plan.output_bytes[0]);
    qk_test_result_deinit(&result);
    qk_kernels_destroy(kernels);
}

/* Ties are to even before the zero point is added; without one, y is UINT8, in every version. */
Test(onnx_quantize_linear, rounds_and_then_adds_the_zero_point)
{
    static const float x[] = {0.5F, 1.5F, 2.5F, -0.5F, -1.5F, 300, -300, 1e30F};
    static const unsigned versions[] = {10, 13, 19, 21, 23, 24, 25};
    static const uint8_t plain[] = {0, 2, 2, 0, 0, 255, 0, 255};
    static const int8_t moved[] = {1, 3, 3, 1, -1, 127, -128, 127};
    for (size_t i = 0; i < COUNT_OF(versions); i++) {
        uint8_t y[8];
        quantize(versions[i], x, 8, 1, QK_UINT8, NULL, y);
        cr_assert_eq(memcmp(y, plain, 8), 0, "version %u", versions[i]);
        quantize(versions[i], x, 8, 1, QK_INT8, "\x01", y);
        cr_assert_eq(memcmp(y, moved, 8), 0, "version %u", versions[i]);
    }
}

/* By the reciprocal, which is rounded, some of these would be other ties. */
Test(onnx_quantize_linear, divides_truly)
{
    float x[200];
    uint8_t y[200];
    for (int i = 0; i < 200; i++)
        x[i] = (float)(2 * i + 1) * 24.5F;
    quantize(25, x, 200, 49, QK_UINT8, NULL, y);
    for (int i = 0; i < 200; i++)
        cr_assert_eq(y[i], i % 2 ? i + 1 : i, "%a / 49 is %d", (double)x[i], y[i]);
}

/* ---- Bytes of ONNX Runtime 1.32 ------------------------------------------------------------ */

/* One call with FP16 or FP32 bits. */
struct known {
    unsigned version;
    enum qk_type x_type;
    enum qk_type scale_type;
    enum qk_type precision;
    enum qk_type y_type;
    uint32_t x[6];
    uint32_t scale;
    uint8_t zero_point[2];
    uint8_t y[12];
};

static void check_known(const struct qk_test_tiers *tiers, const struct known *known)
{
    enum { COPIES = 64, COUNT = 6 * COPIES }; /* enough for each tier's loops */
    const size_t x_bytes = qk_type_info(known->x_type)->bits / 8;
    const size_t y_bytes = qk_type_info(known->y_type)->bits / 8;
    uint8_t x[4 * COUNT];
    struct qk_test_result result;
    struct qk_call call;
    const size_t count = COUNT;
    for (size_t i = 0; i < COUNT; i++)
        memcpy(x + i * x_bytes, &known->x[i % 6], x_bytes);
    qk_test_call_init(&call, "onnx.QuantizeLinear", known->version);
    qk_test_call_input(&call, "x", known->x_type, x, 1, &count);
    qk_test_call_input(&call, "y_scale", known->scale_type, &known->scale, 0, NULL);
    qk_test_call_input(&call, "y_zero_point", known->y_type, known->zero_point, 0, NULL);
    if (known->precision != QK_NONE)
        qk_test_call_int(&call, "precision", qk_type_info(known->precision)->onnx);
    qk_test_run_tiers(tiers, &call, 1, &result);
    cr_assert_eq(result.status, QK_OK, "%s", result.error.text);
    for (size_t i = 0; i < COPIES; i++)
        cr_assert_arr_eq((uint8_t *)result.output + i * 6 * y_bytes, known->y, 6 * y_bytes,
                         "version %u, %s / %s", known->version, qk_type_info(known->x_type)->name,
                         qk_type_info(known->scale_type)->name);
    qk_test_result_deinit(&result);
}

static void check_all_known(const struct known *known, size_t count)
{
    struct qk_test_tiers tiers;
    qk_test_tiers_init(&tiers);
    for (size_t i = 0; i < count; i++)
        check_known(&tiers, &known[i]);
    qk_test_tiers_deinit(&tiers);
}

/* Infinities and what is beyond 32 bits saturate, and a NaN becomes the least: once INT32_MIN came
 * of all of them, to which a negative zero point was added modulo 2^32. */
static const struct known saturated[] = {
    {19,
     QK_FP16,
     QK_FP16,
     QK_NONE,
     QK_INT8,
     {0x7c00, 0xfc00, 0x7e00, 0x7bff, 0xfbff, 0x3c00},
     0x0001,
     {0},
     {0x7f, 0x80, 0x80, 0x7f, 0x80, 0x7f}},
    {19,
     QK_FP16,
     QK_FP16,
     QK_NONE,
     QK_INT8,
     {0x7c00, 0xfc00, 0x7e00, 0x7bff, 0xfbff, 0x3c00},
     0x0001,
     {0xff},
     {0x7f, 0x80, 0x80, 0x7f, 0x80, 0x7f}},
    {19,
     QK_FP16,
     QK_FP16,
     QK_NONE,
     QK_UINT8,
     {0x7c00, 0xfc00, 0x7e00, 0x7bff, 0xfbff, 0x3c00},
     0x0001,
     {0x7},
     {0xff, 0x00, 0x00, 0xff, 0x00, 0xff}},
    {25,
     QK_FP16,
     QK_FP16,
     QK_NONE,
     QK_INT8,
     {0x7c00, 0xfc00, 0x7e00, 0x7bff, 0xfbff, 0x3c00},
     0x0001,
     {0},
     {0x7f, 0x80, 0x80, 0x7f, 0x80, 0x7f}},
    {25,
     QK_FP16,
     QK_FP16,
     QK_NONE,
     QK_INT8,
     {0x7c00, 0xfc00, 0x7e00, 0x7bff, 0xfbff, 0x3c00},
     0x0001,
     {0xff},
     {0x7f, 0x80, 0x80, 0x7f, 0x80, 0x7f}},
    {25,
     QK_FP16,
     QK_FP16,
     QK_NONE,
     QK_UINT8,
     {0x7c00, 0xfc00, 0x7e00, 0x7bff, 0xfbff, 0x3c00},
     0x0001,
     {0x7},
     {0xff, 0x00, 0x00, 0xff, 0x00, 0xff}},
    {25,
     QK_FP16,
     QK_FP16,
     QK_NONE,
     QK_INT16,
     {0x7c00, 0xfc00, 0x7e00, 0x7bff, 0xfbff, 0x3c00},
     0x0001,
     {0xff, 0xff},
     {0xff, 0x7f, 0x00, 0x80, 0x00, 0x80, 0xff, 0x7f, 0x00, 0x80, 0xff, 0x7f}},
    {25,
     QK_FP16,
     QK_FP16,
     QK_NONE,
     QK_UINT16,
     {0x7c00, 0xfc00, 0x7e00, 0x7bff, 0xfbff, 0x3c00},
     0x0001,
     {0x5, 0x0},
     {0xff, 0xff, 0x00, 0x00, 0x00, 0x00, 0xff, 0xff, 0x00, 0x00, 0xff, 0xff}},
    {25,
     QK_FP16,
     QK_FP32,
     QK_NONE,
     QK_INT8,
     {0x7c00, 0xfc00, 0x7e00, 0x7bff, 0xfbff, 0x3c00},
     0x0da24260,
     {0xff},
     {0x7f, 0x80, 0x80, 0x7f, 0x80, 0x7f}},
    {25,
     QK_FP32,
     QK_FP16,
     QK_NONE,
     QK_INT8,
     {0x7f800000, 0xff800000, 0x7fc00000, 0x7149f2ca, 0xf149f2ca, 0x3f800000},
     0x0001,
     {0xff},
     {0x7f, 0x80, 0x80, 0x7f, 0x80, 0x7f}},
    /* By the definition: ONNX Runtime has no BF16. */
    {19,
     QK_BF16,
     QK_BF16,
     QK_NONE,
     QK_INT8,
     {0x7f80, 0xff80, 0x7fc0, 0x7f7f, 0xff7f, 0x3f80},
     0x0080,
     {0xff},
     {0x7f, 0x80, 0x80, 0x7f, 0x80, 0x7f}},
    {23,
     QK_BF16,
     QK_FP32,
     QK_NONE,
     QK_UINT8,
     {0x7f80, 0xff80, 0x7fc0, 0x7f7f, 0xff7f, 0x3f80},
     0x00800000,
     {0x07},
     {0xff, 0, 0, 0xff, 0, 0xff}},
    {13,
     QK_INT32,
     QK_FP32,
     QK_NONE,
     QK_INT8,
     {1, 0xffffffff, 0, 0x7fffffff, 0x80000000, 2},
     0,
     {0xff},
     {0x7f, 0x80, 0x80, 0x7f, 0x80, 0x7f}},
};

Test(onnx_quantize_linear, infinities_saturate)
{
    check_all_known(saturated, COUNT_OF(saturated));
}

/* Since opset 23 the type of y_scale is the type of the division. These quotients are near ties. */
static const struct known divided[] = {
    {19,
     QK_FP16,
     QK_FP16,
     QK_NONE,
     QK_UINT8,
     {0x501c, 0x5226, 0x533a, 0x56a4, 0x5226, 0x578a},
     0x37ad,
     {0},
     {0x45, 0x67, 0x79, 0xdd, 0x67, 0xfb}},
    {21,
     QK_FP16,
     QK_FP16,
     QK_NONE,
     QK_UINT8,
     {0x501c, 0x5226, 0x533a, 0x56a4, 0x5226, 0x578a},
     0x37ad,
     {0},
     {0x45, 0x67, 0x79, 0xdd, 0x67, 0xfb}},
    {23,
     QK_FP16,
     QK_FP16,
     QK_NONE,
     QK_UINT8,
     {0x501c, 0x5226, 0x533a, 0x56a4, 0x5226, 0x578a},
     0x37ad,
     {0},
     {0x44, 0x66, 0x78, 0xde, 0x66, 0xfc}},
    {24,
     QK_FP16,
     QK_FP16,
     QK_NONE,
     QK_UINT8,
     {0x501c, 0x5226, 0x533a, 0x56a4, 0x5226, 0x578a},
     0x37ad,
     {0},
     {0x44, 0x66, 0x78, 0xde, 0x66, 0xfc}},
    {25,
     QK_FP16,
     QK_FP16,
     QK_NONE,
     QK_UINT8,
     {0x501c, 0x5226, 0x533a, 0x56a4, 0x5226, 0x578a},
     0x37ad,
     {0},
     {0x44, 0x66, 0x78, 0xde, 0x66, 0xfc}},
    {25,
     QK_FP16,
     QK_FP16,
     QK_FP32,
     QK_UINT8,
     {0x501c, 0x5226, 0x533a, 0x56a4, 0x5226, 0x578a},
     0x37ad,
     {0},
     {0x45, 0x67, 0x79, 0xdd, 0x67, 0xfb}},
    {25,
     QK_FP16,
     QK_FP16,
     QK_FP16,
     QK_UINT8,
     {0x501c, 0x5226, 0x533a, 0x56a4, 0x5226, 0x578a},
     0x37ad,
     {0},
     {0x44, 0x66, 0x78, 0xde, 0x66, 0xfc}},
    {25,
     QK_FP16,
     QK_FP32,
     QK_NONE,
     QK_UINT8,
     {0x501c, 0x5226, 0x533a, 0x56a4, 0x5226, 0x578a},
     0x3ef5a000,
     {0},
     {0x45, 0x67, 0x79, 0xdd, 0x67, 0xfb}},
    {25,
     QK_FP16,
     QK_FP32,
     QK_FP16,
     QK_UINT8,
     {0x501c, 0x5226, 0x533a, 0x56a4, 0x5226, 0x578a},
     0x3ef5a000,
     {0},
     {0x44, 0x66, 0x78, 0xde, 0x66, 0xfc}},
    {25,
     QK_FP32,
     QK_FP16,
     QK_NONE,
     QK_UINT8,
     {0x42038000, 0x4244c000, 0x42674000, 0x42d48000, 0x4244c000, 0x42f14000},
     0x37ad,
     {0},
     {0x44, 0x66, 0x78, 0xde, 0x66, 0xfc}},
    {25,
     QK_FP32,
     QK_FP16,
     QK_FP32,
     QK_UINT8,
     {0x42038000, 0x4244c000, 0x42674000, 0x42d48000, 0x4244c000, 0x42f14000},
     0x37ad,
     {0},
     {0x45, 0x67, 0x79, 0xdd, 0x67, 0xfb}},
    {23,
     QK_FP32,
     QK_FP16,
     QK_NONE,
     QK_INT16,
     {0x45001000, 0x45003000, 0x45801000, 0x4788b800, 0xc788b800, 0x447a199a},
     0x3c00,
     {0, 0},
     {0x00, 0x08, 0x04, 0x08, 0x00, 0x10, 0xff, 0x7f, 0x00, 0x80, 0xe8, 0x03}},
    {23,
     QK_FP32,
     QK_FP16,
     QK_FP32,
     QK_INT16,
     {0x45001000, 0x45003000, 0x45801000, 0x4788b800, 0xc788b800, 0x447a199a},
     0x3c00,
     {0, 0},
     {0x01, 0x08, 0x03, 0x08, 0x02, 0x10, 0xff, 0x7f, 0x00, 0x80, 0xe8, 0x03}},
    {23,
     QK_FP32,
     QK_FP32,
     QK_NONE,
     QK_INT16,
     {0x45001000, 0x45003000, 0x45801000, 0x4788b800, 0xc788b800, 0x447a199a},
     0x3f800000,
     {0, 0},
     {0x01, 0x08, 0x03, 0x08, 0x02, 0x10, 0xff, 0x7f, 0x00, 0x80, 0xe8, 0x03}},
    {23,
     QK_FP32,
     QK_FP32,
     QK_FP16,
     QK_INT16,
     {0x45001000, 0x45003000, 0x45801000, 0x4788b800, 0xc788b800, 0x447a199a},
     0x3f800000,
     {0, 0},
     {0x00, 0x08, 0x04, 0x08, 0x00, 0x10, 0xff, 0x7f, 0x00, 0x80, 0xe8, 0x03}},
};

Test(onnx_quantize_linear, the_scale_says_in_what_is_divided)
{
    check_all_known(divided, COUNT_OF(divided));
}

/* ONNX Runtime has none of these. The bytes are those of onnx's reference evaluator with the type
 * of y_scale as `precision`. */
static const struct known divided_by_others[] = {
    {23,
     QK_FP32,
     QK_BF16,
     QK_NONE,
     QK_INT16,
     {0x43808000, 0x43818000, 0x447a0000, 0x40600000, 0xc3810000, 0x42c8999a},
     0x3fc0,
     {0, 0},
     {0xab, 0x00, 0xad, 0x00, 0x9c, 0x02, 0x02, 0x00, 0x54, 0xff, 0x43, 0x00}},
    {23,
     QK_FP16,
     QK_BF16,
     QK_NONE,
     QK_INT16,
     {0x5c04, 0x5c0c, 0x63d0, 0x4300, 0xdc08, 0x5645},
     0x3fc0,
     {0, 0},
     {0xab, 0x00, 0xad, 0x00, 0x9c, 0x02, 0x02, 0x00, 0x54, 0xff, 0x43, 0x00}},
    {23,
     QK_BF16,
     QK_FP32,
     QK_NONE,
     QK_INT16,
     {0x4380, 0x4382, 0x447a, 0x4060, 0xc381, 0x42c9},
     0x3fc00000,
     {0, 0},
     {0xab, 0x00, 0xad, 0x00, 0x9b, 0x02, 0x02, 0x00, 0x54, 0xff, 0x43, 0x00}},
    {23,
     QK_BF16,
     QK_FP16,
     QK_NONE,
     QK_INT16,
     {0x4380, 0x4382, 0x447a, 0x4060, 0xc381, 0x42c9},
     0x3e00,
     {0, 0},
     {0xab, 0x00, 0xad, 0x00, 0x9a, 0x02, 0x02, 0x00, 0x54, 0xff, 0x43, 0x00}},
    {23,
     QK_INT32,
     QK_FP16,
     QK_NONE,
     QK_INT16,
     {0x00000101, 0x00000103, 0x000003e8, 0x00000003, 0xfffffefe, 0x00000064},
     0x3e00,
     {0, 0},
     {0xab, 0x00, 0xad, 0x00, 0x9a, 0x02, 0x02, 0x00, 0x54, 0xff, 0x43, 0x00}},
    {23,
     QK_INT32,
     QK_BF16,
     QK_NONE,
     QK_INT16,
     {0x00000101, 0x00000103, 0x000003e8, 0x00000003, 0xfffffefe, 0x00000064},
     0x3fc0,
     {0, 0},
     {0xab, 0x00, 0xad, 0x00, 0x9c, 0x02, 0x02, 0x00, 0x54, 0xff, 0x42, 0x00}},
    {23,
     QK_BF16,
     QK_BF16,
     QK_NONE,
     QK_INT16,
     {0x4380, 0x4382, 0x447a, 0x4060, 0xc381, 0x42c9},
     0x3fc0,
     {0, 0},
     {0xab, 0x00, 0xad, 0x00, 0x9c, 0x02, 0x02, 0x00, 0x54, 0xff, 0x43, 0x00}},
    {23,
     QK_INT32,
     QK_FP32,
     QK_NONE,
     QK_INT16,
     {0x02000003, 0x02000001, 0xfdfffffd, 0x00000007, 0x0000000a, 0x7fffffff},
     0x4a000002,
     {0, 0},
     {0x10, 0x00, 0x10, 0x00, 0xf0, 0xff, 0x00, 0x00, 0x00, 0x00, 0x00, 0x04}},
};

Test(onnx_quantize_linear, other_scales_say_so_too)
{
    check_all_known(divided_by_others, COUNT_OF(divided_by_others));
}
