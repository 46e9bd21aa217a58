/* Convolutions with one channel in a group, against the naive one, byte for byte. Also checks that
 * the depthwise kernel ran. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/kernels/conv_run.h"

static struct qk_test_gemms gemms;

static void setup(void)
{
    qk_test_gemms_init(&gemms);
}

static void teardown(void)
{
    qk_test_gemms_deinit(&gemms);
}

TestSuite(conv_depthwise, .init = setup, .fini = teardown);

static int64_t between(uint64_t *state, int64_t least, int64_t most)
{
    return least + (int64_t)qk_test_random_below(state, (size_t)(most - least + 1));
}

/* Returns a case with types, zero points and scales of conv_case_random, and another geometry.
 * Often the weights need no sums of x. */
static struct conv_case depthwise_case(uint32_t spatial_rank, uint64_t seed)
{
    static const int32_t centres[] = {128, 0};
    struct conv_case test;
    conv_case_random(&test, spatial_rank, seed);
    struct naive_conv *naive = &test.naive;
    if (seed / 8 % 2 == 0)
        test.w_zero_point_all = &centres[naive->w_signed];
    naive->images = 1 + seed % 2;
    naive->group = naive->channels = naive->out_channels = 1 + (int64_t)(seed % 7);
    naive->auto_pad = NAIVE_NOTSET;
    for (int i = 0; i < 3; i++) {
        naive->in[i] = naive->kernel[i] = naive->stride[i] = naive->dilation[i] = 1;
        naive->pad_begin[i] = naive->pad_end[i] = 0;
    }
    return test;
}

/* Checks a case with all backends, and frees it. */
static void check(struct conv_case *test)
{
    struct qk_test_result result;
    char details[512];
    cr_assert(conv_case_make(test), "%s", conv_case_text(test, details));
    conv_case_check_made(&gemms, test, conv_case_text(test, details));
    for (size_t i = 0; i < gemms.count; i++) {
        char expected[32];
        if (strcmp(gemms.names[i], "blas") == 0)
            continue;
        snprintf(expected, sizeof(expected), "conv_depthwise_%s",
                 conv_depthwise_of(gemms.names[i]));
        qk_test_run_shuffled(gemms.kernels[i], &test->call, test->seed, &result);
        cr_expect_str_eq(result.plan.kernel, expected, "%s", conv_case_text(test, details));
        cr_assert_arr_eq(result.output, test->expected, test->y_bytes, "%s",
                         conv_case_text(test, details));
        qk_test_result_deinit(&result);
    }
    conv_case_deinit(test);
}

/* Draws any width and height, and all parameters that change where a quad's bytes lie. Columns may
 * be at most 4 apart. If the axes after this one might be left out, the same holds for this one. */
static void random_axis(struct naive_conv *naive, int i, int64_t most, uint64_t *state)
{
    naive->kernel[i] = between(state, 1, 7);
    naive->stride[i] = between(state, 1, i < 2 && naive->kernel[2] > 1 ? 6 : 4);
    naive->dilation[i] = between(state, 0, 2) == 0 ? between(state, 2, 20) : 1;
    const int64_t span = (naive->kernel[i] - 1) * naive->dilation[i] + 1;
    naive->in[i] = between(state, 1, most);
    naive->pad_begin[i] = between(state, 0, span);
    naive->pad_end[i] = between(state, 0, span);
    if (naive->in[i] + naive->pad_begin[i] + naive->pad_end[i] < span)
        naive->in[i] = span;
}

Test(conv_depthwise, random_planes)
{
    for (uint64_t seed = 1; seed <= 600; seed++) {
        uint64_t state = seed;
        if (!qk_test_runs(seed))
            continue;
        struct conv_case test = depthwise_case(2, seed);
        random_axis(&test.naive, 2, 40, &state);
        random_axis(&test.naive, 1, 30, &state);
        test.naive.out_channels *= between(&state, 1, 2);
        check(&test);
    }
}

Test(conv_depthwise, random_volumes)
{
    for (uint64_t seed = 1; seed <= 100; seed++) {
        uint64_t state = seed;
        struct conv_case test = depthwise_case(3, seed);
        for (int i = 2; i >= 0; i--)
            random_axis(&test.naive, i, 9, &state);
        check(&test);
    }
}

/* Returns whether units copy what they read of channels that are last, which takes short steps. */
static bool has_short_steps(const struct naive_conv *naive)
{
    for (int i = 0; i < 3; i++)
        if (naive->stride[i] > 4 || (naive->kernel[i] - 1) * naive->dilation[i] >= 32)
            return false;
    return true;
}

