/* How the AVX-512 kernels read x: 64 elements as floats. Only for dequantize_avx512vbmi.c. */
#ifndef KERNELS_DEQUANTIZE_READ_AVX512_H
#define KERNELS_DEQUANTIZE_READ_AVX512_H

/* Nothing but x86 sets this, and only for the files of this suffix. */
#ifdef __AVX512VBMI__

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

/* A chunk's 64 elements, in one of three orders. In order: 16 in each vector. In pairs: a has the
 * even and b the odd ones of the first 32, c and d those of the others. As 16-bit results: 32 in a
 * and 32 in c. */
struct values {
    __m512 a, b, c, d;
};

/* What codes mean, as reading needs it. For FLOAT8: the low and high bytes of each upper half. */
struct codes {
    __m512 values; /* of each 4-bit code */
    __m512i words; /* 16-bit results of the codes; for BF16 each twice, side by side */
    __m512i low[2];
    __m512i high[2];
    __m512i nan_low;
    __m512i nan_high;
    bool code_128_is_nan;
};

INLINE __m512 to_float(__m512i words)
{
    return _mm512_cvtepi32_ps(words);
}

INLINE __m128i load_128(const uint8_t *x)
{
    return _mm_loadu_si128((const __m128i *)x);
}

/* 2^23 + x as floats (see raise of dequantize_avx2.c). Takes 16 bytes of `bytes`, from number
 * `first` on and `step` apart, and puts them in the lowest bits. */
INLINE __m512 raise_bytes(__m512i bytes, int first, int step)
{
    const __m512i lanes = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    const __m512i places = _mm512_add_epi32(_mm512_mullo_epi32(lanes, _mm512_set1_epi32(step)),
                                            _mm512_set1_epi32(first));
    return _mm512_castsi512_ps(_mm512_mask_permutexvar_epi8(_mm512_set1_epi32(0x4b000000),
                                                            0x1111111111111111, places, bytes));
}

/* The same for 16-bit words. */
INLINE __m512 raise_words(__m512i words, int first, int step)
{
    const __m512i lanes = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    const __m512i places =
        _mm512_add_epi32(_mm512_mullo_epi32(lanes, _mm512_set1_epi32(step * 0x101)),
                         _mm512_set1_epi32(first * 0x101 + 0x100));
    return _mm512_castsi512_ps(_mm512_mask_permutexvar_epi8(_mm512_set1_epi32(0x4b000000),
                                                            0x3333333333333333, places, words));
}

INLINE struct values raise_all_bytes(__m512i bytes, bool pairs)
{
    if (pairs)
        return (struct values){raise_bytes(bytes, 0, 2), raise_bytes(bytes, 1, 2),
                               raise_bytes(bytes, 32, 2), raise_bytes(bytes, 33, 2)};
    return (struct values){raise_bytes(bytes, 0, 1), raise_bytes(bytes, 16, 1),
                           raise_bytes(bytes, 32, 1), raise_bytes(bytes, 48, 1)};
}

INLINE struct values raise_all_words(__m512i p, __m512i q, bool pairs)
{
    if (pairs)
        return (struct values){raise_words(p, 0, 4), raise_words(p, 2, 4), raise_words(q, 0, 4),
                               raise_words(q, 2, 4)};
    return (struct values){raise_words(p, 0, 2), raise_words(p, 32, 2), raise_words(q, 0, 2),
                           raise_words(q, 32, 2)};
}

INLINE struct values read_u8(const struct codes *codes, const uint8_t *x, bool pairs)
{
    (void)codes;
    return raise_all_bytes(_mm512_loadu_si512(x), pairs);
}

INLINE struct values read_s8(const struct codes *codes, const uint8_t *x, bool pairs)
{
    (void)codes;
    return raise_all_bytes(_mm512_xor_si512(_mm512_loadu_si512(x), _mm512_set1_epi8(-128)), pairs);
}

INLINE struct values read_u16(const struct codes *codes, const uint8_t *x, bool pairs)
{
    (void)codes;
    return raise_all_words(_mm512_loadu_si512(x), _mm512_loadu_si512(x + 64), pairs);
}

INLINE struct values read_s16(const struct codes *codes, const uint8_t *x, bool pairs)
{
    const __m512i sign = _mm512_set1_epi16(-0x8000);
    (void)codes;
    return raise_all_words(_mm512_xor_si512(_mm512_loadu_si512(x), sign),
                           _mm512_xor_si512(_mm512_loadu_si512(x + 64), sign), pairs);
}

/* Looks up codes. A permutation reads only the lowest 4 bits of an index, and the table repeats for
 * shorter codes, so the bits above a code need no mask. */
INLINE __m512 look_up(__m512 values, __m512i indices)
{
    return _mm512_permutexvar_ps(indices, values);
}

/* 8 bytes of x in every lane, shifted right by that lane's distance, so that its code is in the
 * lowest bits. */
INLINE __m512i shifted_64(const uint8_t *x, __m512i distances)
{
    int64_t bits;
    memcpy(&bits, x, sizeof(bits));
    return _mm512_multishift_epi64_epi8(distances, _mm512_set1_epi64(bits));
}

/* The same with 4 bytes of x. */
INLINE __m512i shifted_32(const uint8_t *x, __m512i distances)
{
    int32_t bits;
    memcpy(&bits, x, sizeof(bits));
    return _mm512_srlv_epi32(_mm512_set1_epi32(bits), distances);
}

