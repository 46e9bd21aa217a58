/* onnx.QLinearConv: sums of any depth must be exact modulo 2^32, and rounding must follow the
 * definition exactly. */
#include "tests/support/kernels/conv_run.h"

#include <criterion/criterion.h>
#include <math.h>

static struct qk_test_gemms gemms;

static void setup(void)
{
    qk_test_gemms_init(&gemms);
}

static void teardown(void)
{
    qk_test_gemms_deinit(&gemms);
}

TestSuite(conv_sums, .init = setup, .fini = teardown);

/* ---- Exact sums -------------------------------------------------------------------------- */

/* Returns a case with sums of `depth` terms, three channels, and more positions than a vector
 * has. */
static struct conv_case deep_case(int64_t depth, int types)
{
    return (struct conv_case){
        .naive = {.images = 1,
                  .channels = depth,
                  .out_channels = 3,
                  .group = 1,
                  .in = {1, 1, 21},
                  .kernel = {1, 1, 1},
                  .stride = {1, 1, 1},
                  .dilation = {1, 1, 1},
                  .x_signed = types & 1,
                  .w_signed = types & 2,
                  .y_signed = types & 4,
                  .x_scale = 1,
                  .y_scale = 1},
        .spatial_rank = 1,
        .w_scale_all = 1,
        .with_bias = true,
        .seed = (uint64_t)depth * 8 + (uint64_t)types + 1,
    };
}

/* Makes the last term odd, so that a sum above 2^24 cannot be rounded unnoticed to a multiple of
 * two. */
static void make_odd(struct conv_case *test)
{
    const struct naive_conv *naive = &test->naive;
    const int64_t last = naive->channels - 1;
    for (int64_t p = 0; p < naive->in[2]; p++)
        test->x[last * naive->in[2] + p] |= 1;
    for (int64_t m = 0; m < naive->out_channels; m++) {
        uint8_t *w = &test->w[m * naive->channels + last];
        *w = (uint8_t)((*w & 0xfe) | (~naive->w_zero_point[m] & 1));
    }
}

/* Makes the sum itself visible, because the bias cancels all but its low bits. */
static void check_low_bits(struct conv_case *test)
{
    char text[512];
    cr_assert(conv_case_make(test));
    make_odd(test);
    struct naive_conv *naive = &test->naive;
    const int64_t positions = naive->in[2];
    for (int64_t m = 0; m < naive->out_channels; m++) {
        uint32_t sum = 0;
        for (int64_t k = 0; k < naive->channels; k++) {
            uint8_t x_byte = test->x[k * positions];
            uint8_t w_byte = test->w[m * naive->channels + k];
            int32_t x = (naive->x_signed ? (int8_t)x_byte : x_byte) - naive->x_zero_point;
            int32_t w = (naive->w_signed ? (int8_t)w_byte : w_byte) - naive->w_zero_point[m];
            sum += (uint32_t)(x * w);
        }
        test->bias[m] = (int32_t)(7 - sum); /* y is 7 at position 0 */
    }
    conv_case_text(test, text);
    conv_case_check_made(&gemms, test, text);
    for (int64_t m = 0; m < naive->out_channels; m++)
        cr_assert_eq(test->expected[m * positions], 7, "%s", text);
    conv_case_deinit(test);
}

/* Checks all extremes of x and w, for depths around that of a block. */
static void check_corners(int64_t depth_first, int types, int32_t x_zero_point,
                          int32_t w_zero_point)
{
    for (int64_t depth = depth_first; depth < depth_first + 4; depth++) {
        for (int fill = 0; fill < 4; fill++) {
            struct conv_case test = deep_case(depth, types);
            test.x_fill = fill & 1 ? CONV_FILL_MAX : CONV_FILL_MIN;
            test.w_fill = fill & 2 ? CONV_FILL_MAX : CONV_FILL_MIN;
            test.naive.x_zero_point = x_zero_point;
            test.w_zero_point_all = &w_zero_point;
            check_low_bits(&test);
        }
    }
}

/* 1024 * -128 * -128 is 2^24, the largest sum that a float must hold. */
Test(conv_sums, boundary_of_exactness)
{
    check_corners(1023, 7, 0, 0);
    check_corners(1023, 0, 128, 128);
}

/* 514 * 128 * 255 is the largest sum below 2^24 for weights up to 255 from their zero point. */
Test(conv_sums, boundary_with_far_zero_points)
{
    for (int zero_points = 0; zero_points < 4; zero_points++) {
        check_corners(513, 0, zero_points & 1 ? 255 : 0, zero_points & 2 ? 255 : 0);
        check_corners(513, 7, zero_points & 1 ? 127 : -128, zero_points & 2 ? 127 : -128);
    }
}

Test(conv_sums, deep_sums)
{
    static const int64_t depths[] = {513, 1024, 1025, 1541, 2048, 4096, 5000};
    for (size_t i = 0; i < sizeof(depths) / sizeof(depths[0]); i++) {
        for (int types = 0; types < 8; types++) {
            struct conv_case test = deep_case(depths[i], types);
            test.w_zero_point_per_channel = types & 4;
            check_low_bits(&test);
        }
    }
}

