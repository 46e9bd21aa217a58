#include "kernels/cpu.h"
#include "tests/bench/limits/peak.h"

#ifdef __AVX512VNNI__

#include <immintrin.h>

enum { CHAINS = 24 }; /* of 32 registers */

static void run_fma(void)
{
    __m512 sums[CHAINS];
    const __m512 x = _mm512_set1_ps(0.5F);
#pragma GCC unroll 24
    for (size_t i = 0; i < CHAINS; i++)
        sums[i] = x;
    for (size_t round = 0; round < BENCH_PEAK_ROUNDS; round++)
#pragma GCC unroll 24
        for (size_t i = 0; i < CHAINS; i++) {
            sums[i] = _mm512_fmadd_ps(sums[i], x, x);
            __asm__ volatile("" : "+v"(sums[i]));
        }
}

static void run_vnni(void)
{
    __m512i sums[CHAINS];
    const __m512i x = _mm512_set1_epi8(3);
#pragma GCC unroll 24
    for (size_t i = 0; i < CHAINS; i++)
        sums[i] = x;
    for (size_t round = 0; round < BENCH_PEAK_ROUNDS; round++)
#pragma GCC unroll 24
        for (size_t i = 0; i < CHAINS; i++) {
            sums[i] = _mm512_dpbusd_epi32(sums[i], x, x);
            __asm__ volatile("" : "+v"(sums[i]));
        }
}

#define OPERATIONS(terms) ((size_t)2 * (terms)*CHAINS * BENCH_PEAK_ROUNDS)

const struct bench_peak bench_peaks_vnni[] = {{"fma", QK_CPU_VNNI, OPERATIONS(16), run_fma},
                                              {"vnni", QK_CPU_VNNI, OPERATIONS(64), run_vnni},
                                              {0}};

#else

const struct bench_peak bench_peaks_vnni[] = {{0}};

#endif
