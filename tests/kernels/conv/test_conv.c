/* onnx.QLinearConv and its other forms against the naive convolution, byte for byte: random
 * geometries, and units. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/conv/conv.h"
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

TestSuite(conv, .init = setup, .fini = teardown);

/* ---- Random geometries ------------------------------------------------------------------- */

/* The most terms of the naive convolution, so that no case takes long. */
#define TERMS_MAX 300000

static bool check_random(uint32_t spatial_rank, enum conv_form form, uint64_t seed)
{
    struct conv_case test;
    char text[600];
    char details[512];
    conv_case_random(&test, spatial_rank, seed);
    test.form = form;
    bool possible = conv_case_make(&test);
    snprintf(text, sizeof(text), "seed %llu: %s", (unsigned long long)seed,
             conv_case_text(&test, details));
    bool small =
        possible && (test.naive.out_channels == 0 ||
                     test.y_bytes * (test.w_bytes / (size_t)test.naive.out_channels) <= TERMS_MAX);
    if (small) {
        conv_case_check_made(&gemms, &test, text);
    } else if (!possible) {
        struct qk_test_result result;
        qk_test_run(gemms.kernels[0], &test.call, &result);
        cr_assert_eq(result.status, QK_INVALID, "%s", text);
        cr_assert_eq(strncmp(result.error.text, "x: ", 3), 0, "%s: %s", result.error.text, text);
        qk_test_result_deinit(&result);
    }
    conv_case_deinit(&test);
    return small;
}

static void check_many(uint32_t spatial_rank, enum conv_form form, uint64_t seed, size_t wanted)
{
    size_t done = 0;
    for (size_t i = 0; done < wanted; i++) {
        cr_assert_lt(i, 4 * wanted, "only %zu of %zu cases have an output", done, wanted);
        done += !qk_test_runs(done) || check_random(spatial_rank, form, seed + i);
    }
}

Test(conv, random_1d)
{
    check_many(1, CONV_FORM_QLINEAR, 1000000, 1000);
}

Test(conv, random_2d)
{
    check_many(2, CONV_FORM_QLINEAR, 2000000, 1000);
}

Test(conv, random_3d)
{
    check_many(3, CONV_FORM_QLINEAR, 3000000, 700);
}

Test(conv, random_channels_last)
{
    check_many(1, CONV_FORM_CHANNELS_LAST, 4000000, 200);
    check_many(2, CONV_FORM_CHANNELS_LAST, 5000000, 400);
    check_many(3, CONV_FORM_CHANNELS_LAST, 6000000, 150);
}

Test(conv, random_integer)
{
    check_many(1, CONV_FORM_INTEGER, 7000000, 200);
    check_many(2, CONV_FORM_INTEGER, 8000000, 400);
    check_many(3, CONV_FORM_INTEGER, 9000000, 150);
}

/* ---- Units ------------------------------------------------------------------------------- */

/* Has several tiles in rows, groups and images, and several K blocks. */
static struct conv_case tiled_case(void)
{
    return (struct conv_case){
        .naive = {.images = 2,
                  .channels = 2 * 70,
                  .out_channels = 2 * (256 + 3),
                  .group = 2,
                  .in = {1, 13, 27},
                  .kernel = {1, 3, 3},
                  .stride = {1, 1, 1},
                  .dilation = {1, 1, 1},
                  .pad_begin = {0, 1, 1},
                  .pad_end = {0, 1, 1},
                  .x_zero_point = 100,
                  .y_zero_point = 7,
                  .x_scale = 0.02F,
                  .y_scale = 40},
        .spatial_rank = 2,
        .w_scale_all = 0.5F,
        .w_zero_point_per_channel = true,
        .w_scale_per_channel = true,
        .with_bias = true,
        .seed = 77,
    };
}

/* Has many positions, in more than one tile of columns. */
static struct conv_case wide_case(void)
{
    struct conv_case test = tiled_case();
    test.naive.images = 1;
    test.naive.channels = test.naive.out_channels = 2;
    test.naive.in[1] = 3;
    test.naive.in[2] = 3 * 2048 / 2;
    return test;
}

