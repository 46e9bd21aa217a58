/* Convolutions that are planned for other machines, byte for byte. The kernels are those of this
 * CPU. The caches, the speeds and what is chosen from them are those of another machine. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/dispatch.h"
#include "tests/support/kernels/conv_run.h"

#define KIB ((size_t)1024)

static struct qk_test_gemms gemms;

/* Chooses for a machine with this CPU's kernels, larger caches, and an sgemm that is faster than
 * any integer product by a given factor. */
static void choose_for(struct qk_kernels *kernels, const char *gemm, size_t l1_bytes,
                       size_t l2_bytes, double sgemm_times)
{
    struct qk_profile profile = {
        .cpu_flags = qk_cpu_flags(), .l1_bytes = l1_bytes, .l2_bytes = l2_bytes};
    const struct qk_kernel_options options = {
        .tier = "auto", .gemm = gemm, .blas = true, .threads = 2};
    struct qk_error error;
    qk_profile_fill(&profile);
    for (enum qk_product p = 0; p < QK_PRODUCT_COUNT && sgemm_times > 0; p++)
        profile.product_ops_per_ns[p] = p == QK_PRODUCT_SGEMM ? 20 * sgemm_times : 20;
    cr_assert_eq(qk_choose(&profile, &options, &kernels->choice, &error), QK_OK, "%s", error.text);
}

static void add(const char *made_for, const char *gemm, size_t l1_bytes, size_t l2_bytes,
                double sgemm_times)
{
    struct qk_kernels *kernels = qk_test_kernels_gemm("auto", made_for);
    if (!kernels)
        return;
    choose_for(kernels, gemm, l1_bytes, l2_bytes, sgemm_times);
    gemms.names[gemms.count] = gemm;
    gemms.kernels[gemms.count++] = kernels;
}

static void setup(void)
{
    gemms.count = 0;
}

static void teardown(void)
{
    qk_test_gemms_deinit(&gemms);
}

TestSuite(conv_machines, .init = setup, .fini = teardown);

static void check_random(uint64_t seed, size_t wanted)
{
    for (size_t done = 0; done < wanted; seed++) {
        struct conv_case test;
        conv_case_random(&test, 1 + (uint32_t)(seed % 3), seed);
        if (conv_case_make(&test) && test.w_bytes > 0 &&
            test.y_bytes * (test.w_bytes / (size_t)test.naive.out_channels) <= 300000) {
            char text[600], details[512];
            snprintf(text, sizeof(text), "seed %llu: %s", (unsigned long long)seed,
                     conv_case_text(&test, details));
            conv_case_check_made(&gemms, &test, text);
            done++;
        }
        conv_case_deinit(&test);
    }
}

/* Sums are so deep that K is cut into parts if caches are small. */
static void check_deep(int64_t channels, int64_t columns)
{
    struct conv_case test = {
        .naive = {.images = 1,
                  .channels = channels,
                  .out_channels = 37,
                  .group = 1,
                  .in = {1, 3, columns},
                  .kernel = {1, 3, 3},
                  .stride = {1, 1, 1},
                  .dilation = {1, 1, 1},
                  .pad_begin = {0, 1, 1},
                  .pad_end = {0, 1, 1},
                  .x_zero_point = 100,
                  .y_zero_point = 7,
                  .x_scale = 0.02F,
                  .y_scale = 80},
        .spatial_rank = 2,
        .w_scale_all = 0.5F,
        .w_zero_point_per_channel = true,
        .seed = 5,
    };
    conv_case_check(&gemms, &test);
}

Test(conv_machines, small_caches)
{
    for (size_t i = 0; qk_gemm_name(i); i++)
        add(qk_gemm_name(i), qk_gemm_name(i), 8 * KIB, 128 * KIB, 0);
    check_random(7000000, 150);
    check_deep(1501, 5);
    check_deep(300, 70);
}

Test(conv_machines, large_caches)
{
    for (size_t i = 0; qk_gemm_name(i); i++)
        add(qk_gemm_name(i), qk_gemm_name(i), 128 * KIB, 16 * 1024 * KIB, 0);
    check_random(8000000, 100);
    check_deep(1501, 5);
}