Test(conv_sums, sums_that_wrap)
{
    /* 33026 * 255 * 255 > 2^31, and 66052 * 255 * 255 > 2^32. */
    static const int64_t depths[] = {33025, 33026, 33027, 40000, 66100};
    for (size_t i = 0; i < sizeof(depths) / sizeof(depths[0]); i++) {
        for (int types = 0; types < 8; types++) {
            struct conv_case test = deep_case(depths[i], types);
            test.x_fill = test.w_fill = CONV_FILL_MAX;
            test.naive.x_zero_point = types & 1 ? -128 : 0;
            test.w_zero_point_per_channel = true;
            check_low_bits(&test);
        }
    }
}

/* ---- Scales and rounding ----------------------------------------------------------------- */

/* Returns a case with x of 0..255 minus 128, times 1 for each of two channels. */
static struct conv_case ramp_case(int types)
{
    return (struct conv_case){
        .naive = {.images = 1,
                  .channels = 1,
                  .out_channels = 2,
                  .group = 1,
                  .in = {1, 1, 256},
                  .kernel = {1, 1, 1},
                  .stride = {1, 1, 1},
                  .dilation = {1, 1, 1},
                  .x_signed = types & 1,
                  .w_signed = types & 2,
                  .y_signed = types & 4,
                  .x_zero_point = types & 1 ? 0 : 128,
                  .x_scale = 1,
                  .y_scale = 1},
        .spatial_rank = 1,
        .w_scale_all = 1,
        .with_bias = true,
        .seed = 1,
    };
}

static void check_ramp(struct conv_case *test)
{
    char text[512];
    cr_assert(conv_case_make(test));
    for (int i = 0; i < 256; i++)
        test->x[i] = (uint8_t)i;
    for (int m = 0; m < 2; m++) {
        test->w[m] = (uint8_t)(test->w_zero_point[m] + 1);
        test->bias[m] = m; /* so that odd and even sums meet each zero point */
    }
    conv_case_check_made(&gemms, test, conv_case_text(test, text));
    conv_case_deinit(test);
}

Test(conv_sums, ties_to_even_before_the_zero_point)
{
    for (int types = 0; types < 8; types++) {
        for (int zero_point = 0; zero_point < 256; zero_point += 17) {
            struct conv_case test = ramp_case(types);
            test.naive.y_zero_point = zero_point - (types & 4 ? 128 : 0);
            test.naive.x_scale = 0.5F;
            check_ramp(&test);
        }
    }
}

/* Numerics facts 3.3: 0.5 with zero point 1 gives 1, 1.5 gives 3, 2.5 gives 3. */
Test(conv_sums, ties_known)
{
    static const uint8_t expected[] = {1, 1, 2, 3, 3, 3};
    struct conv_case test = ramp_case(1);
    struct qk_test_result result;
    test.naive.x_scale = 0.5F;
    test.naive.y_zero_point = 1;
    cr_assert(conv_case_make(&test));
    for (int i = 0; i < 6; i++)
        test.x[i] = (uint8_t)i;
    test.w[0] = (uint8_t)(test.w_zero_point[0] + 1);
    test.bias[0] = 0;
    qk_test_run(gemms.kernels[gemms.count - 1], &test.call, &result);
    cr_assert_eq(result.status, QK_OK);
    cr_expect_arr_eq(result.output, expected, sizeof(expected));
    qk_test_result_deinit(&result);
    conv_case_deinit(&test);
}

Test(conv_sums, scales_of_every_kind)
{
    const float scales[] = {0,       -0.0F,           1,     -1,     0.1F,     -0.75F,    1e-45F,
                            -1e-40F, 1.17549435e-38F, 3e38F, -3e38F, INFINITY, -INFINITY, NAN};
    const size_t count = sizeof(scales) / sizeof(scales[0]);
    for (size_t i = 0; i < count * count * count; i++) {
        struct conv_case test = ramp_case((int)(i % 8));
        test.naive.x_scale = scales[i % count];
        test.w_scale_all = scales[i / count % count];
        test.naive.y_scale = scales[i / count / count];
        test.naive.y_zero_point = test.naive.y_signed ? -3 : 3;
        /* Tries each pair of scales, and a third of the triples. */
        if ((i + i / count + i / count / count) % 3 == 0 && qk_test_runs(i))
            check_ramp(&test);
    }
}

Test(conv_sums, sums_beyond_a_float_round_once)
{
    /* Sums near 2^24 and 2^30 lose bits in fl32(acc). The bias makes these sums. */
    for (int shift = 24; shift < 31; shift++) {
        struct conv_case test = ramp_case(4);
        char text[512];
        test.naive.y_scale = (float)(1 << (shift - 5));
        cr_assert(conv_case_make(&test));
        for (int m = 0; m < 2; m++)
            test.bias[m] = (1 << shift) + ((3 + m) << (shift - 24)) + m;
        conv_case_check_made(&gemms, &test, conv_case_text(&test, text));
        conv_case_deinit(&test);
    }
}
