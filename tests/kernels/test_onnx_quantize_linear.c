/* onnx.QuantizeLinear as a whole, on every tier, against plain index computation. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/dispatch.h"
#include "tests/support/cases.h"
#include "tests/support/kernels/dequantize_oracle.h"
#include "tests/support/kernels/granularity.h"
#include "tests/support/kernels/qk_test.h"
#include "tests/support/kernels/quantize_oracle.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* The parameters of a sample. */
struct spec {
    struct quantize_rule rule;
    struct granularity granularity;
};

/* A call with everything that it borrows. */
struct sample {
    struct spec spec;
    struct qk_call call;
    uint8_t *x;
    uint8_t *scales;
    uint8_t *zero_points;
    bool has_zero_points;
};

typedef uint32_t random_fn(uint64_t *random, enum qk_type type);

/* Returns random elements, one byte after an aligned address, so that nothing is aligned. */
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
        rank = (uint32_t)qk_test_random_below(random, 2); /* [] and [1] may be mixed */
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

/* Returns the expected result of element i for this x. */
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

/* If both operands are NaN, the quotient is one of them: x on x86, and on ARM the scale if it is
 * signalling. */
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

/* Checks that the bits after the last element in its byte are 0. */
static void check_padding(const struct sample *sample, const struct qk_test_result *result)
{
    const unsigned bits = qk_type_info(sample->spec.rule.y_type)->bits;
    const size_t used = sample->call.inputs[0].count * bits % 8;
    if (used > 0)
        cr_assert_eq(((const uint8_t *)result->output)[result->plan.output_bytes[0] - 1] >> used,
                     0);
}

/* Runs the sample on every tier, at once and in pieces. */
static void check_sample(const struct qk_test_tiers *tiers, const struct sample *sample,
                         uint64_t seed)
{
    struct qk_test_result result;
    qk_test_run_tiers(tiers, &sample->call, seed, &result);
    check_result(sample, &result);
    check_padding(sample, &result);
    qk_test_result_deinit(&result);
}

/* Returns a version from 21 on that supports these types. */
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

/* Checks a random shape and granularity, for types that the caller chose. */
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

/* Several units. Units begin in the middle of a row, of a block, and of a byte if rows do not end
 * with a byte. Rows begin in the middle of a unit. */
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

/* Outputs so large that they are streamed. The scalar tier, which the other tests check, gives the
 * expected result. */
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

/* The kernel's name in an answer must be that of the tier, for all types and granularities. */
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
        /* One allocation for the instance, one for its scales, and two for a plan. */
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

/* Ties round to even before the zero point is added. Without a zero point, y is UINT8 in every
 * version. */
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

/* A multiplication by the rounded reciprocal would turn some of these quotients into other ties. */
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

/* ---- Bytes of other implementations -------------------------------------------------------- */

/* The test whose lines of the file run, and how many lines there were. */
struct group {
    const char *test;
    const struct qk_test_tiers *tiers;
    size_t *count;
};

/* How many copies of x are made, enough for the loops of each tier. */
enum { COPIES = 64 };

static void run_known(const cJSON *line, const void *context)
{
    const struct group *group = context;
    const cJSON *y = cJSON_GetObjectItemCaseSensitive(line, "outputs")->child;
    struct cases_call loaded;
    struct qk_test_result result;
    size_t y_bytes;
    if (strcmp(cases_string(line, "test"), group->test) != 0)
        return;
    cases_load_call(&loaded, line);
    const struct qk_tensor *x = &loaded.call.inputs[0];
    const size_t x_bytes = dequantize_bytes(x->type, x->count);
    const size_t count = COPIES * x->count;
    loaded.data[0] = realloc(loaded.data[0], COPIES * x_bytes);
    cr_assert_not_null(loaded.data[0]);
    dequantize_repeat(loaded.data[0], x_bytes, COPIES * x_bytes);
    qk_test_call_input(&loaded.call, "x", x->type, loaded.data[0], 1, &count);
    qk_test_run_tiers(group->tiers, &loaded.call, 1, &result);
    cr_assert_eq(result.status, QK_OK, "%s", result.error.text);
    uint8_t *expected = cases_bytes(cases_string(y, "raw_hex"), &y_bytes);
    cr_assert_eq(result.plan.output_bytes[0], COPIES * y_bytes);
    for (size_t i = 0; i < COPIES; i++)
        cr_assert_arr_eq((uint8_t *)result.output + i * y_bytes, expected, y_bytes, "%s",
                         cases_string(line, "id"));
    free(expected);
    qk_test_result_deinit(&result);
    cases_unload_call(&loaded);
    ++*group->count;
}

/* Runs the lines of tests/data/quantize_linear.jsonl that belong to this test. */
static void check_all_known(const char *test, size_t expected_count)
{
    struct qk_test_tiers tiers;
    size_t count = 0;
    qk_test_tiers_init(&tiers);
    const struct group group = {test, &tiers, &count};
    cases_run("tests/data/quantize_linear.jsonl", run_known, &group);
    cr_assert_eq(count, expected_count);
    qk_test_tiers_deinit(&tiers);
}

/* Infinities and values beyond 32 bits saturate, and a NaN becomes the least value. An earlier
 * version turned all of these into INT32_MIN and added a negative zero point modulo 2^32. */
Test(onnx_quantize_linear, infinities_saturate)
{
    check_all_known("infinities_saturate", 13);
}

/* Since opset 23 the type of y_scale is the type of the division. These quotients are near ties. */
Test(onnx_quantize_linear, the_scale_says_in_what_is_divided)
{
    check_all_known("the_scale_says_in_what_is_divided", 15);
}

/* ONNX Runtime supports none of these. The bytes are those of onnx's reference evaluator with the
 * type of y_scale as `precision`. */
Test(onnx_quantize_linear, other_scales_say_so_too)
{
    check_all_known("other_scales_say_so_too", 8);
}
