/* Finds wide weights (igemm.h) with vectors. For the kernels of products by VPMADDUBSW. */
#ifndef KERNELS_GEMM_IGEMM_WIDE_AVX2_H
#define KERNELS_GEMM_IGEMM_WIDE_AVX2_H

#include <immintrin.h>

/* Returns a mask of the 16-bit words of 8 quads that have wide pairs: the positive weights of the
 * pair add up to more than 128, or the negative weights to less than -128. */
static inline __m256i find_wide_pairs(__m256i quads)
{
    const __m256i zero = _mm256_setzero_si256();
    const __m256i all_ones = _mm256_set1_epi8(1);
    const __m256i most = _mm256_set1_epi16(128);
    /* Negative weights are negated, so that -128 becomes an unsigned 128. VPMADDUBSW adds two
     * unsigned bytes. */
    const __m256i up = _mm256_maddubs_epi16(_mm256_max_epi8(quads, zero), all_ones);
    const __m256i down =
        _mm256_maddubs_epi16(_mm256_sub_epi8(zero, _mm256_min_epi8(quads, zero)), all_ones);
    return _mm256_or_si256(_mm256_cmpgt_epi16(up, most), _mm256_cmpgt_epi16(down, most));
}

/* Returns a mask of the first `count` of 8 lanes; of all lanes if `count` is larger. */
static inline __m256i first_lanes(int count)
{
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), lane);
}

#endif
