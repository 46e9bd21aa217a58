/* The kernels of matrix products, compiled for AVX2. */
#include "kernels/matmul/kernels.h"

/* The Makefile sets this only for files with this suffix. */
#ifdef __AVX2__
#include "kernels/conv/requantize_avx2.h"

/* Requantizes 8 sums at a time. */
static inline void requantize_8(const struct qk_requantize *to, const int32_t *sums,
                                const float *multipliers, size_t count, uint8_t *bytes)
{
    const __m256 high = _mm256_set1_ps(to->high);
    const __m128i zero_point = _mm_set1_epi16((int16_t)to->zero_point);
    size_t j = 0;
    for (; j + 8 <= count; j += 8) {
        const __m256i sum = _mm256_loadu_si256((const void *)(sums + j));
        const __m256i scaled = qk_requantize_scale_8(sum, _mm256_loadu_ps(multipliers + j), high);
        const __m128i words = _mm_adds_epi16(
            _mm_packs_epi32(_mm256_castsi256_si128(scaled), _mm256_extracti128_si256(scaled, 1)),
            zero_point);
        const __m128i packed =
            to->is_signed ? _mm_packs_epi16(words, words) : _mm_packus_epi16(words, words);
        _mm_storel_epi64((void *)(bytes + j), packed);
    }
    for (; j < count; j++)
        bytes[j] = qk_requantize_one(*to, sums[j], multipliers[j]);
}

#define REQUANTIZE_BLOCK requantize_8
#define TABLE qk_matmul_kernels__avx2
#include "kernels/matmul/loops.h"
#endif
