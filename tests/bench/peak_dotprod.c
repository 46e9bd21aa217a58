#include "kernels/cpu.h"
#include "tests/bench/peak.h"

#ifdef __ARM_FEATURE_DOTPROD

#include <arm_neon.h>

enum { CHAINS = 24 }; /* of 32 registers */

static void run_dotprod(void)
{
    int32x4_t sums[CHAINS];
    const int8x16_t x = vdupq_n_s8(3);
#pragma GCC unroll 24
    for (size_t i = 0; i < CHAINS; i++)
        sums[i] = vdupq_n_s32(3);
    for (size_t round = 0; round < BENCH_PEAK_ROUNDS; round++)
#pragma GCC unroll 24
        for (size_t i = 0; i < CHAINS; i++) {
            sums[i] = vdotq_s32(sums[i], x, x);
            __asm__ volatile("" : "+w"(sums[i]));
        }
}

const struct bench_peak bench_peaks_dotprod[] = {
    {"dotprod", QK_CPU_DOTPROD, (size_t)2 * 16 * CHAINS *BENCH_PEAK_ROUNDS, run_dotprod}, {0}};

#else

const struct bench_peak bench_peaks_dotprod[] = {{0}};

#endif
