#include "kernels/cpu.h"
#include "tests/bench/peak.h"

#ifdef __ARM_FEATURE_MATMUL_INT8

#include <arm_neon.h>

enum { CHAINS = 24 }; /* of 32 registers */

static void run_i8mm(void)
{
    int32x4_t sums[CHAINS];
    const int8x16_t x = vdupq_n_s8(3);
#pragma GCC unroll 24
    for (size_t i = 0; i < CHAINS; i++)
        sums[i] = vdupq_n_s32(3);
    for (size_t round = 0; round < BENCH_PEAK_ROUNDS; round++)
#pragma GCC unroll 24
        for (size_t i = 0; i < CHAINS; i++) {
            sums[i] = vmmlaq_s32(sums[i], x, x);
            __asm__ volatile("" : "+w"(sums[i]));
        }
}

const struct bench_peak bench_peaks_i8mm[] = {
    {"i8mm", QK_CPU_I8MM, (size_t)2 * 32 * CHAINS *BENCH_PEAK_ROUNDS, run_i8mm}, {0}};

#else

const struct bench_peak bench_peaks_i8mm[] = {{0}};

#endif
