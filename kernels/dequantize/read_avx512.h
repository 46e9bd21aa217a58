/* How both AVX-512 tiers read 64 elements of x as floats. What a tier does better by instructions
 * of its own is in its file. Only for dequantize_avx512bw.c and dequantize_avx512vbmi.c. */
#ifndef KERNELS_DEQUANTIZE_READ_AVX512_H
#define KERNELS_DEQUANTIZE_READ_AVX512_H

/* The Makefile sets this on x86 only, for files with these suffixes. */
#ifdef __AVX512BW__

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

/* A chunk's 64 elements, in one of three orders. In order: 16 in each vector. In pairs: a has the
 * even and b the odd elements of the first 32, c and d have those of the other 32. As 16-bit
 * results: 32 in a and 32 in c. */
struct values {
    __m512 a, b, c, d;
};

INLINE __m512 to_float(__m512i words)
{
    return _mm512_cvtepi32_ps(words);
}

INLINE __m128i load_128(const uint8_t *x)
{
    return _mm_loadu_si128((const __m128i *)x);
}

/* Looks up codes. A permutation reads only the lowest 4 bits of an index, and the table repeats for
 * shorter codes, so the bits above a code need no mask. */
INLINE __m512 look_up(__m512 values, __m512i indices)
{
    return _mm512_permutexvar_ps(indices, values);
}

/* Returns 4 bytes of x in every lane, shifted right by the lane's distance, so that the lane's code
 * is in the lowest bits. */
INLINE __m512i shifted_32(const uint8_t *x, __m512i distances)
{
    int32_t bits;
    memcpy(&bits, x, sizeof(bits));
    return _mm512_srlv_epi32(_mm512_set1_epi32(bits), distances);
}

INLINE struct values look_up_bits2(__m512 values, const uint8_t *x)
{
    const __m512i distances =
        _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    return (struct values){look_up(values, shifted_32(x, distances)),
                           look_up(values, shifted_32(x + 4, distances)),
                           look_up(values, shifted_32(x + 8, distances)),
                           look_up(values, shifted_32(x + 12, distances))};
}

/* Returns floats whose upper halves are the lower 16 bits of each lane. high_half takes the upper
 * 16 bits. */
INLINE __m512 low_half(__m512i words)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(words, 16));
}

INLINE __m512 high_half(__m512i words)
{
    return _mm512_castsi512_ps(_mm512_and_si512(words, _mm512_set1_epi32(-0x10000)));
}

struct codes; /* what codes mean; each tier defines its own */

/* Returns 32-bit integers as they are, in vectors of floats. Subtracting a zero point converts
 * them. */
INLINE struct values read_32(const struct codes *codes, const uint8_t *x, bool pairs)
{
    (void)codes;
    (void)pairs;
    return (struct values){_mm512_loadu_ps(x), _mm512_loadu_ps(x + 64), _mm512_loadu_ps(x + 128),
                           _mm512_loadu_ps(x + 192)};
}

INLINE __m512 float_of_s32(__m512 words)
{
    return to_float(_mm512_castps_si512(words));
}

INLINE struct values read_s32(const struct codes *codes, const uint8_t *x, bool pairs)
{
    const struct values y = read_32(codes, x, pairs);
    return (struct values){float_of_s32(y.a), float_of_s32(y.b), float_of_s32(y.c),
                           float_of_s32(y.d)};
}

INLINE __m512 recast(__m512 value)
{
    const __m512 end = _mm512_set1_ps(0x1p31F);
    return _mm512_mask_sub_ps(value, _mm512_cmp_ps_mask(value, end, _CMP_EQ_OQ),
                              _mm512_setzero_ps(), end);
}

INLINE struct values read_s32_recast(const struct codes *codes, const uint8_t *x, bool pairs)
{
    const struct values y = read_s32(codes, x, pairs);
    return (struct values){recast(y.a), recast(y.b), recast(y.c), recast(y.d)};
}

#endif

#endif