INLINE struct values read_bits4(const struct codes *codes, const uint8_t *x, bool pairs)
{
    const __m512i distances =
        _mm512_set_epi32(60, 56, 52, 48, 44, 40, 36, 32, 28, 24, 20, 16, 12, 8, 4, 0);
    (void)pairs;
    return (struct values){look_up(codes->values, shifted_64(x, distances)),
                           look_up(codes->values, shifted_64(x + 8, distances)),
                           look_up(codes->values, shifted_64(x + 16, distances)),
                           look_up(codes->values, shifted_64(x + 24, distances))};
}

INLINE struct values read_bits2(const struct codes *codes, const uint8_t *x, bool pairs)
{
    const __m512i distances =
        _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    (void)pairs;
    return (struct values){look_up(codes->values, shifted_32(x, distances)),
                           look_up(codes->values, shifted_32(x + 4, distances)),
                           look_up(codes->values, shifted_32(x + 8, distances)),
                           look_up(codes->values, shifted_32(x + 12, distances))};
}

/* Looks up the 16-bit results of 32 codes. A permutation reads 5 bits of each word: a code and,
 * above it, bits of the next code, for which the table repeats; or, where each result is in the
 * table twice, one bit of the code before, below it. */
INLINE __m512 look_up_words(const struct codes *codes, const uint8_t *x, unsigned bits, bool pairs)
{
    const __m512i lanes = _mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0);
    const __m512i distances = _mm512_add_epi64(
        _mm512_mullo_epi64(lanes, _mm512_set1_epi64(4 * bits * 0x0001000100010001)),
        _mm512_set1_epi64(bits * 0x0003000200010000));
    __m512i bytes = _mm512_broadcastq_epi64(_mm_loadl_epi64((const __m128i *)x));
    if (bits == 4)
        bytes =
            _mm512_mask_broadcastq_epi64(bytes, 0xf0, _mm_loadl_epi64((const __m128i *)(x + 8)));
    const __m512i indices = _mm512_multishift_epi64_epi8(
        _mm512_sub_epi8(distances, _mm512_set1_epi8(pairs ? 1 : 0)), bytes);
    return _mm512_castsi512_ps(_mm512_permutexvar_epi16(indices, codes->words));
}

/* Where each byte of x goes before two tables of bytes are unpacked to words. For pairs, so that
 * the words come out in order; for floats in order, so that each 32-bit lane has an element in its
 * lower word and the one 16 elements further in its upper word. */
static const uint8_t order_pairs[64] = {
    0,  1,  2,  3,  4,  5,  6,  7,  32, 33, 34, 35, 36, 37, 38, 39, 8,  9,  10, 11, 12, 13,
    14, 15, 40, 41, 42, 43, 44, 45, 46, 47, 16, 17, 18, 19, 20, 21, 22, 23, 48, 49, 50, 51,
    52, 53, 54, 55, 24, 25, 26, 27, 28, 29, 30, 31, 56, 57, 58, 59, 60, 61, 62, 63};
static const uint8_t order_plain[64] = {
    0,  16, 1,  17, 2,  18, 3,  19, 32, 48, 33, 49, 34, 50, 35, 51, 4,  20, 5,  21, 6,  22,
    7,  23, 36, 52, 37, 53, 38, 54, 39, 55, 8,  24, 9,  25, 10, 26, 11, 27, 40, 56, 41, 57,
    42, 58, 43, 59, 12, 28, 13, 29, 14, 30, 15, 31, 44, 60, 45, 61, 46, 62, 47, 63};

/* Looks up two bytes for each of 64 codes and puts them together to words: in order, or, without
 * `in_order`, each beside the one that is 16 elements further. Seven bits of a code find its bytes;
 * the eighth is the sign. */
INLINE void look_up_bytes(const struct codes *codes, const uint8_t *x, bool in_order,
                          __m512i words[2])
{
    const __m512i order = _mm512_loadu_si512(in_order ? order_pairs : order_plain);
    const __m512i sign = _mm512_set1_epi8(-128);
    const __m512i bytes = _mm512_permutexvar_epi8(order, _mm512_loadu_si512(x));
    __m512i low = _mm512_permutex2var_epi8(codes->low[0], bytes, codes->low[1]);
    __m512i high = _mm512_permutex2var_epi8(codes->high[0], bytes, codes->high[1]);
    high = _mm512_ternarylogic_epi32(high, bytes, sign, 0x78); /* high ^ (bytes & sign) */
    if (codes->code_128_is_nan) {
        const __mmask64 is_nan = _mm512_cmpeq_epi8_mask(bytes, sign);
        low = _mm512_mask_mov_epi8(low, is_nan, codes->nan_low);
        high = _mm512_mask_mov_epi8(high, is_nan, codes->nan_high);
    }
    words[0] = _mm512_unpacklo_epi8(low, high);
    words[1] = _mm512_unpackhi_epi8(low, high);
}

/* The floats whose upper halves are the lower 16 bits of each lane, or the upper ones. */
INLINE __m512 low_half(__m512i words)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(words, 16));
}

INLINE __m512 high_half(__m512i words)
{
    return _mm512_castsi512_ps(_mm512_and_si512(words, _mm512_set1_epi32(-0x10000)));
}

INLINE struct values read_float8(const struct codes *codes, const uint8_t *x, bool pairs)
{
    __m512i words[2];
    look_up_bytes(codes, x, pairs, words);
    return (struct values){low_half(words[0]), high_half(words[0]), low_half(words[1]),
                           high_half(words[1])};
}

/* 32-bit integers as they are, in vectors of floats; subtracting a zero point makes floats of them.
 */
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
