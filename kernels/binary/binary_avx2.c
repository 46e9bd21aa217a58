/* The kernels of binary.h for AVX2. */
#include "kernels/binary/binary.h"

#ifdef __x86_64__

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))
#define TIER avx2
#define CYCLES 0.4
#define FINISH finish
#define LANES 8

typedef __m256 vector;
typedef __m256i words;

INLINE vector splat(float value)
{
    return _mm256_set1_ps(value);
}

INLINE vector widen(const uint8_t *codes, bool is_signed)
{
    const __m128i bytes = _mm_loadl_epi64((const __m128i *)codes);
    return _mm256_cvtepi32_ps(is_signed ? _mm256_cvtepi8_epi32(bytes)
                                        : _mm256_cvtepu8_epi32(bytes));
}

INLINE vector fused(vector a, vector b, vector c)
{
    return _mm256_fmadd_ps(a, b, c);
}

INLINE vector multiply(vector a, vector b)
{
    return _mm256_mul_ps(a, b);
}

INLINE vector add(vector a, vector b)
{
    return _mm256_add_ps(a, b);
}

/* The conversion gives the least integer for NaN and for what does not fit into 32 bits. Packing
 * clamps, and interleaves the vectors: four elements of each lie side by side. */
INLINE __m256i pack(vector a, vector b, vector c, vector d, bool is_signed)
{
    const __m256i low = _mm256_packs_epi32(_mm256_cvtps_epi32(a), _mm256_cvtps_epi32(b));
    const __m256i high = _mm256_packs_epi32(_mm256_cvtps_epi32(c), _mm256_cvtps_epi32(d));
    return is_signed ? _mm256_packs_epi16(low, high) : _mm256_packus_epi16(low, high);
}

INLINE void store_bytes(uint8_t *y, __m256i bytes, bool stream)
{
    if (stream)
        _mm256_stream_si256((__m256i *)y, bytes);
    else
        _mm256_storeu_si256((__m256i *)y, bytes);
}

INLINE void store(uint8_t *y, vector a, vector b, vector c, vector d, bool is_signed, bool stream)
{
    const __m256i order = _mm256_set_epi32(7, 3, 6, 2, 5, 1, 4, 0);
    store_bytes(y, _mm256_permutevar8x32_epi32(pack(a, b, c, d, is_signed), order), stream);
}

/* ---- Products: vector i has elements i, 4 + i, 8 + i, ... ---------------------------------- */

/* Zero points of signed codes are those of the codes with the top bit flipped. */
INLINE words splat_words(int zero, bool is_signed)
{
    return _mm256_set1_epi16((short)(is_signed ? zero + 128 : zero));
}

/* Sets halves[0] to codes 0, 2, 4, ... as words, and [1] to codes 1, 3, 5, ... */
INLINE void split(const uint8_t *codes, bool is_signed, words halves[2])
{
    __m256i bytes = _mm256_loadu_si256((const __m256i *)codes);
    if (is_signed)
        bytes = _mm256_xor_si256(bytes, _mm256_set1_epi8(-128));
    halves[0] = _mm256_and_si256(bytes, _mm256_set1_epi16(255));
    halves[1] = _mm256_srli_epi16(bytes, 8);
}

/* Sets each vector to the products of every second word of both. VPMADDWD adds two products of
 * words, and one of the two has a factor 0. */
INLINE void multiply_words(words a, words b, vector *even, vector *odd)
{
    const __m256i low = _mm256_set1_epi32(0xffff);
    *even = _mm256_cvtepi32_ps(_mm256_madd_epi16(_mm256_and_si256(a, low), b));
    *odd = _mm256_cvtepi32_ps(_mm256_madd_epi16(_mm256_andnot_si256(low, a), b));
}

INLINE void products(const uint8_t *first, words first_zero, const uint8_t *second,
                     words second_zero, bool is_signed, vector made[4])
{
    words a[2];
    words b[2];
    split(first, is_signed, a);
    split(second, is_signed, b);
#pragma GCC unroll 2
    for (size_t i = 0; i < 2; i++)
        multiply_words(_mm256_sub_epi16(a[i], first_zero), _mm256_sub_epi16(b[i], second_zero),
                       &made[i], &made[2 + i]);
}

INLINE void products_by(const uint8_t *codes, words zero, words difference, bool is_signed,
                        vector made[4])
{
    words a[2];
    split(codes, is_signed, a);
#pragma GCC unroll 2
    for (size_t i = 0; i < 2; i++)
        multiply_words(difference, _mm256_sub_epi16(a[i], zero), &made[i], &made[2 + i]);
}

INLINE void store_products(uint8_t *y, const vector made[4], bool is_signed, bool stream)
{
    const __m256i order = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 8, 4, 12, 1, 9, 5, 13, 2, 10, 6, 14, 3, 11, 7, 15));
    const __m256i bytes = pack(made[0], made[2], made[1], made[3], is_signed);
    store_bytes(y, _mm256_shuffle_epi8(bytes, order), stream);
}

static void finish(void)
{
    _mm_sfence();
}

#define copy_in memcpy
#define copy_out memcpy

#include "kernels/binary/loops.h"

#endif
