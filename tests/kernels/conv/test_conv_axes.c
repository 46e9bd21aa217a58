/* onnx.QLinearConv with four to six spatial axes, against the sum over every window written out. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/support/guarded.h"
#include "tests/support/kernels/qk_test.h"

enum { AXES = 6, CHANNELS = 3, OUT_CHANNELS = 4 };

struct axes {
    uint32_t rank;
    int64_t in[AXES], kernel[AXES], stride[AXES], dilation[AXES], pad[AXES], out[AXES];
    size_t in_count, taps, out_count;
};

/* Returns random axes. Few are longer than 1, so that a case stays small. Some axes have one
 * element and one tap, and some are read as they are. Any axis may be the long
 * one. */
static struct axes random_axes(uint32_t rank, uint64_t *random)
{
    struct axes axes = {.rank = rank, .in_count = 1, .taps = 1, .out_count = 1};
    const uint32_t longest = rank - 1 - (uint32_t)qk_test_random_below(random, rank);
    for (uint32_t i = 0; i < rank; i++) {
        const size_t kind = (size_t)qk_test_random_below(random, 4);
        axes.kernel[i] = 1 + (int64_t)qk_test_random_below(random, 2);
        axes.stride[i] = 1 + (int64_t)qk_test_random_below(random, 2);
        axes.dilation[i] = 1 + (int64_t)qk_test_random_below(random, 2);
        axes.pad[i] = (int64_t)qk_test_random_below(random, 2);
        axes.in[i] = 3 + (int64_t)qk_test_random_below(random, i == longest ? 9 : 2);
        if (kind <= 1) {
            axes.kernel[i] = axes.stride[i] = 1;
            axes.pad[i] = 0;
        }
        if (kind == 0)
            axes.in[i] = 1;
        axes.out[i] = (axes.in[i] + 2 * axes.pad[i] - (axes.kernel[i] - 1) * axes.dilation[i] - 1) /
                          axes.stride[i] +
                      1;
        axes.in_count *= (size_t)axes.in[i];
        axes.taps *= (size_t)axes.kernel[i];
        axes.out_count *= (size_t)axes.out[i];
    }
    return axes;
}

/* Returns the index of the element of x that a tap reads, or -1 for padding. */
static int64_t find(const struct axes *axes, size_t position, size_t tap)
{
    int64_t index = 0;
    int64_t stride = 1;
    for (uint32_t i = axes->rank; i-- > 0;) {
        const int64_t at = (int64_t)(position % (size_t)axes->out[i]) * axes->stride[i] +
                           (int64_t)(tap % (size_t)axes->kernel[i]) * axes->dilation[i] -
                           axes->pad[i];
        if (at < 0 || at >= axes->in[i])
            return -1;
        index += at * stride;
        stride *= axes->in[i];
        position /= (size_t)axes->out[i];
        tap /= (size_t)axes->kernel[i];
    }
    return index;
}

/* All scales are 1, x_zero_point is 2 and w_zero_point 1, so y is the sum, clamped. */
static uint8_t expect(const struct axes *axes, const uint8_t *x, const uint8_t *w, size_t m,
                      size_t position)
{
    int32_t sum = 0;
    for (size_t c = 0; c < CHANNELS; c++)
        for (size_t tap = 0; tap < axes->taps; tap++) {
            const int64_t at = find(axes, position, tap);
            if (at >= 0)
                sum += (x[c * axes->in_count + (size_t)at] - 2) *
                       ((int8_t)w[(m * CHANNELS + c) * axes->taps + tap] - 1);
        }
    return (uint8_t)(sum < 0 ? 0 : sum > 255 ? 255 : sum);
}

static void make_call(struct qk_call *call, const struct axes *axes, const uint8_t *x,
                      const uint8_t *w)
{
    static const float one = 1;
    static const uint8_t zero_points[] = {2, 1, 0};
    static int64_t pads[2 * AXES];
    size_t x_dims[2 + AXES] = {1, CHANNELS};
    size_t w_dims[2 + AXES] = {OUT_CHANNELS, CHANNELS};
    for (uint32_t i = 0; i < axes->rank; i++) {
        x_dims[2 + i] = (size_t)axes->in[i];
        w_dims[2 + i] = (size_t)axes->kernel[i];
        pads[i] = pads[axes->rank + i] = axes->pad[i];
    }
    qk_test_call_init(call, "onnx.QLinearConv", 10);
    qk_test_call_input(call, "x", QK_UINT8, x, axes->rank + 2, x_dims);
    qk_test_call_input(call, "w", QK_INT8, w, axes->rank + 2, w_dims);
    qk_test_call_input(call, "x_scale", QK_FP32, &one, 0, NULL);
    qk_test_call_input(call, "w_scale", QK_FP32, &one, 0, NULL);
    qk_test_call_input(call, "y_scale", QK_FP32, &one, 0, NULL);
    qk_test_call_input(call, "x_zero_point", QK_UINT8, &zero_points[0], 0, NULL);
    qk_test_call_input(call, "w_zero_point", QK_INT8, &zero_points[1], 0, NULL);
    qk_test_call_input(call, "y_zero_point", QK_UINT8, &zero_points[2], 0, NULL);
    qk_test_call_ints(call, "strides", axes->stride, axes->rank);
    qk_test_call_ints(call, "dilations", axes->dilation, axes->rank);
    qk_test_call_ints(call, "pads", pads, 2 * (size_t)axes->rank);
}

static void check(const struct qk_test_gemms *gemms, uint32_t rank, uint64_t seed)
{
    uint64_t random = seed;
    const struct axes axes = random_axes(rank, &random);
    const size_t w_bytes = OUT_CHANNELS * CHANNELS * axes.taps;
    uint8_t *x = guarded_alloc(CHANNELS * axes.in_count, 1);
    uint8_t *w = guarded_alloc(w_bytes, 1);
    struct qk_call call;
    for (size_t i = 0; i < CHANNELS * axes.in_count; i++)
        x[i] = (uint8_t)qk_test_random_below(&random, 9);
    for (size_t i = 0; i < w_bytes; i++)
        w[i] = (uint8_t)((int)qk_test_random_below(&random, 9) - 3);
    make_call(&call, &axes, x, w);
    for (size_t g = 0; g < gemms->count; g++) {
        struct qk_test_result result;
        qk_test_run_shuffled(gemms->kernels[g], &call, seed, &result);
        cr_assert_eq(result.status, QK_OK, "%s", result.error.text);
        cr_assert_eq(result.plan.output_bytes[0], OUT_CHANNELS * axes.out_count);
        for (size_t i = 0; i < result.plan.output_bytes[0]; i++)
            cr_assert_eq(((uint8_t *)result.output)[i],
                         expect(&axes, x, w, i / axes.out_count, i % axes.out_count),
                         "%s, rank %u, seed %llu, y[%zu]", gemms->names[g], rank,
                         (unsigned long long)seed, i);
        qk_test_result_deinit(&result);
    }
    guarded_free(x);
    guarded_free(w);
}

Test(conv_axes, four_to_six)
{
    struct qk_test_gemms gemms;
    qk_test_gemms_init(&gemms);
    for (uint32_t rank = 1; rank <= AXES; rank++)
        for (uint64_t seed = 1; seed <= 40; seed++)
            check(&gemms, rank, seed);
    qk_test_gemms_deinit(&gemms);
}
