/* The kernels of matrix products, compiled for AVX2. */
#include "kernels/matmul/kernels.h"

/* The Makefile sets this only for files with this suffix. */
#ifdef __AVX2__
#include "kernels/conv/requantize_avx2.h"

/* Scales 8 sums, and returns them as words with y's zero point. */
static inline __m128i scale_8(const struct qk_requantize *to, const int32_t *sums,
                              const float *multipliers)
{
    const __m256i scaled =
        qk_requantize_scale_8(_mm256_loadu_si256((const void *)sums), _mm256_loadu_ps(multipliers),
                              _mm256_set1_ps(to->high));
    const __m128i words =
        _mm_packs_epi32(_mm256_castsi256_si128(scaled), _mm256_extracti128_si256(scaled, 1));
    return _mm_adds_epi16(words, _mm_set1_epi16((int16_t)to->zero_point));
}

static inline __m128i pack_words(const struct qk_requantize *to, __m128i low, __m128i high)
{
    return to->is_signed ? _mm_packs_epi16(low, high) : _mm_packus_epi16(low, high);
}

static inline void requantize_8(const struct qk_requantize *to, const int32_t *sums,
                                const float *multipliers, size_t count, uint8_t *bytes)
{
    size_t j = 0;
    for (; j + 16 <= count; j += 16) {
        const __m128i low = scale_8(to, sums + j, multipliers + j);
        const __m128i high = scale_8(to, sums + j + 8, multipliers + j + 8);
        _mm_storeu_si128((void *)(bytes + j), pack_words(to, low, high));
    }
    for (; j + 8 <= count; j += 8) {
        const __m128i words = scale_8(to, sums + j, multipliers + j);
        _mm_storel_epi64((void *)(bytes + j), pack_words(to, words, words));
    }
    for (; j < count; j++)
        bytes[j] = qk_requantize_one(*to, sums[j], multipliers[j]);
}

#define REQUANTIZE_BLOCK requantize_8
#define TABLE qk_matmul_kernels__avx2
#include "kernels/matmul/loops.h"
#endif
