/* Reads chunks of 32 elements of x as floats, for the AVX2 kernels. Only for dequantize_avx2.c. */
#pragma once

/* The Makefile sets this on x86 only, for files with this suffix. */
#ifdef __AVX2__

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

/* A chunk's 32 elements, in one of three orders:
 *
 *                      a              b              c               d
 *    in order          0 1 2 ... 7    8 9 ... 15     16 17 ... 23    24 25 ... 31
 *    in pairs          0 2 4 ... 14   1 3 5 ... 15   16 18 ... 30    17 19 ... 31
 *    16-bit results    0 1 2 ... 15   -              16 17 ... 31    -
 *
 * Pairs cost less to pack as BF16. */
struct values {
    __m256 a, b, c, d;
};

/* The tables in which codes are looked up. Tables of bytes have the same 16 entries in both 128-bit
 * lanes. */
struct codes {
    __m256 values[2]; /* BITS2 and BITS4: the float of each code; FLOAT8: the even elements of
                         parts.values[0], then the odd ones */
    __m256 special_values[2]; /* FLOAT8: the same of parts.values[1] */
    __m256i low, high; /* lower and upper bytes of 16-bit results or, before there are results, of
                          the upper halves of values; FLOAT8: parts.bytes[0] */
    __m256i special_low, special_high; /* FLOAT8: parts.bytes[1] */
    __m256i steps, special_steps;      /* FLOAT8: parts.steps */
    __m256i turn;                      /* FLOAT8: parts.turn in each byte */
    __m256i factor; /* FLOAT8: 2^(16 - parts.shift) in each word: the upper half of the product of a
                       word and this factor is the word, shifted right by parts.shift */
    bool code_128_is_nan;
};

INLINE __m256i load_words(const uint8_t *x)
{
    return _mm256_loadu_si256((const __m256i *)x);
}

/* Returns 2^23 + x as floats. From 2^23 on, the last bit of a float is worth 1, so putting a small
 * integer into the lowest bits adds it. Signed integers have their sign bit, `sign`, flipped first,
 * which adds the worth of that bit. */
INLINE __m256 magic(__m256i integers, int sign)
{
    return _mm256_castsi256_ps(_mm256_xor_si256(integers, _mm256_set1_epi32(0x4b000000 | sign)));
}

/* Returns 16 bytes of x in both 128-bit lanes. */
INLINE __m256i bytes_in_each_lane(const uint8_t *x)
{
    return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)x));
}

/* Returns eight of these 16 bytes, from index `first` on and `step` apart, each in the lowest bits
 * of a 32-bit lane. `bytes` has the same 16 bytes in both 128-bit lanes. Newer CPUs shuffle within
 * 128-bit lanes on two ports, but extend bytes (VPMOVZXBD) on only one port. */
INLINE __m256i extend_bytes(__m256i bytes, int first, int step)
{
    const int none = -0x100; /* makes the upper three bytes of each lane 0 */
    const __m256i lanes = _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0);
    const __m256i places = _mm256_add_epi32(_mm256_mullo_epi32(lanes, _mm256_set1_epi32(step)),
                                            _mm256_set1_epi32(none + first));
    return _mm256_shuffle_epi8(bytes, places);
}

INLINE struct values magic_bytes(const uint8_t *x, int sign, bool pairs)
{
    const __m256i p = bytes_in_each_lane(x);
    const __m256i q = bytes_in_each_lane(x + 16);
    const int step = pairs ? 2 : 1;
    const int next = pairs ? 1 : 8;
    return (struct values){
        magic(extend_bytes(p, 0, step), sign), magic(extend_bytes(p, next, step), sign),
        magic(extend_bytes(q, 0, step), sign), magic(extend_bytes(q, next, step), sign)};
}

/* Swaps the two groups of eight bytes in the middle: 128-bit lane 0 gets bytes 0 to 7 and 16 to 23,
 * lane 1 gets bytes 8 to 15 and 24 to 31. */
INLINE __m256i interleave_halves(__m256i v)
{
    return _mm256_permute4x64_epi64(v, 0xd8);
}

/* Converts the even ones of 16 words. Without a sign bit to flip, one blend puts the upper half of
 * the float 2^23 over the odd words. */
