/* Convolutions by Winograd's algorithm against the naive convolution, byte for byte, and which
 * convolutions it computes. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/dispatch.h"
#include "tests/support/kernels/conv_run.h"

static struct qk_test_gemms gemms; /* those that the CPU has, and that have this algorithm */

static void setup(void)
{
    static const char *const names[] = {"avx2", "avxvnni", "vnni_novbmi", "vnni"};
    gemms.count = 0;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct qk_kernels *kernels = qk_test_kernels_gemm("auto", names[i]);
        if (kernels) {
            gemms.names[gemms.count] = names[i];
            gemms.kernels[gemms.count++] = kernels;
        }
    }
}

static void teardown(void)
{
    qk_test_gemms_deinit(&gemms);
}

TestSuite(conv_winograd, .init = setup, .fini = teardown);

/* Makes igemm's estimate so high, and the cache as large as choice.c lets it be, so that plans take
 * Winograd's algorithm wherever they can. */
static void prefer_winograd(void)
{
    for (size_t i = 0; i < gemms.count; i++) {
        struct qk_conv_tuning *conv = &gemms.kernels[i]->choice.conv;
        conv->main_costs.product_cycles *= 1e4;
        conv->words_costs.product_cycles *= 1e4;
        conv->quads_bytes = 512 * 1024;
    }
}

static struct conv_case square_case(int64_t channels, int64_t rows, int64_t size)
{
    return (struct conv_case){
        .naive = {.images = 1,
                  .channels = channels,
                  .out_channels = rows,
                  .group = 1,
                  .in = {1, size, size},
                  .kernel = {1, 3, 3},
                  .stride = {1, 1, 1},
                  .dilation = {1, 1, 1},
                  .pad_begin = {0, 1, 1},
                  .pad_end = {0, 1, 1},
                  .x_zero_point = 113,
                  .y_zero_point = 120,
                  .x_scale = 0.02F,
                  .y_scale = (float)channels * 0.5F},
        .spatial_rank = 2,
        .w_scale_all = 0.05F,
        .with_bias = true,
        .seed = 11,
    };
}

/* Returns n of the tiles of n x n positions that a kernel computes; 0 if it is another algorithm.
 */
static int tile_of(const char *kernel)
{
    if (strncmp(kernel, "conv_winograd4_", strlen("conv_winograd4_")) == 0)
        return 4;
    return strncmp(kernel, "conv_winograd_", strlen("conv_winograd_")) == 0 ? 2 : 0;
}

/* What a test expects of a plan's kernel, besides a tile. ANY_KERNEL is for plans whose costs no
 * test has set, because they depend on the machine. */
enum { ANY_TILE = -1, ANY_KERNEL = -2 };

static int64_t count_positions(const struct conv_case *test)
{
    int64_t count = 1;
    for (int i = 1; i < 3; i++)
        count *= test->naive.in[i] + test->naive.pad_begin[i] + test->naive.pad_end[i] - 2;
    return count;
}

/* Checks the tile of a plan's kernel. igemm may compute up to three positions by dot products, with
 * an estimate that prefer_winograd does not raise. Only AVX2 has tiles of 2 x 2. VNNI leaves
 * convolutions that would fill its panels of rows only in part to igemm, where tiles of other
 * kernels are smaller. */
static void check_tile(const struct conv_case *test, const char *gemm, const char *kernel, int tile,
                       const char *text)
{
    const int64_t rows = test->naive.out_channels / test->naive.group;
    const int64_t channels = test->naive.channels / test->naive.group;
    const bool avx2 = strcmp(gemm, "avx2") == 0;
    const bool fills =
        strcmp(gemm, "avxvnni") == 0 || (rows >= 30 && (rows + 2) % 16 <= 2 && channels >= 24);
    const int got = tile_of(kernel);
    if (tile == ANY_KERNEL || (strcmp(gemm, "avxvnni") == 0 && count_positions(test) <= 3))
        return;
    if (tile == ANY_TILE && (avx2 || fills))
        cr_expect_neq(got, 0, "%s: %s", text, kernel);
    else if (tile != ANY_TILE && (avx2 || fills || tile == 0))
        cr_expect_eq(got, avx2 || tile == 4 ? tile : 0, "%s: %s", text, kernel);
    cr_expect(avx2 || got != 2, "%s: %s", text, kernel);
}

