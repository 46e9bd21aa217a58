/* onnx.DequantizeLinear as a whole, on every tier, against plain index computation. */
#include "kernels/dispatch.h"
#include "tests/support/dequantize_oracle.h"
#include "tests/support/qk_test.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static const char *const tiers[] = {"scalar", "avx2"};
static const enum qk_type types[] = {QK_UINT8, QK_INT8, QK_INT32};

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

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
    uint8_t *block = malloc(count * dequantize_element_bytes(type) + 1);
    cr_assert_not_null(block);
    dequantize_random_elements(random, type, block + 1, count * dequantize_element_bytes(type));
    return block;
}

static uint8_t *random_scales(uint64_t *random, size_t count)
{
    uint8_t *block = malloc(count * sizeof(float) + 1);
    cr_assert_not_null(block);
    for (size_t i = 0; i < count; i++) {
        float scale = dequantize_random_scale(random);
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
            sample->has_zero_points ? dequantize_element(x->type, sample->zero_points + 1, at) : 0;
        float scale;
        memcpy(&scale, sample->scales + 1 + at * sizeof(scale), sizeof(scale));
        float expected =
            dequantize_expected(dequantize_element(x->type, sample->x + 1, i), zero_point, scale);
        float got = ((const float *)result->output)[i];
        cr_assert(dequantize_same(got, expected), "element %zu, scale %zu: expected %a, got %a", i,
                  at, (double)expected, (double)got);
    }
}

/* Whether neighbours have different scales: no kernel of a tier's does that. */
static bool scale_each(const struct sample *sample)
{
    const struct qk_tensor *x = &sample->call.inputs[0];
    size_t neighbours = 1;
    if (sample->call.inputs[1].rank == 0 || sample->call.inputs[1].dims[0] == 1)
        return false;
    for (uint32_t i = sample->axis + 1; i < x->rank; i++)
        neighbours *= x->dims[i];
    return neighbours == 1;
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
        cr_assert_str_eq(whole.plan.kernel, scale_each(sample) ? "dequantize_scale_each"
                                                               : kernels[tier]->dequantize.name);
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

Test(onnx_dequantize_linear, random_shapes)
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
Test(onnx_dequantize_linear, many_units)
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

/* Threads share the output: a unit, though it begins and ends inside a row, writes only its own. */
Test(onnx_dequantize_linear, a_unit_writes_its_own_elements)
{
    struct qk_kernels *kernels = qk_test_kernels("auto");
    const size_t dims[] = {2, 100000};
    const size_t unit_bytes = 65536 * sizeof(float);
    uint64_t random = 8;
    for (uint32_t axis = 0; axis < 2; axis++) {
        struct sample sample;
        struct qk_test_memory memory;
        struct qk_plan plan;
        struct qk_error error;
        const struct qk_instance *instance;
        sample_init(&sample, &random, QK_INT8, 2, dims, axis);
        qk_test_memory_init(&memory, SIZE_MAX);
        struct qk_memory face = qk_test_memory_face(&memory);
        cr_assert_eq(qk_create(kernels, &sample.call, face, &instance, &error), QK_OK);
        cr_assert_eq(qk_plan(instance, &sample.call, face, &plan, &error), QK_OK);
        uint8_t *output = face.alloc(face.context, plan.output_bytes);
        memset(output, 0x5a, plan.output_bytes);
        qk_run(&plan, output, NULL, 1, 2);
        for (size_t i = 0; i < plan.output_bytes; i++)
            cr_assert(output[i] == 0x5a || i / unit_bytes == 1, "byte %zu", i);
        qk_test_memory_deinit(&memory);
        sample_deinit(&sample);
    }
    qk_kernels_destroy(kernels);
}

Test(onnx_dequantize_linear, plan_splits_into_units)
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
        cr_assert(counts[i][0] > 1 || result.plan.unit_cost_ns < 1000); /* tiny: run in place */
        qk_test_result_deinit(&result);
        sample_deinit(&sample);
    }
    qk_kernels_destroy(kernels);
}

Test(onnx_dequantize_linear, survives_every_failed_allocation)
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
