/* onnx.DequantizeLinear as a whole, on every tier, against plain index computation. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/dispatch.h"
#include "tests/support/kernels/dequantize_oracle.h"
#include "tests/support/kernels/granularity.h"
#include "tests/support/kernels/qk_test.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* The parameters of a sample. */
struct spec {
    enum qk_type x_type;
    enum qk_type scale_type;
    enum qk_type y_type; /* QK_NONE: no output_dtype */
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

static bool is_float(enum qk_type type)
{
    return qk_type_info(type)->kind == QK_KIND_FLOAT;
}

/* Returns random elements, one byte after an aligned address, so that nothing is aligned. */
static uint8_t *random_elements(uint64_t *random, enum qk_type type, size_t count)
{
    uint8_t *block = malloc(dequantize_bytes(type, count) + 1);
    cr_assert_not_null(block);
    dequantize_random_elements(random, type, block + 1, count);
    for (size_t i = 0; type == QK_FP32 && i < count; i++) {
        float scale = dequantize_random_scale(random);
        memcpy(block + 1 + i * sizeof(scale), &scale, sizeof(scale));
    }
    return block;
}

/* Returns random zero points. Those of a float type must be zeros. The pad bits are random, because
 * nothing reads them. */
static uint8_t *random_zero_points(uint64_t *random, enum qk_type type, size_t count)
{
    uint8_t *block = random_elements(random, type, count);
    for (size_t i = 0; is_float(type) && i < count; i++)
        qk_test_store(type, block + 1, i, 0);
    return block;
}

static void add_attributes(struct qk_call *call, const struct spec *spec, uint64_t *random)
{
    granularity_add(&spec->granularity, call, random);
    if (spec->y_type != QK_NONE)
        qk_test_call_int(call, "output_dtype", qk_type_info(spec->y_type)->onnx);
}

static void sample_init(struct sample *sample, uint64_t *random, const struct spec *spec)
{
    struct qk_call *call = &sample->call;
    size_t dims[QK_RANK_MAX];
    uint32_t rank = granularity_scale_shape(&spec->granularity, random, dims);
    sample->spec = *spec;
    qk_test_call_init(call, "onnx.DequantizeLinear", 25);
    qk_test_call_input(call, "x", spec->x_type, NULL, spec->granularity.rank,
                       spec->granularity.dims);
    sample->x = random_elements(random, spec->x_type, call->inputs[0].count);
    call->inputs[0].data = sample->x + 1;
    qk_test_call_input(call, "x_scale", spec->scale_type, NULL, rank, dims);
    sample->scales = random_elements(random, spec->scale_type, call->inputs[1].count);
    call->inputs[1].data = sample->scales + 1;
    sample->zero_points = random_zero_points(random, spec->x_type, call->inputs[1].count);
    sample->has_zero_points = qk_test_random_below(random, 4) != 0;
    if (spec->granularity.axis == WHOLE)
        rank = (uint32_t)qk_test_random_below(random, 2); /* [] and [1] may be mixed */
    if (sample->has_zero_points)
        qk_test_call_input(call, "x_zero_point", spec->x_type, sample->zero_points + 1, rank, dims);
    add_attributes(call, spec, random);
}

static void sample_deinit(struct sample *sample)
{
    free(sample->x);
    free(sample->scales);
    free(sample->zero_points);
}

static float expected_element(const struct sample *sample, size_t i)
{
    const enum qk_type type = sample->spec.x_type;
    const size_t at =
        granularity_scale_index(&sample->spec.granularity, sample->call.inputs[1].dims, i);
    const float scale = (float)dequantize_value(sample->spec.scale_type, sample->scales + 1, at);
    if (is_float(type))
        return dequantize_product(dequantize_value(type, sample->x + 1, i), scale);
    return dequantize_expected(
        dequantize_element(type, sample->x + 1, i),
        sample->has_zero_points ? dequantize_element(type, sample->zero_points + 1, at) : 0, scale);
}

static void check_result(const struct sample *sample, const struct qk_test_result *result)
{
    const struct spec *spec = &sample->spec;
    const struct qk_tensor *x = &sample->call.inputs[0];
    const struct qk_tensor *y = &result->plan.outputs[0];
    cr_assert_eq(result->status, QK_OK, "%s", result->error.text);
    cr_assert_eq(y->type, spec->y_type == QK_NONE ? spec->scale_type : spec->y_type);
    cr_assert_eq(y->rank, x->rank);
    cr_assert_eq(memcmp(y->dims, x->dims, x->rank * sizeof(x->dims[0])), 0);
    cr_assert_eq(y->count, x->count);
    cr_assert_eq(y->stored, x->count);
    cr_assert_eq(result->plan.output_bytes[0], dequantize_bytes(y->type, x->count));
    for (size_t i = 0; i < x->count; i++)
        if (!dequantize_is(y->type, result->output, i, expected_element(sample, i)))
            cr_assert_fail("%s %s %s, axis %u, block %zu: element %zu of %zu: expected %a",
                           qk_type_info(spec->x_type)->name, qk_type_info(spec->scale_type)->name,
                           qk_type_info(y->type)->name, spec->granularity.axis,
                           spec->granularity.block, i, x->count,
                           (double)expected_element(sample, i));
}

/* Runs the sample on every tier, at once and in pieces. */
static void check_sample(const struct qk_test_tiers *tiers, const struct sample *sample,
                         uint64_t seed)
{
    struct qk_test_result result;
    qk_test_run_tiers(tiers, &sample->call, seed, &result);
    check_result(sample, &result);
    qk_test_result_deinit(&result);
}

static const enum qk_type x_types[] = {
    QK_UINT8,     QK_INT8,        QK_INT32,   QK_UINT16,      QK_INT16, QK_UINT4, QK_INT4,
    QK_FP8E4M3FN, QK_FP8E4M3FNUZ, QK_FP8E5M2, QK_FP8E5M2FNUZ, QK_UINT2, QK_INT2,  QK_FP4E2M1};
static const enum qk_type scale_types[] = {QK_FP32, QK_FP16, QK_BF16, QK_FP8E8M0};
static const enum qk_type y_types[] = {QK_NONE, QK_FP32, QK_FP16, QK_BF16};

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

Test(onnx_dequantize_linear, every_type_in_random_shapes)
{
    struct qk_test_tiers tiers;
    uint64_t random = 3;
    qk_test_tiers_init(&tiers);
    for (int round = 0; round < 12; round++) {
        for (size_t i = 0; i < COUNT_OF(x_types) * COUNT_OF(scale_types) * COUNT_OF(y_types); i++) {
            const struct spec spec = {.x_type = x_types[i / 16],
                                      .scale_type = scale_types[i / 4 % 4],
                                      .y_type = y_types[i % 4]};
            if ((spec.scale_type != QK_FP8E8M0 || spec.y_type != QK_NONE) &&
                qk_test_runs((size_t)round + i))
                check_random(&tiers, spec, &random);
        }
    }
    qk_test_tiers_deinit(&tiers);
}

/* Several units. Units begin in the middle of a row, of a block, and of a byte if rows do not end
 * with a byte. Rows begin in the middle of a unit. */
Test(onnx_dequantize_linear, many_units)
{
    static const struct {
        size_t dims[3];
        uint32_t axis;
        size_t block;
    } cases[] = {
        {{3, 100001, 1}, 0, 0},   {{3, 100001, 1}, 1, 0}, {{100001, 3, 1}, 0, 0},
        {{5, 3, 20011}, 1, 0},    {{2, 2, 70000}, 1, 0},  {{1, 2, 150001}, 2, 0},
        {{9, 9, 4099}, WHOLE, 0}, {{9, 33333, 1}, 1, 32}, {{3, 33333, 1}, 1, 7},
        {{9, 1000, 33}, 1, 31},   {{2, 3, 50001}, 0, 2},  {{300003, 1, 1}, 0, 300002},
        {{40, 100, 80}, 1, 0},    {{40, 3, 2500}, 1, 0},  {{300, 1024, 1}, 1, 32},
        {{5000, 64, 1}, 1, 64},   {{300, 32, 32}, 1, 32}, {{700, 7, 63}, 1, 0},
    };
    struct qk_test_tiers tiers;
    uint64_t random = 4;
    qk_test_tiers_init(&tiers);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        for (size_t type = i % 3; type < COUNT_OF(x_types); type += 3) {
            struct sample sample;
            if (!qk_test_runs(i + type))
                continue;
            sample_init(
                &sample, &random,
                &(struct spec){.x_type = x_types[type],
                               .scale_type = scale_types[(i + type) % 3],
                               .granularity = {3, cases[i].dims, cases[i].axis, cases[i].block}});
            check_sample(&tiers, &sample, qk_test_random(&random));
            sample_deinit(&sample);
        }
    }
    qk_test_tiers_deinit(&tiers);
}