INLINE __m256 magic_even_words(__m256i words, int sign)
{
    if (sign == 0)
        return _mm256_castsi256_ps(_mm256_blend_epi16(words, _mm256_set1_epi32(0x4b000000), 0xaa));
    return magic(_mm256_blend_epi16(words, _mm256_setzero_si256(), 0xaa), sign);
}

/* Flips the bits of `sign` in each word. */
INLINE __m256i flip(__m256i words, int sign)
{
    return sign ? _mm256_xor_si256(words, _mm256_set1_epi16((short)sign)) : words;
}

INLINE struct values magic_words(const uint8_t *x, int sign, bool pairs)
{
    if (!pairs) {
        const __m256i above = _mm256_set1_epi16(0x4b00);
        const __m256i v = flip(interleave_halves(load_words(x)), sign);
        const __m256i w = flip(interleave_halves(load_words(x + 32)), sign);
        return (struct values){_mm256_castsi256_ps(_mm256_unpacklo_epi16(v, above)),
                               _mm256_castsi256_ps(_mm256_unpackhi_epi16(v, above)),
                               _mm256_castsi256_ps(_mm256_unpacklo_epi16(w, above)),
                               _mm256_castsi256_ps(_mm256_unpackhi_epi16(w, above))};
    }
    const __m256i p = load_words(x);
    const __m256i q = load_words(x + 32);
    return (struct values){magic_even_words(p, sign), magic(_mm256_srli_epi32(p, 16), sign),
                           magic_even_words(q, sign), magic(_mm256_srli_epi32(q, 16), sign)};
}

INLINE struct values read_u8(const struct codes *codes, const uint8_t *x, bool pairs)
{
    (void)codes;
    return magic_bytes(x, 0, pairs);
}

INLINE struct values read_s8(const struct codes *codes, const uint8_t *x, bool pairs)
{
    (void)codes;
    return magic_bytes(x, 0x80, pairs);
}

INLINE struct values read_u16(const struct codes *codes, const uint8_t *x, bool pairs)
{
    (void)codes;
    return magic_words(x, 0, pairs);
}

INLINE struct values read_s16(const struct codes *codes, const uint8_t *x, bool pairs)
{
    (void)codes;
    return magic_words(x, 0x8000, pairs);
}

/* Looks up the floats of eight 4-bit codes. The floats may be any, as those of finished tables are.
 * A permutation looks up 3 bits in a table of 8 entries. Bit 3 chooses between two tables. */
INLINE __m256 look_up_4(const struct codes *codes, const uint8_t *x)
{
    const __m256i distances = _mm256_set_epi32(28, 24, 20, 16, 12, 8, 4, 0);
    int32_t bits;
    memcpy(&bits, x, sizeof(bits));
    const __m256i indices = _mm256_srlv_epi32(_mm256_set1_epi32(bits), distances);
    return _mm256_blendv_ps(_mm256_permutevar8x32_ps(codes->values[0], indices),
                            _mm256_permutevar8x32_ps(codes->values[1], indices),
                            _mm256_castsi256_ps(_mm256_slli_epi32(indices, 28)));
}

INLINE struct values look_up_bits4(const struct codes *codes, const uint8_t *x)
{
    return (struct values){look_up_4(codes, x), look_up_4(codes, x + 4), look_up_4(codes, x + 8),
                           look_up_4(codes, x + 12)};
}

INLINE __m256 look_up_2(const struct codes *codes, const uint8_t *x)
{
    const __m256i distances = _mm256_set_epi32(14, 12, 10, 8, 6, 4, 2, 0);
    uint16_t bits;
    memcpy(&bits, x, sizeof(bits));
    return _mm256_permutevar8x32_ps(codes->values[0],
                                    _mm256_srlv_epi32(_mm256_set1_epi32(bits), distances));
}

INLINE struct values read_bits2(const struct codes *codes, const uint8_t *x, bool pairs)
{
    (void)pairs;
    return (struct values){look_up_2(codes, x), look_up_2(codes, x + 2), look_up_2(codes, x + 4),
                           look_up_2(codes, x + 6)};
}

/* Returns 32 codes of 4 bits, each in the lower half of a byte. 128-bit lane 0 has codes 0 to 7 and
 * 16 to 23, lane 1 has codes 8 to 15 and 24 to 31. */