/* Floats multiply large convolutions. Integers multiply small and depthwise ones. */
Test(conv_machines, floats_are_faster)
{
    static const double times[] = {1.3, 2, 10, 1000};
    for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
        add("blas", "auto", 32 * KIB, 512 * KIB, times[i]);
        cr_assert_null(gemms.kernels[i]->choice.conv.main);
        cr_assert_not_null(gemms.kernels[i]->choice.conv.small_tile);
    }
    check_random(9000000, 200);
    check_deep(700, 20);
}

static void *allocate(void *context, size_t bytes)
{
    (void)context;
    return aligned_alloc(64, (bytes + 63) / 64 * 64);
}

/* Returns the backend that a convolution with these weights gets. */
static const struct qk_conv_backend *backend_for(const struct qk_kernels *kernels, const uint8_t *w,
                                                 size_t channels)
{
    static const float scale = 1;
    static const uint8_t zero;
    const struct qk_memory memory = {.alloc = allocate};
    const struct qk_conv_desc desc = {.spatial_rank = 1,
                                      .out_channels = channels,
                                      .group_channels = channels,
                                      .group = 1,
                                      .kernel = {1, 1, 1, 1, 1, 3},
                                      .stride = {1, 1, 1, 1, 1, 1},
                                      .dilation = {1, 1, 1, 1, 1, 1}};
    const struct qk_conv_constants constants = {.x_type = QK_UINT8,
                                                .x_scale = 1,
                                                .y_scale = 1,
                                                .w_type = QK_INT8,
                                                .w = w,
                                                .w_count = channels * channels * 3,
                                                .w_scale = (const uint8_t *)&scale,
                                                .w_scale_count = 1,
                                                .w_zero_point = &zero,
                                                .w_zero_point_count = 1};
    struct qk_conv conv;
    struct qk_error error;
    cr_assert_eq(qk_conv_prepare(&desc, &constants, &kernels->choice.conv, memory, &conv, &error),
                 QK_OK);
    free(conv.bias);
    free(conv.multiplier);
    free(conv.igemm.weights);
    return conv.backend;
}

/* AVX2 multiplies bytes by position only if hardly any sum of two products can saturate and there
 * are more than a few slabs. It multiplies words only if many sums can, or if there are few terms.
 */
Test(conv_machines, wide_weights_choose_the_kernel)
{
    enum { CHANNELS = 64, COUNT = CHANNELS * CHANNELS * 3 };
    const struct qk_kernels *kernels = qk_test_kernels_gemm("auto", "avx2");
    static uint8_t w[COUNT];
    uint64_t state = 1;
    if (!kernels)
        return;
    gemms.names[gemms.count] = "avx2";
    gemms.kernels[gemms.count++] = (struct qk_kernels *)(uintptr_t)kernels;
    const struct qk_conv_backend *bytes = kernels->choice.conv.main;
    for (size_t i = 0; i < COUNT; i++)
        w[i] = (uint8_t)(qk_test_random_below(&state, 128) - 64);
    cr_expect_eq(backend_for(kernels, w, CHANNELS), bytes);
    cr_expect_eq(backend_for(kernels, w, CHANNELS / 2), bytes->small_m->words); /* 96 terms */
    for (size_t i = 0; i < COUNT; i += 1000) /* 10 of 256 slabs */
        w[i] = w[i + 3] = 127;
    cr_expect_eq(backend_for(kernels, w, CHANNELS), bytes);
    for (size_t i = 0; i < COUNT; i += 100) /* most slabs, but few rows of each */
        w[i] = w[i + 3] = 127;
    cr_expect_eq(backend_for(kernels, w, CHANNELS), bytes->small_m);
    for (size_t i = 0; i < COUNT; i++)
        w[i] = (uint8_t)qk_test_random_below(&state, 256);
    cr_expect_eq(backend_for(kernels, w, CHANNELS), bytes->small_m->words);
}
