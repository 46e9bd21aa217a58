/* The dequantize kernels of each tier, against scalar and against the oracle. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "kernels/dispatch.h"
#include "tests/support/dequantize_oracle.h"
#include "tests/support/qk_test.h"

static const enum qk_type types[] = {QK_UINT8, QK_INT8, QK_INT32};

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static qk_dequantize_fn kernel_of(const struct qk_kernels *kernels, enum qk_type type)
{
    return type == QK_UINT8  ? kernels->dequantize.u8
           : type == QK_INT8 ? kernels->dequantize.s8
                             : kernels->dequantize.s32;
}

/* One kernel call with x at an odd address and guards around y; y is returned in `y`. */
static void run_guarded(qk_dequantize_fn kernel, const uint8_t *x, size_t count, int32_t zero_point,
                        float scale, float *y)
{
    enum { GUARD = 16 };
    float buffer[GUARD + 1024 + GUARD];
    memset(buffer, 0x5a, sizeof(buffer));
    kernel(x, count, zero_point, scale, buffer + GUARD);
    memcpy(y, buffer + GUARD, count * sizeof(*y));
    memset(buffer + GUARD, 0x5a, count * sizeof(*y));
    for (size_t i = 0; i < sizeof(buffer); i++)
        cr_assert_eq(((const uint8_t *)buffer)[i], 0x5a, "written outside: byte %zu", i);
}

static void check_kernel(const struct qk_kernels *kernels, enum qk_type type, size_t count,
                         uint64_t *random)
{
    uint8_t bytes[1024 * 4 + 16];
    float y[1024];
    float scalar_y[1024];
    struct qk_dequantize_kernels table;
    qk_dequantize_init_scalar(&table);
    struct qk_kernels scalar = {.dequantize = table};

    uint8_t *x = bytes + qk_test_random_below(random, 16);
    dequantize_random_elements(random, type, x, count);
    int32_t zero_point = dequantize_random_zero_point(random, type);
    float scale = dequantize_random_scale(random);
    run_guarded(kernel_of(kernels, type), x, count, zero_point, scale, y);
    run_guarded(kernel_of(&scalar, type), x, count, zero_point, scale, scalar_y);
    cr_assert_eq(memcmp(y, scalar_y, count * sizeof(*y)), 0, "%s, %s, %zu elements: not scalar's",
                 kernels->dequantize.name, qk_type_info(type)->name, count);
    for (size_t i = 0; i < count; i++) {
        float expected = dequantize_expected(dequantize_element(type, x, i), zero_point, scale);
        cr_assert(dequantize_same(y[i], expected), "%s, %s, (%lld - %d) * %a: expected %a, got %a",
                  kernels->dequantize.name, qk_type_info(type)->name,
                  (long long)dequantize_element(type, x, i), zero_point, (double)scale,
                  (double)expected, (double)y[i]);
    }
}

static void check_tier(const char *tier)
{
    struct qk_kernels *kernels = qk_test_kernels(tier);
    uint64_t random = 2;
    char name[64];
    if (!kernels)
        return;
    snprintf(name, sizeof(name), "dequantize_%s", tier);
    cr_assert_str_eq(kernels->dequantize.name, name);
    for (size_t count = 0; count <= 1024; count += count < 70 ? 1 : 159) {
        for (size_t type = 0; type < COUNT_OF(types); type++)
            for (int round = 0; round < 40; round++)
                check_kernel(kernels, types[type], count, &random);
    }
    qk_kernels_destroy(kernels);
}

Test(dequantize, scalar_kernels)
{
    check_tier("scalar");
}

Test(dequantize, avx2_kernels)
{
    check_tier("avx2");
}

Test(dequantize, every_uint8_and_int8)
{
    struct qk_dequantize_kernels table;
    qk_dequantize_init_scalar(&table);
    uint8_t x[256];
    float y[256];
    for (size_t i = 0; i < 256; i++)
        x[i] = (uint8_t)i;
    for (int32_t zero_point = 0; zero_point < 256; zero_point++) {
        table.u8(x, 256, zero_point, 0.1F, y);
        for (int i = 0; i < 256; i++)
            cr_assert(dequantize_same(y[i], dequantize_expected(i, zero_point, 0.1F)));
        table.s8(x, 256, zero_point - 128, 0.1F, y);
        for (int i = 0; i < 256; i++)
            cr_assert(dequantize_same(
                y[i], dequantize_expected(i < 128 ? i : i - 256, zero_point - 128, 0.1F)));
    }
}
