/* Vectors of 32 bytes for loops.h, in two parts of 16. */
#pragma once

#ifdef __AVX2__

#include <immintrin.h>
#include <stdint.h>

typedef __m256i qk_move_wide_2;

/* Loads 16 bytes from x, and 16 from `step` bytes further on. */
static inline __m256i qk_move_load_2(const char *x, int64_t step)
{
    const __m256i low = _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)x));
    return _mm256_inserti128_si256(low, _mm_loadu_si128((const __m128i *)(x + step)), 1);
}

/* Interleave the elements of the low or high half of each part. */
#define QK_MOVE_LOW_2_1 _mm256_unpacklo_epi8
#define QK_MOVE_LOW_2_2 _mm256_unpacklo_epi16
#define QK_MOVE_LOW_2_4 _mm256_unpacklo_epi32
#define QK_MOVE_LOW_2_8 _mm256_unpacklo_epi64
#define QK_MOVE_HIGH_2_1 _mm256_unpackhi_epi8
#define QK_MOVE_HIGH_2_2 _mm256_unpackhi_epi16
#define QK_MOVE_HIGH_2_4 _mm256_unpackhi_epi32
#define QK_MOVE_HIGH_2_8 _mm256_unpackhi_epi64

/* Move the elements at even indices to the low half, those at odd indices to the high half. */
static inline __m256i qk_move_halves_8(__m256i x)
{
    return _mm256_permute4x64_epi64(x, 0xd8);
}

static inline __m256i qk_move_halves_4(__m256i x)
{
    return _mm256_permutevar8x32_epi32(x, _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7));
}

static inline __m256i qk_move_halves_2(__m256i x)
{
    const __m128i parts = _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
    return qk_move_halves_8(_mm256_shuffle_epi8(x, _mm256_broadcastsi128_si256(parts)));
}

static inline __m256i qk_move_halves_1(__m256i x)
{
    const __m128i parts = _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
    return qk_move_halves_8(_mm256_shuffle_epi8(x, _mm256_broadcastsi128_si256(parts)));
}

#endif