INLINE __m256i nibbles(const uint8_t *x)
{
    const __m128i bytes = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)x), 0xd8);
    const __m256i words = _mm256_cvtepu8_epi16(bytes);
    return _mm256_and_si256(_mm256_or_si256(words, _mm256_slli_epi16(words, 4)),
                            _mm256_set1_epi8(0x0f));
}

/* Like nibbles, for codes of 2 bits, each in the lowest bits of a byte. */
INLINE __m256i crumbs(const uint8_t *x)
{
    const __m128i bytes = _mm_shufflelo_epi16(_mm_loadl_epi64((const __m128i *)x), 0xd8);
    const __m256i a = _mm256_cvtepu8_epi32(bytes);
    const __m256i b = _mm256_or_si256(a, _mm256_slli_epi32(a, 12));
    return _mm256_and_si256(_mm256_or_si256(b, _mm256_slli_epi32(b, 6)), _mm256_set1_epi8(3));
}

/* Joins the lower and upper bytes of 32 elements to words. If the bytes are in the order of
 * `nibbles`, joined[0] has elements 0 to 15 in order, and joined[1] has elements 16 to 31. */
INLINE void join_bytes(__m256i low, __m256i high, __m256i joined[2])
{
    joined[0] = _mm256_unpacklo_epi8(low, high);
    joined[1] = _mm256_unpackhi_epi8(low, high);
}

/* Looks up the upper halves of the floats of 32 float8s, or their results of type y_type (struct
 * qk_float8_parts). Each 128-bit lane keeps its elements: joined[0] has the first eight elements of
 * each lane, joined[1] the other eight. Each code is looked up in both tables. A shuffle returns 0
 * for an index whose highest bit is set, and for each code one of the two indices, `common` and
 * `special`, has that bit set. */
INLINE void look_up_float8(const struct codes *codes, __m256i x, enum qk_type y_type,
                           __m256i joined[2])
{
    const __m256i sign = _mm256_set1_epi8(-128);
    const __m256i s = _mm256_andnot_si256(sign, _mm256_add_epi8(x, codes->turn));
    const __m256i common = _mm256_sub_epi8(s, _mm256_set1_epi8(16));
    const __m256i special = _mm256_adds_epu8(s, _mm256_set1_epi8(0x70));
    __m256i steps = _mm256_and_si256(_mm256_mulhi_epu16(s, codes->factor), _mm256_set1_epi8(0x0f));
    if (y_type == QK_FP16)
        steps = _mm256_slli_epi16(steps, 3);
    __m256i low = _mm256_or_si256(_mm256_shuffle_epi8(codes->low, common),
                                  _mm256_shuffle_epi8(codes->special_low, special));
    __m256i high = _mm256_or_si256(_mm256_shuffle_epi8(codes->high, common),
                                   _mm256_shuffle_epi8(codes->special_high, special));
    high = _mm256_xor_si256(_mm256_add_epi8(high, steps), _mm256_and_si256(x, sign));
    if (codes->code_128_is_nan) { /* so far the result of code 128 is -0 */
        const __m256i is_nan = _mm256_cmpeq_epi8(x, sign);
        if (y_type == QK_FP16) {
            high = _mm256_or_si256(high, _mm256_and_si256(is_nan, _mm256_set1_epi8((char)0xfe)));
        } else {
            low = _mm256_or_si256(low, _mm256_and_si256(is_nan, _mm256_set1_epi8((char)0xc0)));
            high = _mm256_or_si256(high, is_nan);
        }
    }
    join_bytes(low, high, joined);
}

/* Reorders bytes so that the floats of read_float8 come out in order, after join_bytes, low_half
 * and high_half. The bytes of the result, by their index in `bytes`:
 *
 *    lane 0    0 8 1 9 2 10 3 11       16 24 17 25 18 26 19 27
 *    lane 1    4 12 5 13 6 14 7 15     20 28 21 29 22 30 23 31
 *
 *    join_bytes makes words of the left half of each lane in joined[0]: 0 8 1 9 2 10 3 11 and
 *    4 12 5 13 6 14 7 15. low_half takes the even words, which are elements 0 to 7, and high_half
 *    the odd ones, elements 8 to 15.
 */