/* In `orders` random orders. */
static void check_shuffled_form(struct conv_case test, enum conv_form form, uint64_t orders,
                                size_t units_least)
{
    test.form = form;
    cr_assert(conv_case_make(&test));
    conv_case_expect(&test);
    for (size_t i = 0; i < gemms.count; i++) {
        for (uint64_t seed = 1; seed <= orders; seed++) {
            struct qk_test_result result;
            qk_test_run_shuffled(gemms.kernels[i], &test.call, seed, &result);
            cr_assert_eq(result.status, QK_OK, "%s", result.error.text);
            cr_assert_geq(result.plan.unit_count, units_least, "%s: %zu", result.plan.kernel,
                          result.plan.unit_count);
            cr_assert_arr_eq(result.output, test.expected, test.y_bytes, "%s", result.plan.kernel);
            qk_test_result_deinit(&result);
        }
    }
    conv_case_deinit(&test);
}

/* In each form. `units_least` is for the first. */
static void check_shuffled(struct conv_case test, size_t units_least)
{
    check_shuffled_form(test, CONV_FORM_QLINEAR, 2, units_least);
    check_shuffled_form(test, CONV_FORM_CHANNELS_LAST, 1, 1);
    check_shuffled_form(test, CONV_FORM_INTEGER, 1, 1);
}

/* Has rows of quads that are so long that they are cut, and a kernel that is as long. */
static struct conv_case long_case(void)
{
    struct conv_case test = wide_case();
    test.naive.channels = 40;
    test.naive.in[2] = 9000;
    test.naive.in[1] = test.naive.kernel[1] = 1;
    test.naive.pad_begin[1] = test.naive.pad_end[1] = 0;
    return test;
}

Test(conv, units_in_any_order)
{
    check_shuffled(tiled_case(), 4);
    check_shuffled(wide_case(), 1);
    check_shuffled(long_case(), 2);
}

/* The sums are so deep that not even the slabs of a few positions fit at once. */
Test(conv, sums_in_parts)
{
    for (int64_t stride = 1; stride <= 2; stride++) {
        struct conv_case test = tiled_case();
        test.naive.images = 1;
        test.naive.group = 1;
        test.naive.channels = 3001;
        test.naive.out_channels = 37;
        test.naive.in[1] = 3;
        test.naive.in[2] = stride == 1 ? 5 : 70;
        test.naive.stride[2] = stride;
        conv_case_check(&gemms, &test);
        test = tiled_case();
        test.naive.images = 1;
        test.naive.group = 1;
        test.naive.channels = 700;
        test.naive.out_channels = 5;
        test.naive.in[1] = 1;
        test.naive.in[2] = 400;
        test.naive.kernel[1] = 1;
        test.naive.kernel[2] = 30;
        test.naive.stride[2] = 7 * stride;
        test.naive.dilation[2] = 3;
        test.naive.pad_begin[1] = test.naive.pad_end[1] = 0;
        conv_case_check(&gemms, &test);
    }
}

/* There are so many channels for so few positions that a slab is mostly padding to a cache line. */
Test(conv, slabs_of_few_quads)
{
    for (int64_t images = 1; images <= 3; images += 2)
        for (int64_t depth = 30000; depth <= 240000; depth *= 2) {
            struct conv_case test = tiled_case();
            test.naive.images = images;
            test.naive.group = 1;
            test.naive.channels = depth;
            test.naive.out_channels = 2;
            test.naive.in[1] = test.naive.kernel[1] = 1;
            test.naive.in[2] = test.naive.kernel[2] = 1;
            test.naive.pad_begin[1] = test.naive.pad_end[1] = 0;
            test.naive.pad_begin[2] = test.naive.pad_end[2] = 0;
            conv_case_check(&gemms, &test);
        }
}

Test(conv, tiles_of_every_width)
{
    for (int64_t width = 1; width <= 40; width++) {
        struct conv_case test = tiled_case();
        test.naive.images = 1;
        test.naive.channels = 2 * 3;
        test.naive.out_channels = 2 * 5;
        test.naive.in[1] = 2;
        test.naive.in[2] = width;
        conv_case_check(&gemms, &test);
    }
}

/* One group with one channel. Rows are long, and units must still be short. */
static struct conv_case line_case(int64_t out_channels, int64_t length, int64_t kernel)
{
    struct conv_case test = wide_case();
    test.naive.images = test.naive.channels = test.naive.group = 1;
    test.naive.out_channels = out_channels;
    test.naive.in[1] = test.naive.kernel[1] = 1;
    test.naive.pad_begin[1] = test.naive.pad_end[1] = 0;
    test.naive.in[2] = length;
    test.naive.kernel[2] = kernel;
    test.naive.stride[2] = test.naive.dilation[2] = 1;
    test.naive.pad_begin[2] = test.naive.pad_end[2] = kernel / 2;
    return test;
}

