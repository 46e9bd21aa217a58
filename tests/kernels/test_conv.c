/* onnx.QLinearConv against the naive convolution, byte for byte. */
#include "kernels/conv/conv.h"
#include "tests/support/conv_case.h"
#include "tests/support/qk_test.h"

#include <criterion/criterion.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GUARD_BYTES 64
#define GUARD 0x5a

static struct qk_kernels *kernels;

static void setup(void)
{
    kernels = qk_test_kernels("auto");
}

static void teardown(void)
{
    qk_kernels_destroy(kernels);
}

TestSuite(conv, .init = setup, .fini = teardown);

/* ---- One case ---------------------------------------------------------------------------- */

/* 64-byte aligned, with a guard behind it. */
static uint8_t *guarded(size_t bytes)
{
    void *block = NULL;
    cr_assert_eq(posix_memalign(&block, 64, bytes + GUARD_BYTES), 0);
    memset(block, GUARD, bytes + GUARD_BYTES);
    return block;
}

static void free_guarded(uint8_t *block, size_t bytes, const char *text)
{
    for (size_t i = 0; i < GUARD_BYTES; i++)
        cr_assert_eq(block[bytes + i], GUARD, "byte %zu behind a buffer of %zu: %s", i, bytes,
                     text);
    free(block);
}

struct ready {
    struct qk_test_memory memory;
    struct qk_plan plan;
    uint8_t *output;
};

static void ready_init(struct ready *ready, const struct conv_case *test, const char *text)
{
    const struct qk_instance *instance;
    struct qk_error error;
    qk_test_memory_init(&ready->memory, SIZE_MAX);
    struct qk_memory face = qk_test_memory_face(&ready->memory);
    cr_assert_eq(qk_create(kernels, &test->call, face, &instance, &error), QK_OK, "%s: %s",
                 error.text, text);
    cr_assert_eq(qk_plan(instance, &test->call, face, &ready->plan, &error), QK_OK, "%s: %s",
                 error.text, text);
    cr_assert_eq(ready->plan.output_bytes, test->y_bytes, "%s", text);
    cr_assert_leq(ready->plan.workspace_bytes, QK_CONV_WORKSPACE_MAX, "%s", text);
    cr_assert_eq(ready->plan.output.type, test->naive.y_signed ? QK_INT8 : QK_UINT8);
    cr_assert_eq(ready->plan.output.rank, test->spatial_rank + 2);
    for (uint32_t i = 0; i < test->spatial_rank; i++)
        cr_assert_eq(ready->plan.output.dims[2 + i],
                     (size_t)test->naive.out[3 - test->spatial_rank + i], "%s", text);
    ready->output = guarded(ready->plan.output_bytes);
}

static void ready_run(const struct ready *ready, size_t begin, size_t end, const char *text)
{
    uint8_t *workspace = guarded(ready->plan.workspace_bytes);
    qk_run(&ready->plan, ready->output, workspace, begin, end);
    free_guarded(workspace, ready->plan.workspace_bytes, text);
}

static void ready_check(struct ready *ready, const struct conv_case *test, const char *text)
{
    for (size_t i = 0; i < test->y_bytes; i++)
        cr_assert_eq(ready->output[i], test->expected[i], "y[%zu] is %d, expected %d: %s", i,
                     ready->output[i], test->expected[i], text);
    free_guarded(ready->output, test->y_bytes, text);
    qk_test_memory_deinit(&ready->memory);
}

static void check_made(struct conv_case *test, const char *text)
{
    struct ready ready;
    conv_case_expect(test);
    ready_init(&ready, test, text);
    ready_run(&ready, 0, ready.plan.unit_count, text);
    ready_check(&ready, test, text);
}

static void check(struct conv_case *test)
{
    char text[512];
    cr_assert(conv_case_make(test));
    check_made(test, conv_case_text(test, text));
    conv_case_deinit(test);
}

/* ---- Random geometries ------------------------------------------------------------------- */

/* Of the naive convolution, so that no case takes long. */
#define TERMS_MAX 300000

static bool check_random(uint32_t spatial_rank, uint64_t seed)
{
    struct conv_case test;
    char text[600];
    char details[512];
    conv_case_random(&test, spatial_rank, seed);
    bool possible = conv_case_make(&test);
    snprintf(text, sizeof(text), "seed %llu: %s", (unsigned long long)seed,
             conv_case_text(&test, details));
    bool small =
        possible && (test.naive.out_channels == 0 ||
                     test.y_bytes * (test.w_bytes / (size_t)test.naive.out_channels) <= TERMS_MAX);
    if (small) {
        check_made(&test, text);
    } else if (!possible) {
        struct qk_test_result result;
        qk_test_run(kernels, &test.call, &result);
        cr_assert_eq(result.status, QK_INVALID, "%s", text);
        cr_assert_eq(strncmp(result.error.text, "x: ", 3), 0, "%s: %s", result.error.text, text);
        qk_test_result_deinit(&result);
    }
    conv_case_deinit(&test);
    return small;
}

static void check_many(uint32_t spatial_rank, uint64_t seed, size_t wanted)
{
    size_t done = 0;
    for (size_t i = 0; done < wanted; i++) {
        cr_assert_lt(i, 4 * wanted, "only %zu of %zu cases have an output", done, wanted);
        done += check_random(spatial_rank, seed + i);
    }
}

Test(conv, random_1d)
{
    check_many(1, 1000000, 1000);
}

Test(conv, random_2d)
{
    check_many(2, 2000000, 1000);
}

Test(conv, random_3d)
{
    check_many(3, 3000000, 700);
}

/* ---- Exact sums -------------------------------------------------------------------------- */

/* Sums of `depth` terms, for three channels and more positions than a vector has. */
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

