/* Requantizes 32 sums at a time (kernels/conv/requantize.h). For files that are compiled for AVX2.
 * Private to conv/ and matmul/. */
#pragma once

#include "kernels/conv/requantize.h"

#ifdef __AVX2__

#include <immintrin.h>

/* Scales 8 sums and rounds them to integers. The caller adds the zero point and saturates the
 * result to a byte, which gives y. This saturation replaces the lower clamp of requantize.h,
 * because the conversion to integers gives the least integer for values below its range, and for
 * NaN. It gives the least integer for values above its range, too, so these must be clamped to
 * `high` here. The order of min's operands keeps a NaN. */
static inline __m256i qk_requantize_scale_8(__m256i sums, __m256 multiplier, __m256 high)
{
    const __m256 value = _mm256_mul_ps(_mm256_cvtepi32_ps(sums), multiplier);
    return _mm256_cvtps_epi32(_mm256_min_ps(high, value));
}

/* Requantizes 32 sums, which include the bias. The packing instructions work within each 16-byte
 * half of a vector, so a permutation puts the bytes back in order. */
static inline __m256i qk_requantize_32(const struct qk_requantize *to, const __m256i sums[4],
                                       float multiplier)
{
    const __m256 multipliers = _mm256_set1_ps(multiplier);
    const __m256 high = _mm256_set1_ps(to->high);
    const __m256i zero_point = _mm256_set1_epi16((int16_t)to->zero_point);
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    __m256i words[2];
    for (size_t i = 0; i < 2; i++) {
        const __m256i a = qk_requantize_scale_8(sums[2 * i], multipliers, high);
        const __m256i b = qk_requantize_scale_8(sums[2 * i + 1], multipliers, high);
        words[i] = _mm256_adds_epi16(_mm256_packs_epi32(a, b), zero_point);
    }
    return _mm256_permutevar8x32_epi32(to->is_signed ? _mm256_packs_epi16(words[0], words[1])
                                                     : _mm256_packus_epi16(words[0], words[1]),
                                       order);
}

#endif