/* Kernels have as many taps as are packed together, and more, with few and many output channels. */
Test(conv, weights_of_many_taps)
{
    static const int64_t widths[] = {6, 7, 9, 10, 13};
    for (size_t i = 0; i < sizeof(widths) / sizeof(widths[0]); i++)
        for (int64_t rows = 3; rows <= 35; rows += 16) {
            struct conv_case test = line_case(rows, widths[i] + 1, widths[i]);
            test.naive.channels = 64 + 9;
            test.naive.in[1] = test.naive.kernel[1] = 7;
            conv_case_check(&gemms, &test);
        }
}

/* Few or many positions remain after the last whole vector. Sums are deep, or the positions are at
 * the end of sums in parts. */
Test(conv, positions_behind_vectors)
{
    for (int64_t kernel = 1; kernel <= 3; kernel += 2)
        for (int64_t width = 1; width <= 36; width++) {
            struct conv_case test = line_case(13, width, kernel);
            test.naive.channels = width % 2 == 0 ? 299 : 640;
            test.naive.images = 1 + width % 3 * (width < 4);
            conv_case_check(&gemms, &test);
        }
    struct conv_case test = line_case(7, 515, 1);
    test.naive.channels = 10000;
    conv_case_check(&gemms, &test);
}

/* Quads hold neighbouring taps that are far apart in x. The first and last taps read padding. */
Test(conv, strides_that_skip)
{
    static const int64_t strides[] = {3, 5, 16, 31, 160};
    for (size_t i = 0; i < sizeof(strides) / sizeof(strides[0]); i++)
        for (int64_t kernel = 2; kernel <= 9; kernel++) {
            struct conv_case test = line_case(6, strides[i] * 69 + kernel % 4, kernel);
            test.naive.channels = 1 + kernel % 2;
            test.naive.in[1] = 3;
            test.naive.kernel[1] = 2;
            test.naive.stride[2] = strides[i];
            test.naive.x_signed = kernel & 1;
            test.naive.pad_begin[2] = kernel * (strides[i] % 2);
            test.naive.pad_end[2] = kernel * 2;
            conv_case_check(&gemms, &test);
        }
}

/* The lanes of a vector are rows then, and the sums of a single position are dot products. Some
 * panels have wide weights. */
Test(conv, planes_of_one_position)
{
    static const enum conv_fill fills[] = {CONV_FILL_SMALL, CONV_FILL_MIXED, CONV_FILL_RANDOM};
    for (int64_t channels = 1; channels <= 300; channels += 1 + channels / 6)
        for (int64_t kernel = 1; kernel <= 3; kernel += 2) {
            struct conv_case test = line_case(1 + channels * 7 % 153, kernel, kernel);
            test.w_fill = fills[channels % 3];
            test.naive.channels = channels;
            test.naive.images = 1 + channels % 4 * (channels % 3 == 0);
            test.naive.pad_begin[2] = test.naive.pad_end[2] = 0;
            test.naive.x_signed = channels & 1;
            test.naive.w_signed = channels & 2;
            test.naive.y_signed = kernel == 3;
            test.naive.y_scale = (float)channels;
            conv_case_check(&gemms, &test);
        }
}

/* Small planes of several images share tiles. Planes have one element or more, with padding that
 * the images share or not. The last unit has fewer images than the others. */