Test(conv_depthwise, random_channels_last)
{
    for (uint64_t seed = 1; seed <= 160; seed++) {
        uint64_t state = seed;
        if (!qk_test_runs(seed))
            continue;
        struct conv_case test = depthwise_case(1 + seed % 2, seed);
        const int64_t channels = seed % 5 == 0 ? between(&state, 8, 70) : test.naive.channels;
        test.form = CONV_FORM_CHANNELS_LAST;
        test.naive.group = test.naive.channels = channels;
        test.naive.out_channels = channels * between(&state, 1, 2);
        random_axis(&test.naive, 2, 40, &state);
        if (test.spatial_rank == 2)
            random_axis(&test.naive, 1, channels > 7 ? 9 : 30, &state);
        if (has_short_steps(&test.naive))
            check(&test);
        else
            conv_case_deinit(&test);
    }
}

/* Units have some of the rows, and some of the columns. */
Test(conv_depthwise, large_planes_with_channels_last)
{
    const int64_t sizes[][2] = {{1, 13000}, {97, 131}, {5, 2100}, {7000, 2}};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct conv_case test = depthwise_case(2, 3 + i);
        test.form = CONV_FORM_CHANNELS_LAST;
        for (int axis = 1; axis <= 2; axis++) {
            test.naive.in[axis] = sizes[i][axis - 1];
            test.naive.kernel[axis] = 3;
            test.naive.pad_begin[axis] = 2;
            test.naive.pad_end[axis] = 5; /* the last positions read padding alone */
        }
        check(&test);
    }
}

/* Rows end anywhere in a vector, and channels end anywhere in a window of x. */
Test(conv_depthwise, planes_of_every_width)
{
    for (int64_t width = 1; width <= 80; width++)
        for (int64_t kernel = 3; kernel <= 5; kernel += 2)
            for (int64_t stride = 1; stride <= 2; stride++) {
                struct conv_case test = depthwise_case(2, (uint64_t)width);
                for (int i = 1; i < 3; i++) {
                    test.naive.kernel[i] = kernel;
                    test.naive.stride[i] = stride;
                    test.naive.pad_begin[i] = test.naive.pad_end[i] = kernel / 2;
                }
                test.naive.in[1] = 1 + width % 9;
                test.naive.in[2] = width;
                if (qk_test_runs((size_t)(width + kernel + stride)))
                    check(&test);
            }
}

/* A vector holds a channel, or almost. With padding, y is larger. */
Test(conv_depthwise, planes_of_few_bytes)
{
    for (uint64_t seed = 1; seed <= 500; seed++) {
        uint64_t state = seed;
        if (!qk_test_runs(seed))
            continue;
        struct conv_case test = depthwise_case(seed % 5 == 0 ? 3 : 2, seed);
        random_axis(&test.naive, 2, 9, &state);
        random_axis(&test.naive, 1, 9, &state);
        if (seed % 5 == 0) {
            random_axis(&test.naive, 0, 3, &state);
            test.naive.dilation[2] = 1; /* otherwise there are too many quads for some backends */
        }
        if (seed % 25 == 1)
            test.naive.pad_begin[1 + seed % 2] += 150;
        if (seed % 25 == 2)
            test.naive.pad_end[1 + seed % 2] += 150;
        if (seed % 50 == 3)
            test.naive.pad_end[2] += 3000;
        test.naive.out_channels *= between(&state, 1, 2);
        check(&test);
    }
}

/* Kernels have two quads in a row of taps, and rows have one vector or more. The last channels of
 * an image are followed by the first of the next image, or by the end of x. */
Test(conv_depthwise, large_kernels_over_long_rows)
{
    for (uint64_t seed = 1; seed <= 160; seed++) {
        uint64_t state = seed;
        if (!qk_test_runs(seed))
            continue;
        struct conv_case test = depthwise_case(seed % 5 == 0 ? 3 : 2, seed);
        struct naive_conv *naive = &test.naive;
        const int64_t kernel = seed / 16 % 2 == 0 ? 5 : 7;
        for (int i = 1; i < 3; i++) {
            naive->kernel[i] = kernel;
            naive->stride[i] = between(&state, 1, 2);
            naive->in[i] = between(&state, i == 1 ? 1 : 9, i == 1 ? 40 : 80);
            naive->pad_begin[i] = between(&state, 0, kernel);
            naive->pad_end[i] = kernel - 1;
        }
        if (seed % 5 == 0) {
            naive->in[0] = 3;
            naive->pad_begin[0] = 1;
            naive->stride[0] = 2;
        }
        naive->out_channels *= between(&state, 1, 2);
        check(&test);
    }
}

