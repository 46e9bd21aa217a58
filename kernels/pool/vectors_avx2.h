/* Vectors of 32 bytes, for plane_loops.h. The tier of AVX-512 also takes them for bytes: rows of
 * images are short, and its own instructions gain nothing there. */
#pragma once

#ifdef __AVX2__

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>

#define INLINE static inline __attribute__((always_inline))
#define QK_POOL_BYTES 32

typedef __m256i byte_vector;
typedef __m256i sum_vector;

INLINE byte_vector load_bytes(const uint8_t *x)
{
    return _mm256_loadu_si256((const __m256i *)x);
}

INLINE void store_bytes(uint8_t *y, byte_vector a)
{
    _mm256_storeu_si256((__m256i *)y, a);
}

INLINE byte_vector splat_bytes(uint8_t byte)
{
    return _mm256_set1_epi8((char)byte);
}

INLINE byte_vector max_bytes(byte_vector a, byte_vector b, bool is_signed)
{
    return is_signed ? _mm256_max_epi8(a, b) : _mm256_max_epu8(a, b);
}

INLINE byte_vector min_bytes(byte_vector a, byte_vector b, bool is_signed)
{
    return is_signed ? _mm256_min_epi8(a, b) : _mm256_min_epu8(a, b);
}

INLINE byte_vector and_bytes(byte_vector a, byte_vector b)
{
    return _mm256_and_si256(a, b);
}

INLINE byte_vector xor_bytes(byte_vector a, byte_vector b)
{
    return _mm256_xor_si256(a, b);
}

INLINE void store_even(uint8_t *y, byte_vector a)
{
    const __m256i low = _mm256_and_si256(a, _mm256_set1_epi16(0xFF));
    const __m128i packed =
        _mm_packus_epi16(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1));
    _mm_storeu_si128((__m128i *)y, packed);
}

/* Stores the maximum of each pair of bytes: of the two vectors' at two places. */
INLINE void store_pairs(uint8_t *y, byte_vector a, bool is_signed)
{
    store_even(y, max_bytes(a, _mm256_srli_epi16(a, 8), is_signed));
}

INLINE sum_vector zero_sums(void)
{
    return _mm256_setzero_si256();
}

INLINE sum_vector add_bytes(sum_vector total, byte_vector a)
{
    return _mm256_add_epi32(total, _mm256_sad_epu8(a, _mm256_setzero_si256()));
}

/* The low halves of the 64-bit sums are their values modulo 2^32. */
INLINE __m256i low_halves(sum_vector a, sum_vector b)
{
    return _mm256_castps_si256(
        _mm256_shuffle_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b), 0x88));
}

INLINE void store_sums(uint32_t *to, sum_vector a, sum_vector b, sum_vector c, sum_vector d)
{
    const __m256i pairs = _mm256_hadd_epi32(low_halves(a, b), low_halves(c, d));
    _mm_storeu_si128((__m128i *)to, _mm_add_epi32(_mm256_castsi256_si128(pairs),
                                                  _mm256_extracti128_si256(pairs, 1)));
}

#endif
