/* The loop of ARM's integer products. peak_neon.c, peak_dotprod.c and peak_i8mm.c are compiled for
 * different instructions; each of them only names its product. */
#pragma once

#include <arm_neon.h>

#include "tests/bench/limits/peak.h"

enum { CHAINS = 24 }; /* of 32 registers */

#define OPERATIONS(terms) ((size_t)2 * (terms)*CHAINS * BENCH_PEAK_ROUNDS)

typedef int32x4_t add_products_fn(int32x4_t sum, int8x16_t x, int8x16_t y);

static inline __attribute__((always_inline)) void run_products(add_products_fn *add)
{
    int32x4_t sums[CHAINS];
    int8x16_t x = vdupq_n_s8(3);
#pragma GCC unroll 24
    for (size_t i = 0; i < CHAINS; i++)
        sums[i] = vdupq_n_s32(3);
    for (size_t round = 0; round < BENCH_PEAK_ROUNDS; round++)
#pragma GCC unroll 24
        for (size_t i = 0; i < CHAINS; i++) {
            __asm__ volatile("" : "+w"(x)); /* so that the compiler computes each product anew */
            sums[i] = add(sums[i], x, x);
            __asm__ volatile("" : "+w"(sums[i]));
        }
}
