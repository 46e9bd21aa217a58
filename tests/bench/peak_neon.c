#include "kernels/cpu.h"
#include "tests/bench/peak.h"

#ifdef __aarch64__

#include <arm_neon.h>

enum { CHAINS = 24 }; /* of 32 registers */

static void run_fma(void)
{
    float32x4_t sums[CHAINS];
    const float32x4_t x = vdupq_n_f32(0.5F);
#pragma GCC unroll 24
    for (size_t i = 0; i < CHAINS; i++)
        sums[i] = x;
    for (size_t round = 0; round < BENCH_PEAK_ROUNDS; round++)
#pragma GCC unroll 24
        for (size_t i = 0; i < CHAINS; i++) {
            sums[i] = vfmaq_f32(sums[i], x, x);
            __asm__ volatile("" : "+w"(sums[i]));
        }
}

static void run_neon(void)
{
    int32x4_t sums[CHAINS];
    int8x8_t x = vdup_n_s8(3);
#pragma GCC unroll 24
    for (size_t i = 0; i < CHAINS; i++)
        sums[i] = vdupq_n_s32(3);
    for (size_t round = 0; round < BENCH_PEAK_ROUNDS; round++)
#pragma GCC unroll 24
        for (size_t i = 0; i < CHAINS; i++) {
            __asm__ volatile("" : "+w"(x)); /* so that each product is a new one */
            sums[i] = vpadalq_s16(sums[i], vmull_s8(x, x));
            __asm__ volatile("" : "+w"(sums[i]));
        }
}

#define OPERATIONS(terms) ((size_t)2 * (terms)*CHAINS * BENCH_PEAK_ROUNDS)

const struct bench_peak bench_peaks_neon[] = {{"fma", QK_CPU_NEON, OPERATIONS(4), run_fma},
                                              {"neon", QK_CPU_NEON, OPERATIONS(8), run_neon},
                                              {0}};

#else

const struct bench_peak bench_peaks_neon[] = {{0}};

#endif
