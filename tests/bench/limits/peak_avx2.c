#include "kernels/cpu.h"
#include "tests/bench/limits/peak.h"

#ifdef __AVX2__

#include <immintrin.h>

enum { CHAINS = 12 }; /* of 16 registers */

static void run_fma(void)
{
    __m256 sums[CHAINS];
    const __m256 x = _mm256_set1_ps(0.5F);
#pragma GCC unroll 12
    for (size_t i = 0; i < CHAINS; i++)
        sums[i] = x;
    for (size_t round = 0; round < BENCH_PEAK_ROUNDS; round++)
#pragma GCC unroll 12
        for (size_t i = 0; i < CHAINS; i++) {
            sums[i] = _mm256_fmadd_ps(sums[i], x, x);
            __asm__ volatile("" : "+x"(sums[i]));
        }
}

static void run_madd(void)
{
    __m256i sums[CHAINS];
    __m256i x = _mm256_set1_epi16(3);
#pragma GCC unroll 12
    for (size_t i = 0; i < CHAINS; i++)
        sums[i] = x;
    for (size_t round = 0; round < BENCH_PEAK_ROUNDS; round++)
#pragma GCC unroll 12
        for (size_t i = 0; i < CHAINS; i++) {
            __asm__ volatile("" : "+x"(x)); /* so that the compiler computes each product anew */
            sums[i] = _mm256_add_epi32(sums[i], _mm256_madd_epi16(x, x));
            __asm__ volatile("" : "+x"(sums[i]));
        }
}

#define AVX2 (QK_CPU_SSE42 | QK_CPU_AVX | QK_CPU_AVX2)
#define OPERATIONS(terms) ((size_t)2 * (terms)*CHAINS * BENCH_PEAK_ROUNDS)

const struct bench_peak bench_peaks_avx2[] = {
    {"fma", AVX2, OPERATIONS(8), run_fma}, {"madd", AVX2, OPERATIONS(16), run_madd}, {0}};

#else

const struct bench_peak bench_peaks_avx2[] = {{0}};

#endif