/* Checks the bytes of a case, and the tile by which Winograd's algorithm computes it, or 0. Its
 * units run in a random order, because they share nothing. */
static void check(struct conv_case test, int tile)
{
    static const int32_t signed_zero = 0, unsigned_zero = 128;
    char text[512];
    if (!test.w_zero_point_all)
        test.w_zero_point_all = test.naive.w_signed ? &signed_zero : &unsigned_zero;
    cr_assert(conv_case_make(&test));
    conv_case_text(&test, text);
    conv_case_expect(&test);
    for (size_t i = 0; i < gemms.count; i++) {
        struct qk_test_result result;
        qk_test_run_shuffled(gemms.kernels[i], &test.call, test.seed, &result);
        cr_assert_eq(result.status, QK_OK, "%s: %s", text, result.error.text);
        check_tile(&test, gemms.names[i], result.plan.kernel, tile, text);
        cr_assert_arr_eq(result.output, test.expected, test.y_bytes, "%s: %s", text,
                         result.plan.kernel);
        qk_test_result_deinit(&result);
    }
    conv_case_check_made(&gemms, &test, text);
    conv_case_deinit(&test);
}

static struct conv_case random_case(uint64_t *lot)
{
    struct conv_case test = square_case(8 + (int64_t)qk_test_random_below(lot, 35),
                                        8 + (int64_t)qk_test_random_below(lot, 30), 1);
    if (qk_test_random_below(lot, 2)) { /* fills panels of 32 rows, all or the last one but two */
        test.naive.channels = 24 + (int64_t)qk_test_random_below(lot, 20);
        test.naive.out_channels = 16 * (2 + (int64_t)qk_test_random_below(lot, 3)) -
                                  (int64_t)qk_test_random_below(lot, 3);
    }
    const int64_t sizes[] = {1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 28, 31, 40, 67, 140};
    const size_t count = sizeof(sizes) / sizeof(sizes[0]);
    test.naive.group = 1 + (int64_t)qk_test_random_below(lot, 2);
    test.naive.channels *= test.naive.group;
    test.naive.out_channels *= test.naive.group;
    test.naive.images = 1 + (int64_t)qk_test_random_below(lot, 2);
    for (int i = 1; i < 3; i++) {
        test.naive.pad_begin[i] = (int64_t)qk_test_random_below(lot, 4);
        test.naive.pad_end[i] = (int64_t)qk_test_random_below(lot, 4);
        const int64_t least = 3 - test.naive.pad_begin[i] - test.naive.pad_end[i];
        test.naive.in[i] = sizes[qk_test_random_below(lot, i == 1 ? count - 3 : count)];
        test.naive.in[i] = test.naive.in[i] < least ? least : test.naive.in[i];
    }
    test.naive.x_signed = qk_test_random_below(lot, 2);
    test.naive.w_signed = qk_test_random_below(lot, 2);
    test.naive.y_signed = qk_test_random_below(lot, 2);
    test.naive.x_zero_point =
        (int32_t)qk_test_random_below(lot, 256) - (test.naive.x_signed ? 128 : 0);
    test.naive.y_zero_point = test.naive.y_signed ? -3 : 120;
    test.x_fill = (enum conv_fill)qk_test_random_below(lot, CONV_FILL_MIXED + 1);
    test.w_fill = (enum conv_fill)qk_test_random_below(lot, CONV_FILL_MIXED + 1);
    test.w_scale_per_channel = qk_test_random_below(lot, 2);
    test.form = qk_test_random_below(lot, 4) == 0 ? CONV_FORM_INTEGER : CONV_FORM_QLINEAR;
    test.seed = *lot | 1;
    return test;
}