/* Outputs so large that they are streamed: in whole lines, in rows that end within lines, and
 * element by element. The scalar tier, which the other tests check, gives the expected result. */
Test(onnx_dequantize_linear, large_outputs)
{
    static const struct {
        enum qk_type x_type;
        enum qk_type y_type;
        size_t dims[2];
        uint32_t axis;
        size_t block;
    } cases[] = {
        {QK_UINT8, QK_FP32, {16300, 784}, 0, 0},   {QK_INT4, QK_FP32, {16300, 784}, WHOLE, 0},
        {QK_UINT4, QK_FP16, {32600, 784}, 0, 0},   {QK_INT16, QK_FP32, {16300, 787}, 0, 0},
        {QK_FP8E5M2, QK_BF16, {32600, 800}, 0, 0}, {QK_INT2, QK_FP16, {13000, 2048}, 1, 32},
        {QK_INT8, QK_BF16, {9000, 3000}, 1, 0},    {QK_INT32, QK_FP32, {4200000, 3}, 1, 0},
    };
    struct qk_test_tiers tiers;
    uint64_t random = 9;
    qk_test_tiers_init(&tiers);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        if (!qk_test_runs(i))
            continue;
        const struct spec spec = {cases[i].x_type,
                                  QK_FP32,
                                  cases[i].y_type,
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

/* Every code of each type of at most 8 bits, with every scale whose rounding differs. */
Test(onnx_dequantize_linear, every_code_of_small_types)
{
    static const float scales[] = {0.1F, -3.0F, 0x1p-149F, 0x1.fffffep127F, INFINITY, 0.0F};
    struct qk_kernels *kernels = qk_test_kernels("auto");
    for (size_t t = 0; t < COUNT_OF(x_types); t++) {
        const enum qk_type type = x_types[t];
        const size_t count = (size_t)1 << qk_type_info(type)->bits;
        uint8_t x[256];
        for (size_t i = 0; i < count && count <= 256; i++)
            qk_test_store(type, x, i, (uint32_t)i);
        for (size_t i = 0; i < COUNT_OF(scales) * 3 && count <= 256; i++) {
            struct qk_test_result result;
            struct qk_call call;
            const float scale = scales[i / 3];
            qk_test_call_init(&call, "onnx.DequantizeLinear", 25);
            qk_test_call_input(&call, "x", type, x, 1, &count);
            qk_test_call_input(&call, "x_scale", QK_FP32, &scale, 0, NULL);
            qk_test_call_int(&call, "output_dtype", qk_type_info(y_types[1 + i % 3])->onnx);
            qk_test_run(kernels, &call, &result);
            cr_assert_eq(result.status, QK_OK, "%s", result.error.text);
            for (size_t k = 0; k < count; k++)
                cr_assert(dequantize_is(y_types[1 + i % 3], result.output, k,
                                        dequantize_product(dequantize_value(type, x, k), scale)),
                          "%s code %zu by %a to %s", qk_type_info(type)->name, k, (double)scale,
                          qk_type_info(y_types[1 + i % 3])->name);
            qk_test_result_deinit(&result);
        }
    }
    qk_kernels_destroy(kernels);
}

/* The kernel's name in an answer must be that of the tier, for all types and granularities. */
Test(onnx_dequantize_linear, names_the_kernel_that_runs)
{
    static const struct {
        enum qk_type x_type;
        enum qk_type y_type;
        uint32_t axis;
        size_t block;
    } cases[] = {
        {QK_UINT8, QK_FP32, WHOLE, 0}, {QK_INT32, QK_FP32, WHOLE, 0}, {QK_INT8, QK_FP32, 1, 0},
        {QK_INT8, QK_FP32, 1, 15},     {QK_INT8, QK_FP16, WHOLE, 0},  {QK_INT4, QK_FP32, 0, 0},
    };
    const size_t dims[] = {3, 40};
    struct qk_test_tiers tiers;
    uint64_t random = 7;
    qk_test_tiers_init(&tiers);
    for (size_t i = 0; i < COUNT_OF(cases) * tiers.count; i++) {
        const size_t c = i / tiers.count;
        struct qk_kernels *table = tiers.kernels[i % tiers.count];
        struct sample sample;
        struct qk_test_result result;
        sample_init(&sample, &random,
                    &(struct spec){cases[c].x_type,
                                   QK_FP32,
                                   cases[c].y_type,
                                   {2, dims, cases[c].axis, cases[c].block}});
        qk_test_run(table, &sample.call, &result);
        cr_expect_str_eq(result.plan.kernel, table->dequantize.name, "case %zu", c);
        qk_test_result_deinit(&result);
        sample_deinit(&sample);
    }
    qk_test_tiers_deinit(&tiers);
}

/* Runs only unit `unit`, into bytes that were set to `fill`. */
static void run_unit(const struct qk_plan *plan, const struct qk_call *call, size_t unit, int fill,
                     uint8_t *output)
{
    memset(output, fill, plan->output_bytes[0]);
    qk_test_run_units(plan, call, output, unit, unit + 1);
}

/* Threads share the output. Each byte must belong to one unit, and units must begin with a cache
 * line, though they begin and end inside rows. */
static void check_units(const struct qk_plan *plan, const struct qk_call *call,
                        struct qk_memory memory)
{
    uint8_t *outputs[2];
    size_t next = 0;
    for (int i = 0; i < 2; i++)
        outputs[i] = memory.alloc(memory.context, plan->output_bytes[0]);
    for (size_t unit = 0; unit < plan->unit_count; unit++) {
        run_unit(plan, call, unit, 0x5a, outputs[0]);
        run_unit(plan, call, unit, 0xa5, outputs[1]);
        cr_assert_eq(next % 64, 0);
        for (size_t i = 0; i < next; i++)
            cr_assert_neq(outputs[0][i], outputs[1][i], "byte %zu, by unit %zu", i, unit);
        while (next < plan->output_bytes[0] && outputs[0][next] == outputs[1][next])
            next++;
        for (size_t i = next; i < plan->output_bytes[0]; i++)
            cr_assert_neq(outputs[0][i], outputs[1][i], "byte %zu, by unit %zu", i, unit);
    }
    cr_assert_eq(next, plan->output_bytes[0]);
}

Test(onnx_dequantize_linear, a_unit_writes_its_own_elements)
{
    const size_t dims[] = {2, 400001};
    struct qk_test_tiers tiers;
    uint64_t random = 8;
    qk_test_tiers_init(&tiers);
    for (size_t i = 0; i < 2 * tiers.count; i++) {
        struct sample sample;
        struct qk_test_memory memory;
        struct qk_plan plan;
        struct qk_error error;
        const struct qk_instance *instance;
        const struct spec spec = {QK_INT8, QK_FP32, QK_NONE, {2, dims, i % 2, 0}};
        sample_init(&sample, &random, &spec);
        qk_test_memory_init(&memory, SIZE_MAX);
        struct qk_memory face = qk_test_memory_face(&memory);
        cr_assert_eq(qk_create(tiers.kernels[i / 2], &sample.call, face, &instance, &error), QK_OK);
        cr_assert_eq(qk_plan(instance, sample.call.inputs, face, &plan, &error), QK_OK);
        cr_assert_gt(plan.unit_count, 1);
        check_units(&plan, &sample.call, face);
        qk_test_memory_deinit(&memory);
        sample_deinit(&sample);
    }
    qk_test_tiers_deinit(&tiers);
}

/* A large plan has units that several threads can share, and a small plan has one. A unit of more
 * elements costs no less. How much it costs depends on the machine's clock. */
Test(onnx_dequantize_linear, plan_splits_into_units)
{
    static const size_t counts[] = {0, 1, 4096, 1 << 22};
    struct qk_test_tiers tiers;
    uint64_t random = 5;
    qk_test_tiers_init(&tiers);
    for (size_t i = 0; i < tiers.count; i++) {
        uint64_t cost_ns = 0;
        for (size_t c = 0; c < COUNT_OF(counts); c++) {
            struct sample sample;
            struct qk_test_result result;
            sample_init(&sample, &random,
                        &(struct spec){QK_UINT8, QK_FP32, QK_NONE, {1, &counts[c], WHOLE, 0}});
            qk_test_run(tiers.kernels[i], &sample.call, &result);
            const struct qk_plan *plan = &result.plan;
            cr_assert_eq(plan->workspace_bytes, 0);
            cr_assert_eq(plan->unit_count == 0, counts[c] == 0);
            cr_assert_eq(plan->unit_count <= 1, counts[c] <= 4096); /* the smallest unit */
            cr_assert(counts[c] <= 4096 || plan->unit_count >= 16); /* the largest is 1 << 18 */
            cr_assert(plan->unit_cost_ns > 0 && plan->unit_cost_ns >= cost_ns);
            cost_ns = plan->unit_cost_ns;
            qk_test_result_deinit(&result);
            sample_deinit(&sample);
        }
    }
    qk_test_tiers_deinit(&tiers);
}

Test(onnx_dequantize_linear, survives_every_failed_allocation)
{
    struct qk_kernels *kernels = qk_test_kernels("auto");
    const size_t dims[] = {4, 8};
    uint64_t random = 6;
    for (size_t i = 0; i < COUNT_OF(x_types); i++) {
        struct sample sample;
        sample_init(&sample, &random,
                    &(struct spec){x_types[i], QK_FP32, QK_NONE, {2, dims, 1, 3}});
        cr_assert_geq(qk_test_fail_allocations(kernels, &sample.call),
                      2); /* aligned FP32 is borrowed */
        sample_deinit(&sample);
    }
    qk_kernels_destroy(kernels);
}