Test(conv, images_share_tiles)
{
    for (int64_t size = 1; size <= 9; size += 2)
        for (int64_t images = 2; images <= 83; images += 27)
            for (int64_t kind = 0; kind < 6; kind++) {
                struct conv_case test = tiled_case();
                test.naive.images = images;
                test.naive.channels = 2 * 9;
                test.naive.out_channels = 2 * 21;
                test.naive.in[1] = size;
                test.naive.in[2] = kind == 5 ? 1 : size;
                test.naive.kernel[1] = kind == 0 ? 1 : 3;
                test.naive.kernel[2] = kind <= 1 || kind == 5 ? 1 : 3;
                test.naive.stride[1] = test.naive.stride[2] = kind == 4 ? 2 : 1;
                test.naive.pad_begin[1] = test.naive.pad_end[1] = kind == 0 ? 0 : 1;
                test.naive.pad_begin[2] = kind <= 1 || kind == 5 ? 0 : 2;
                test.naive.pad_end[2] = kind <= 1 || kind == 5 ? 0 : kind == 3 ? 2 : 1;
                if (!qk_test_runs((size_t)(size + images + kind)))
                    continue;
                check_shuffled_form(test, CONV_FORM_QLINEAR, 1, 1);
                if (kind % 3 == 0 && images < 83) { /* the forms share what else differs */
                    check_shuffled_form(test, CONV_FORM_CHANNELS_LAST, 1, 1);
                    check_shuffled_form(test, CONV_FORM_INTEGER, 1, 1);
                }
            }
}

/* Returns true for backends whose units depend on what vectors do. */
static bool has_vectors(const char *gemm)
{
    return strcmp(gemm, "blas") != 0 && strcmp(gemm, "scalar") != 0;
}

static void check_cost(struct conv_case test, uint64_t most_ns)
{
    cr_assert(conv_case_make(&test));
    for (size_t i = 0; i < gemms.count; i++) {
        struct qk_test_result result;
        if (!has_vectors(gemms.names[i]))
            continue;
        qk_test_run(gemms.kernels[i], &test.call, &result);
        cr_expect_leq(result.plan.unit_cost_ns, most_ns, "%s: %llu ns", gemms.names[i],
                      (unsigned long long)result.plan.unit_cost_ns);
        qk_test_result_deinit(&result);
    }
    conv_case_deinit(&test);
}

Test(conv, units_are_short)
{
    static const int64_t lengths[] = {1, 33, 1000, 9000};
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++)
        check_shuffled(line_case(32, lengths[i], 31), 1);
    check_shuffled(line_case(33, 2000, 9), 1);
    check_cost(line_case(32, 60000, 31), 1000000);
    check_cost(line_case(1, 1000000, 31), 1000000);
    struct conv_case test = line_case(32, 60, 31);
    test.naive.in[1] = test.naive.kernel[1] = 200;
    check_shuffled(test, 1);
    check_cost(test, 1000000);
}

/* Positions along one axis are lanes, whichever axis it is. */
Test(conv, axes_of_one_element_make_no_units)
{
    for (size_t axis = 0; axis < 3; axis++) {
        struct conv_case test = line_case(8, 1, 1);
        test.spatial_rank = 3;
        test.naive.channels = 8;
        test.naive.in[0] = test.naive.in[1] = test.naive.in[2] = 1;
        test.naive.in[axis] = 500;
        test.naive.kernel[axis] = 9;
        check_shuffled(test, 1);
        cr_assert(conv_case_make(&test));
        for (size_t i = 0; i < gemms.count; i++) {
            struct qk_test_result result;
            if (!has_vectors(gemms.names[i]))
                continue;
            qk_test_run(gemms.kernels[i], &test.call, &result);
            cr_expect_leq(result.plan.unit_count, 4, "%s: %zu", gemms.names[i],
                          result.plan.unit_count);
            qk_test_result_deinit(&result);
        }
        conv_case_deinit(&test);
    }
}

Test(conv, images_of_few_positions_make_no_units)
{
    struct conv_case test = line_case(256, 1, 1);
    test.naive.images = 200;
    test.naive.channels = 64;
    cr_assert(conv_case_make(&test));
    for (size_t i = 0; i < gemms.count; i++) {
        struct qk_test_result result;
        if (!has_vectors(gemms.names[i]))
            continue;
        qk_test_run(gemms.kernels[i], &test.call, &result);
        cr_expect_leq(result.plan.unit_count, 4, "%s: %zu", gemms.names[i], result.plan.unit_count);
        qk_test_result_deinit(&result);
    }
    conv_case_deinit(&test);
}

struct worker {
    const struct conv_run *run;
    size_t first;
};

/* Runs every second unit. */
static void *work(void *argument)
{
    const struct worker *worker = argument;
    for (size_t unit = worker->first; unit < worker->run->plan.unit_count; unit += 2)
        conv_run_units(worker->run, unit, unit + 1);
    return NULL;
}

