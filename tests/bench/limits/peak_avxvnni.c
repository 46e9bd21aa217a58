#include "kernels/cpu.h"
#include "tests/bench/limits/peak.h"

#ifdef __AVXVNNI__

#include <immintrin.h>

enum { CHAINS = 12 }; /* of 16 registers */

static void run_avxvnni(void)
{
    __m256i sums[CHAINS];
    const __m256i x = _mm256_set1_epi8(3);
#pragma GCC unroll 12
    for (size_t i = 0; i < CHAINS; i++)
        sums[i] = x;
    for (size_t round = 0; round < BENCH_PEAK_ROUNDS; round++)
#pragma GCC unroll 12
        for (size_t i = 0; i < CHAINS; i++) {
            sums[i] = _mm256_dpbusd_avx_epi32(sums[i], x, x);
            __asm__ volatile("" : "+x"(sums[i]));
        }
}

const struct bench_peak bench_peaks_avxvnni[] = {
    {"avxvnni", QK_CPU_AVXVNNI, (size_t)2 * 32 * CHAINS *BENCH_PEAK_ROUNDS, run_avxvnni}, {0}};

#else

const struct bench_peak bench_peaks_avxvnni[] = {{0}};

#endif