INLINE __m256i order_plain(__m256i bytes)
{
    const __m256i fours = _mm256_set_epi32(7, 5, 3, 1, 6, 4, 2, 0);
    const __m256i places =
        _mm256_broadcastsi128_si256(_mm_set_epi32(0x0f0b0e0a, 0x0d090c08, 0x07030602, 0x05010400));
    return _mm256_shuffle_epi8(_mm256_permutevar8x32_epi32(bytes, fours), places);
}

/* Return floats whose upper halves are 16 bits of each 32-bit lane: low_half takes the lower 16
 * bits, high_half the upper ones. The lower halves of the floats are 0. */
INLINE __m256 low_half(__m256i v)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(v, 16));
}

INLINE __m256 high_half(__m256i v)
{
    return _mm256_castsi256_ps(_mm256_blend_epi16(v, _mm256_setzero_si256(), 0x55));
}

/* Returns 32 codes of 4 bits, each in the lower half of a byte, in the order that order_plain gives
 * to bytes. Code 2 i is the lower half of byte i of x, and code 2 i + 1 the upper half. */
INLINE __m256i nibbles_plain(const uint8_t *x)
{
    const __m256i places = _mm256_set_epi8(15, 11, 15, 11, 14, 10, 14, 10, 7, 3, 7, 3, 6, 2, 6, 2,
                                           13, 9, 13, 9, 12, 8, 12, 8, 5, 1, 5, 1, 4, 0, 4, 0);
    const __m256i low = _mm256_shuffle_epi8(bytes_in_each_lane(x), places);
    return _mm256_and_si256(_mm256_blend_epi16(low, _mm256_srli_epi16(low, 4), 0xaa),
                            _mm256_set1_epi8(0x0f));
}

/* Looks up only the upper halves of floats, because the lower halves are 0 for all 4-bit codes. */
INLINE struct values read_bits4(const struct codes *codes, const uint8_t *x, bool pairs)
{
    const __m256i v = nibbles_plain(x);
    __m256i joined[2];
    (void)pairs;
    join_bytes(_mm256_shuffle_epi8(codes->low, v), _mm256_shuffle_epi8(codes->high, v), joined);
    return (struct values){low_half(joined[0]), high_half(joined[0]), low_half(joined[1]),
                           high_half(joined[1])};
}

INLINE struct values read_float8(const struct codes *codes, const uint8_t *x, bool pairs)
{
    const __m256i v = load_words(x);
    __m256i joined[2];
    look_up_float8(codes, pairs ? interleave_halves(v) : order_plain(v), QK_FP32, joined);
    return (struct values){low_half(joined[0]), high_half(joined[0]), low_half(joined[1]),
                           high_half(joined[1])};
}

/* Returns 32-bit integers as they are, in vectors of floats. Subtracting a zero point converts
 * them. */
INLINE struct values read_32(const struct codes *codes, const uint8_t *x, bool pairs)
{
    (void)pairs;
    (void)codes;
    return (struct values){
        _mm256_castsi256_ps(load_words(x)), _mm256_castsi256_ps(load_words(x + 32)),
        _mm256_castsi256_ps(load_words(x + 64)), _mm256_castsi256_ps(load_words(x + 96))};
}

INLINE struct values read_s32(const struct codes *codes, const uint8_t *x, bool pairs)
{
    (void)pairs;
    (void)codes;
    return (struct values){
        _mm256_cvtepi32_ps(load_words(x)), _mm256_cvtepi32_ps(load_words(x + 32)),
        _mm256_cvtepi32_ps(load_words(x + 64)), _mm256_cvtepi32_ps(load_words(x + 96))};
}

/* Turns 2^31 into -2^31, as QK_CODE_S32_RECAST requires. */
INLINE __m256 recast(__m256 value)
{
    const __m256 is_end = _mm256_cmp_ps(value, _mm256_set1_ps(0x1p31F), _CMP_EQ_OQ);
    return _mm256_or_ps(value, _mm256_and_ps(is_end, _mm256_set1_ps(-0.0F)));
}

INLINE struct values read_s32_recast(const struct codes *codes, const uint8_t *x, bool pairs)
{
    const struct values v = read_s32(codes, x, pairs);
    return (struct values){recast(v.a), recast(v.b), recast(v.c), recast(v.d)};
}

#endif