/* Makes the last term odd, so that a sum beyond 2^24 cannot pass as a multiple of two. */
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

/* Makes the sum itself visible: the bias takes all but its low bits away. */
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
    check_made(test, text);
    for (int64_t m = 0; m < naive->out_channels; m++)
        cr_assert_eq(test->expected[m * positions], 7, "%s", text);
    conv_case_deinit(test);
}

/* All corners of x and w, for depths around a block's. */
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

/* 1024 * -128 * -128 is 2^24: the last sum that a float must hold. */
Test(conv, boundary_of_exactness)
{
    check_corners(1023, 7, 0, 0);
    check_corners(1023, 0, 128, 128);
}

/* 514 * 128 * 255 is the last one below 2^24 for weights up to 255 from their zero point. */
Test(conv, boundary_with_far_zero_points)
{
    for (int zero_points = 0; zero_points < 4; zero_points++) {
        check_corners(513, 0, zero_points & 1 ? 255 : 0, zero_points & 2 ? 255 : 0);
        check_corners(513, 7, zero_points & 1 ? 127 : -128, zero_points & 2 ? 127 : -128);
    }
}

Test(conv, deep_sums)
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

Test(conv, sums_that_wrap)
{
    /* 33026 * 255 * 255 > 2^31; 66052 of them > 2^32. */
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

/* x of 0..255 less 128, times 1 for each of two channels. */
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
    check_made(test, conv_case_text(test, text));
    conv_case_deinit(test);
}

Test(conv, ties_to_even_before_the_zero_point)
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
Test(conv, ties_known)
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
    qk_test_run(kernels, &test.call, &result);
    cr_assert_eq(result.status, QK_OK);
    cr_expect_arr_eq(result.output, expected, sizeof(expected));
    qk_test_result_deinit(&result);
    conv_case_deinit(&test);
}

Test(conv, scales_of_every_kind)
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
        check_ramp(&test);
    }
}

Test(conv, sums_beyond_a_float_round_once)
{
    /* Sums near 2^24 and 2^30 lose bits in fl32(acc); the bias makes them. */
    for (int shift = 24; shift < 31; shift++) {
        struct conv_case test = ramp_case(4);
        char text[512];
        test.naive.y_scale = (float)(1 << (shift - 5));
        cr_assert(conv_case_make(&test));
        for (int m = 0; m < 2; m++)
            test.bias[m] = (1 << shift) + ((3 + m) << (shift - 24)) + m;
        check_made(&test, conv_case_text(&test, text));
        conv_case_deinit(&test);
    }
}

/* ---- Units ------------------------------------------------------------------------------- */

/* Several tiles in rows, groups and images, and several blocks of k. */
static struct conv_case tiled_case(void)
{
    return (struct conv_case){
        .naive = {.images = 2,
                  .channels = 2 * 70,
                  .out_channels = 2 * (QK_CONV_TILE_ROWS + 3),
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

/* Many positions, over more than one tile of columns. */
static struct conv_case wide_case(void)
{
    struct conv_case test = tiled_case();
    test.naive.images = 1;
    test.naive.channels = test.naive.out_channels = 2;
    test.naive.in[1] = 3;
    test.naive.in[2] = 3 * QK_CONV_TILE_COLUMNS / 2;
    return test;
}

static void check_shuffled(struct conv_case test, size_t units_least)
{
    cr_assert(conv_case_make(&test));
    conv_case_expect(&test);
    for (uint64_t seed = 1; seed <= 4; seed++) {
        struct qk_test_result result;
        qk_test_run_shuffled(kernels, &test.call, seed, &result);
        cr_assert_eq(result.status, QK_OK, "%s", result.error.text);
        cr_assert_geq(result.plan.unit_count, units_least);
        cr_assert_arr_eq(result.output, test.expected, test.y_bytes);
        qk_test_result_deinit(&result);
    }
    conv_case_deinit(&test);
}

Test(conv, units_in_any_order)
{
    check_shuffled(tiled_case(), 8);
    check_shuffled(wide_case(), 10);
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
        check(&test);
    }
}

struct worker {
    const struct ready *ready;
    size_t first;
};

/* Every second unit. */
static void *work(void *argument)
{
    const struct worker *worker = argument;
    for (size_t unit = worker->first; unit < worker->ready->plan.unit_count; unit += 2)
        ready_run(worker->ready, unit, unit + 1, "two threads");
    return NULL;
}

Test(conv, two_threads_share_a_plan)
{
    struct conv_case test = tiled_case();
    struct ready ready;
    pthread_t threads[2];
    cr_assert(conv_case_make(&test));
    conv_case_expect(&test);
    ready_init(&ready, &test, "two threads");
    struct worker workers[] = {{&ready, 0}, {&ready, 1}};
    for (int i = 0; i < 2; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    ready_check(&ready, &test, "two threads");
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
    qk_test_run(kernels, &test.call, &result);
    cr_assert_eq(result.status, QK_OK, "%s", result.error.text);
    cr_assert_arr_eq(result.output, test.expected, test.y_bytes);
    for (size_t i = 0; i < test.call.op->input_count; i++)
        free((uint8_t *)(uintptr_t)test.call.inputs[i].data - 1);
    qk_test_result_deinit(&result);
    conv_case_deinit(&test);
}

Test(conv, names_its_kernel_and_cost)
{
    struct conv_case test = tiled_case();
    struct qk_test_result result;
    cr_assert(conv_case_make(&test));
    qk_test_run(kernels, &test.call, &result);
    cr_expect_str_eq(result.plan.kernel, "conv_sgemm");
    cr_expect_gt(result.plan.unit_cost_ns, 0);
    qk_test_result_deinit(&result);
    conv_case_deinit(&test);
}