Test(conv_winograd, random)
{
    uint64_t lot = 5;
    prefer_winograd();
    for (size_t i = 0; i < 150; i++) {
        const struct conv_case test = random_case(&lot);
        if (qk_test_runs(i))
            check(test, ANY_TILE);
    }
}

/* Returns a case whose sums are as large as they can be, in four ways. */
static struct conv_case greatest_case(int64_t channels, int64_t size, int way)
{
    struct conv_case test = square_case(channels, 32, size);
    test.naive.w_signed = true;
    test.naive.x_zero_point = way & 1 ? 0 : 255;
    test.x_fill = way & 1 ? CONV_FILL_MAX : CONV_FILL_MIN;
    test.w_fill = way & 2 ? CONV_FILL_MAX : CONV_FILL_MIN;
    test.form = CONV_FORM_INTEGER;
    return test;
}

/* With more channels, four times the sums could leave 32 bits. */
Test(conv_winograd, greatest_sums)
{
    prefer_winograd();
    for (int64_t channels = 3640; channels <= 3641; channels++)
        for (int way = 0; way < 4; way++)
            check(greatest_case(channels, 3, way), channels == 3640 ? 2 : 0);
}

/* With larger weights, 64 times the sums could leave 32 bits. Weights of 127 are smaller than those
 * of -128. */
Test(conv_winograd, greatest_sums_of_large_tiles)
{
    prefer_winograd();
    for (int64_t channels = 227; channels <= 228; channels++)
        for (int way = 0; way < 4; way++)
            check(greatest_case(channels, 32, way), channels == 228 && !(way & 2) ? 2 : 4);
}

Test(conv_winograd, leaves_other_convolutions_to_igemm)
{
    static const int32_t one = 1;
    struct conv_case test = square_case(24, 32, 12);
    prefer_winograd();
    check(test, ANY_TILE);
    test.naive.w_signed = true;
    test.w_zero_point_all = &one;
    check(test, 0);
    test = square_case(24, 32, 12);
    test.naive.stride[2] = 2;
    check(test, 0);
    test = square_case(24, 32, 12);
    test.naive.dilation[1] = 2;
    check(test, 0);
    test = square_case(24, 32, 12);
    test.naive.kernel[1] = 5;
    check(test, 0);
    test = square_case(24, 32, 12);
    test.form = CONV_FORM_CHANNELS_LAST;
    check(test, 0);
    check(square_case(4, 16, 12), 0);
}

/* The plan compares both estimates for the shape of x. */
Test(conv_winograd, serves_shapes_that_gain)
{
    struct conv_case test = square_case(128, 128, 32);
    check(test, ANY_TILE);
    test.naive.in[1] = test.naive.in[2] = 1;
    check(test, 0);
}

/* Wide planes are cut into bands of columns, of which the last one may be narrow and then has more
 * segments of y. */
Test(conv_winograd, serves_bands_of_columns)
{
    static const int64_t widths[] = {61, 121, 228, 417};
    for (size_t i = 0; i < sizeof(widths) / sizeof(widths[0]); i++) {
        struct conv_case test = square_case(i == 2 ? 102 : 48, i == 2 ? 80 : 32, widths[i]);
        test.naive.in[1] = 50;
        if (qk_test_runs(i))
            check(test, ANY_KERNEL);
    }
}

/* Rows are padded by whole vectors, which must not reach what lies behind the last row. */
Test(conv_winograd, serves_planes_of_all_sizes)
{
    prefer_winograd();
    for (int64_t height = 1; height <= 20; height++)
        for (int64_t width = 1; width <= 35; width++) {
            struct conv_case test = square_case(24, 30, 1);
            test.naive.in[1] = height;
            test.naive.in[2] = width;
            if (qk_test_runs((size_t)(height * 35 + width)))
                check(test, ANY_TILE);
        }
}
