#include "kernels/cpu.h"
#include "tests/bench/limits/peak.h"

#ifdef __aarch64__

#include "tests/bench/limits/peak_neon.h"

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

static int32x4_t add(int32x4_t sum, int8x16_t x, int8x16_t y)
{
    return vpadalq_s16(sum, vmull_s8(vget_low_s8(x), vget_low_s8(y)));
}

static void run_neon(void)
{
    run_products(add);
}

const struct bench_peak bench_peaks_neon[] = {{"fma", QK_CPU_NEON, OPERATIONS(4), run_fma},
                                              {"neon", QK_CPU_NEON, OPERATIONS(8), run_neon},
                                              {0}};

#else

const struct bench_peak bench_peaks_neon[] = {{0}};

#endif