/* Many output channels read each channel of x. A unit may have only some of them. */
Test(conv_depthwise, many_outputs_of_a_channel)
{
    for (int64_t kernel = 1; kernel <= 5; kernel++) {
        struct conv_case test = depthwise_case(2, (uint64_t)kernel);
        test.naive.group = test.naive.channels = 2;
        test.naive.out_channels = 2 * (40 + 20 * kernel);
        test.naive.in[1] = 30;
        test.naive.in[2] = 60;
        test.naive.kernel[1] = test.naive.kernel[2] = kernel;
        check(&test);
    }
}

/* Planes are larger than a unit, which has a band of rows or parts of rows. */
Test(conv_depthwise, large_planes)
{
    static const int64_t sizes[][2] = {{150, 130}, {3, 7000}, {40, 1500}, {1, 20000}};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        for (int64_t stride = 1; stride <= 2; stride++) {
            struct conv_case test = depthwise_case(2, 5 + i);
            test.naive.group = test.naive.channels = test.naive.out_channels = 2;
            for (int axis = 1; axis < 3; axis++) {
                test.naive.in[axis] = sizes[i][axis - 1];
                test.naive.kernel[axis] = 5;
                test.naive.stride[axis] = stride;
                test.naive.pad_begin[axis] = test.naive.pad_end[axis] = 2;
            }
            check(&test);
        }
}

/* Rows of taps are several quads, and there are so many rows that a unit has parts of some. w has
 * zero points or not, because the products differ. */
Test(conv_depthwise, large_kernels)
{
    static const int64_t kernels[][2] = {{5, 5}, {13, 13}, {31, 31}, {1, 900}};
    static const int32_t none = 0;
    for (size_t i = 0; i < 2 * sizeof(kernels) / sizeof(kernels[0]); i++) {
        struct conv_case test = depthwise_case(2, 2 + i);
        test.naive.group = test.naive.channels = test.naive.out_channels = 2;
        test.naive.w_signed = true;
        test.w_zero_point_all = i % 2 == 0 ? &none : NULL;
        for (int axis = 1; axis < 3; axis++) {
            test.naive.kernel[axis] = kernels[i / 2][axis - 1];
            test.naive.in[axis] = axis == 2 ? 120 : 40;
            test.naive.pad_begin[axis] = test.naive.kernel[axis] / 2;
            test.naive.pad_end[axis] = test.naive.kernel[axis] / 2;
        }
        check(&test);
    }
}

/* Small planes with a stride. Each channel has several, and some of these are padding. */
Test(conv_depthwise, strided_planes_behind_one_another)
{
    for (int64_t width = 2; width <= 16; width++) {
        struct conv_case test = depthwise_case(3, (uint64_t)width);
        test.naive.in[0] = 3;
        test.naive.pad_begin[0] = test.naive.pad_end[0] = 1;
        for (int axis = 1; axis < 3; axis++) {
            test.naive.in[axis] = width;
            test.naive.kernel[axis] = 3;
            test.naive.stride[axis] = 2;
            test.naive.pad_begin[axis] = test.naive.pad_end[axis] = 1;
        }
        check(&test);
    }
}

/* y has one row. A next row would read beyond all memory. */
Test(conv_depthwise, huge_strides_of_rows)
{
    for (int64_t rows = 3; rows <= 11; rows += 8) {
        struct conv_case test = depthwise_case(2, 12);
        test.naive.in[1] = rows;
        test.naive.in[2] = 8;
        test.naive.kernel[1] = test.naive.kernel[2] = 3;
        test.naive.stride[1] = INT32_MAX;
        check(&test);
    }
}

/* Axes of one element are left out. Columns are then the last axis that has more. */
Test(conv_depthwise, columns_along_any_axis)
{
    for (int axis = 0; axis < 3; axis++)
        for (int64_t kernel = 1; kernel <= 31; kernel += 5) {
            struct conv_case test = depthwise_case(3, (uint64_t)kernel);
            test.naive.in[axis] = 400;
            test.naive.kernel[axis] = kernel;
            test.naive.pad_begin[axis] = kernel / 2;
            check(&test);
        }
}
