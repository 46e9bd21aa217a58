/* Reads chunks of 64 elements of x as floats, for both AVX-512 tiers. What a tier does better by
 * instructions of its own is in its file. Only for dequantize_avx512bw.c and
 * dequantize_avx512vbmi.c. */
#pragma once

/* The Makefile sets this on x86 only, for files with these suffixes. */
#ifdef __AVX512BW__

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

/* A chunk's 64 elements, in one of three orders:
 *
 *                      a               b               c               d
 *    in order          0 1 2 ... 15    16 17 ... 31    32 33 ... 47    48 49 ... 63
 *    in pairs          0 2 4 ... 30    1 3 5 ... 31    32 34 ... 62    33 35 ... 63
 *    16-bit results    0 1 2 ... 31    -               32 33 ... 63    -
 *
 * Pairs cost less to pack as BF16. */
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

/* Looks up the floats of 16 codes, one in the lowest bits of each index. A permutation reads only
 * the lowest 4 bits of an index, and the table repeats for shorter codes, so the bits above a code
 * need no mask. */
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

/* Return floats whose upper halves are 16 bits of each 32-bit lane: low_half takes the lower 16
 * bits, high_half the upper ones. The lower halves of the floats are 0. */
INLINE __m512 low_half(__m512i words)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(words, 16));
}

INLINE __m512 high_half(__m512i words)
{
    return _mm512_castsi512_ps(_mm512_and_si512(words, _mm512_set1_epi32(-0x10000)));
}

struct codes; /* the tables in which codes are looked up; each tier defines its own */

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

/* Turns 2^31 into -2^31, as QK_CODE_S32_RECAST requires. */
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