Test(conv, two_threads_share_a_plan)
{
    struct conv_case test = tiled_case();
    struct conv_run run;
    pthread_t threads[2];
    cr_assert(conv_case_make(&test));
    conv_case_expect(&test);
    for (size_t g = 0; g < gemms.count; g++) {
        conv_run_init(&run, gemms.kernels[g], &test, gemms.names[g]);
        struct worker workers[] = {{&run, 0}, {&run, 1}};
        for (int i = 0; i < 2; i++)
            cr_assert_eq(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
        for (int i = 0; i < 2; i++)
            pthread_join(threads[i], NULL);
        conv_run_check(&run, &test, gemms.names[g]);
    }
    conv_case_deinit(&test);
}

Test(conv, unaligned_inputs)
{
    struct conv_case test = tiled_case();
    struct qk_test_result result;
    cr_assert(conv_case_make(&test));
    conv_case_expect(&test);
    for (size_t i = 0; i < test.call.op->input_count; i++) {
        struct qk_tensor *tensor = &test.call.inputs[i];
        size_t bytes;
        cr_assert(qk_type_bytes(tensor->type, tensor->count, &bytes));
        uint8_t *moved = malloc(bytes + 1);
        cr_assert_not_null(moved);
        memcpy(moved + 1, tensor->data, bytes);
        tensor->data = moved + 1;
    }
    for (size_t g = 0; g < gemms.count; g++) {
        qk_test_run(gemms.kernels[g], &test.call, &result);
        cr_assert_eq(result.status, QK_OK, "%s", result.error.text);
        cr_assert_arr_eq(result.output, test.expected, test.y_bytes, "%s", gemms.names[g]);
        qk_test_result_deinit(&result);
    }
    for (size_t i = 0; i < test.call.op->input_count; i++)
        free((uint8_t *)(uintptr_t)test.call.inputs[i].data - 1);
    conv_case_deinit(&test);
}

static void expect_kernel(const struct qk_kernels *kernels, struct conv_case test,
                          const char *expected)
{
    struct qk_test_result result;
    cr_assert(conv_case_make(&test));
    qk_test_run(kernels, &test.call, &result);
    cr_expect_str_eq(result.plan.kernel, expected);
    cr_expect_gt(result.plan.unit_cost_ns, 0);
    qk_test_result_deinit(&result);
    conv_case_deinit(&test);
}

Test(conv, names_its_kernel_and_cost)
{
    struct conv_case depthwise = tiled_case();
    depthwise.naive.group = depthwise.naive.channels;
    depthwise.naive.out_channels = depthwise.naive.channels;
    /* There are so few rows, and the kernel is so wide, that tiles would be mostly empty, or there
     * would be too many slabs. */
    struct conv_case wide = line_case(8, 700, 301);
    wide.naive.channels = 8;
    check_shuffled(wide, 1);
    for (size_t i = 0; i < gemms.count; i++) {
        const bool blas = strcmp(gemms.names[i], "blas") == 0;
        char expected[32];
        snprintf(expected, sizeof(expected), "conv_%s", blas ? "sgemm" : gemms.names[i]);
        expect_kernel(gemms.kernels[i], tiled_case(), expected);
        if (strcmp(gemms.names[i], "amx") == 0)
            expect_kernel(gemms.kernels[i], wide, "conv_vnni");
        if (!blas)
            snprintf(expected, sizeof(expected), "conv_depthwise_%s",
                     conv_depthwise_of(gemms.names[i]));
        expect_kernel(gemms.kernels[i], depthwise, expected);
    }
}

/* Making the slabs of few output channels takes so long that only bands of positions can be shared.
 */
Test(conv, few_channels_are_shared_by_bands)
{
    struct conv_case test = tiled_case();
    test.naive.images = test.naive.group = 1;
    test.naive.channels = 16;
    test.naive.out_channels = 32;
    test.naive.in[1] = test.naive.in[2] = 32;
    test.naive.stride[1] = test.naive.stride[2] = 2;
    cr_assert(conv_case_make(&test));
    for (size_t i = 0; i < gemms.count; i++) {
        struct qk_test_result result;
        if (strcmp(gemms.names[i], "avx2") != 0)
            continue;
        qk_test_run(gemms.kernels[i], &test.call, &result);
        cr_expect_eq(result.plan.unit_count, 2, "%zu", result.plan.unit_count);
        qk_test_result_deinit(&result);
    }
    conv_case_deinit(&test);
}
