/* Dequantize kernels on vectors of 16 floats without VBMI, for Skylake-X and Cascade Lake. Bytes
 * move only within 128-bit lanes, and tables of bytes have 16 entries. */
#include "kernels/dequantize/bounded.h"
#include "kernels/dequantize/dequantize.h"
#include "kernels/dequantize/read_avx512.h"
#include "kernels/dequantize/write_avx512.h"

/* The Makefile sets this on x86 only, for files with this suffix. */
#ifdef __AVX512BW__

#include <immintrin.h>
#include <math.h>

/* If a float8 block has at least this many elements, making a table of its results takes less time
 * than it saves. */
#define FLOAT8_BLOCK_MIN 128
#define FLOAT8_FP16_BLOCK_MIN 256

/* What codes mean. Tables of bytes have the same 16 entries in each lane. */
struct codes {
    __m512 values;         /* the float of each 4-bit code; FLOAT8: parts.values[0] */
    __m512 special_values; /* FLOAT8: parts.values[1] */
    __m512i low, high;     /* lower and upper bytes of 16-bit results; FLOAT8: parts.bytes[0] */
    __m512i special_low, special_high; /* FLOAT8: parts.bytes[1] */
    __m512i turn, shift, steps;        /* FLOAT8: parts.turn in each byte; parts.shift in each word;
                                          parts.steps in the order that finish_float8 needs */
    bool code_128_is_nan;
};

/* ---- Reading x ------------------------------------------------------------------------------ */

/* Moves dword 4 * k + j of a vector to position 4 * j + k, so that 128-bit lane j gets the j-th
 * four bytes of each 16 bytes. */
INLINE __m512i transpose(__m512i v)
{
    return _mm512_permutexvar_epi32(
        _mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0), v);
}

/* Moves the j-th eight bytes of each half to 128-bit lane j. */
INLINE __m512i interleave_halves(__m512i v)
{
    return _mm512_permutexvar_epi64(_mm512_set_epi64(7, 3, 6, 2, 5, 1, 4, 0), v);
}

/* Returns 2^23 + x as floats (see `magic` in read_avx2.h). x is four bytes of each 128-bit lane,
 * from index `first` on and `step` apart. */
INLINE __m512 magic_bytes(__m512i bytes, int first, int step)
{
    const __m512i places = _mm512_broadcast_i32x4(
        _mm_set_epi32(first + 3 * step, first + 2 * step, first + step, first));
    return _mm512_castsi512_ps(
        _mm512_mask_shuffle_epi8(_mm512_set1_epi32(0x4b000000), 0x1111111111111111, bytes, places));
}

/* Like magic_bytes, for 16-bit words. `first` and `step` count bytes. */
INLINE __m512 magic_words(__m512i words, int first, int step)
{
    const int all = 0x0101 * first + 0x0100;
    const __m512i places = _mm512_broadcast_i32x4(
        _mm_set_epi32(all + 0x0101 * 3 * step, all + 0x0101 * 2 * step, all + 0x0101 * step, all));
    return _mm512_castsi512_ps(
        _mm512_mask_shuffle_epi8(_mm512_set1_epi32(0x4b000000), 0x3333333333333333, words, places));
}

INLINE struct values magic_all_bytes(__m512i bytes, bool pairs)
{
    if (pairs) {
        const __m512i v = interleave_halves(bytes);
        return (struct values){magic_bytes(v, 0, 2), magic_bytes(v, 1, 2), magic_bytes(v, 8, 2),
                               magic_bytes(v, 9, 2)};
    }
    const __m512i v = transpose(bytes);
    return (struct values){magic_bytes(v, 0, 1), magic_bytes(v, 4, 1), magic_bytes(v, 8, 1),
                           magic_bytes(v, 12, 1)};
}

INLINE __m512 magic_even_words(__m512i words)
{
    return _mm512_castsi512_ps(
        _mm512_mask_blend_epi16(0xaaaaaaaa, words, _mm512_set1_epi32(0x4b000000)));
}

INLINE struct values magic_all_words(__m512i p, __m512i q, bool pairs)
{
    if (pairs)
        return (struct values){magic_even_words(p), magic_words(p, 2, 4), magic_even_words(q),
                               magic_words(q, 2, 4)};
    const __m512i v = interleave_halves(p);
    const __m512i w = interleave_halves(q);
    return (struct values){magic_words(v, 0, 2), magic_words(v, 8, 2), magic_words(w, 0, 2),
                           magic_words(w, 8, 2)};
}

INLINE struct values read_u8(const struct codes *codes, const uint8_t *x, bool pairs)
{
    (void)codes;
    return magic_all_bytes(_mm512_loadu_si512(x), pairs);
}

INLINE struct values read_s8(const struct codes *codes, const uint8_t *x, bool pairs)
{
    (void)codes;
    return magic_all_bytes(_mm512_xor_si512(_mm512_loadu_si512(x), _mm512_set1_epi8(-128)), pairs);
}

INLINE struct values read_u16(const struct codes *codes, const uint8_t *x, bool pairs)
{
    (void)codes;
    return magic_all_words(_mm512_loadu_si512(x), _mm512_loadu_si512(x + 64), pairs);
}

INLINE struct values read_s16(const struct codes *codes, const uint8_t *x, bool pairs)
{
    const __m512i sign = _mm512_set1_epi16(-0x8000);
    (void)codes;
    return magic_all_words(_mm512_xor_si512(_mm512_loadu_si512(x), sign),
                           _mm512_xor_si512(_mm512_loadu_si512(x + 64), sign), pairs);
}

/* Returns four bytes of x in each lane of the lower half and the next four bytes in each lane of
 * the upper half, shifted right so that each lane's code is in its lowest bits. */
INLINE __m512i shifted_64(const uint8_t *x)
{
    const __m512i distances =
        _mm512_set_epi32(28, 24, 20, 16, 12, 8, 4, 0, 28, 24, 20, 16, 12, 8, 4, 0);
    int32_t bits[2];
    memcpy(bits, x, sizeof(bits));
    return _mm512_srlv_epi32(_mm512_mask_set1_epi32(_mm512_set1_epi32(bits[0]), 0xff00, bits[1]),
                             distances);
}

INLINE struct values read_bits4(const struct codes *codes, const uint8_t *x, bool pairs)
{
    (void)pairs;
    return (struct values){
        look_up(codes->values, shifted_64(x)), look_up(codes->values, shifted_64(x + 8)),
        look_up(codes->values, shifted_64(x + 16)), look_up(codes->values, shifted_64(x + 24))};
}

INLINE struct values read_bits2(const struct codes *codes, const uint8_t *x, bool pairs)
{
    (void)pairs;
    return look_up_bits2(codes->values, x);
}

/* Returns 64 codes of 4 bits, each in the lower half of a byte. 128-bit lane j has the j-th eight
 * codes of each half. */
INLINE __m512i nibbles(const uint8_t *x)
{
    const __m256i places = _mm256_set_epi32(7, 3, 6, 2, 5, 1, 4, 0);
    const __m256i bytes =
        _mm256_permutevar8x32_epi32(_mm256_loadu_si256((const __m256i *)x), places);
    const __m512i words = _mm512_cvtepu8_epi16(bytes);
    return _mm512_ternarylogic_epi32(words, _mm512_slli_epi16(words, 4), _mm512_set1_epi8(0x0f),
                                     0xa8); /* (a | b) & c */
}

/* Like nibbles, for codes of 2 bits, each in the lowest bits of a byte. */
INLINE __m512i crumbs(const uint8_t *x)
{
    const __m128i places = _mm_set_epi64x(0x0f0e07060d0c0504, 0x0b0a030209080100);
    const __m512i a = _mm512_cvtepu8_epi32(_mm_shuffle_epi8(load_128(x), places));
    const __m512i b = _mm512_or_si512(a, _mm512_slli_epi32(a, 12));
    return _mm512_ternarylogic_epi32(b, _mm512_slli_epi32(b, 6), _mm512_set1_epi8(3), 0xa8);
}

/* Joins the lower and upper bytes of 64 elements to words. If the bytes are in the order of
 * nibbles, the words come out in order. */
INLINE void join_bytes(__m512i low, __m512i high, __m512i words[2])
{
    words[0] = _mm512_unpacklo_epi8(low, high);
    words[1] = _mm512_unpackhi_epi8(low, high);
}

/* Looks up the upper halves of the floats of 64 float8s, or their 16-bit results (struct
 * qk_float8_parts). Each 128-bit lane keeps its elements: words[0] has the first eight elements of
 * each lane, words[1] the other eight. */
INLINE void look_up_float8(const struct codes *codes, __m512i x, enum qk_type y_type,
                           __m512i words[2])
{
    const __m512i sign = _mm512_set1_epi8(-128);
    const __m512i s = _mm512_andnot_si512(sign, _mm512_add_epi8(x, codes->turn));
    const __m512i steps = _mm512_and_si512(_mm512_srlv_epi16(s, codes->shift),
                                           _mm512_set1_epi8(y_type == QK_FP16 ? 0x78 : 0x0f));
    const __mmask64 special = _mm512_testn_epi8_mask(s, _mm512_set1_epi8(0x70));
    __m512i low = _mm512_shuffle_epi8(codes->low, s);
    __m512i high = _mm512_shuffle_epi8(codes->high, s);
    low = _mm512_mask_shuffle_epi8(low, special, codes->special_low, s);
    high = _mm512_mask_shuffle_epi8(high, special, codes->special_high, s);
    high = _mm512_add_epi8(high, steps);
    high = _mm512_ternarylogic_epi32(high, x, sign, 0x78); /* high ^ (x & sign) */
    if (codes->code_128_is_nan) {
        const __mmask64 is_nan = _mm512_cmpeq_epi8_mask(x, sign);
        const short nan = (short)(y_type == QK_FP16 ? 0xfe00 : 0xffc0);
        low = _mm512_mask_mov_epi8(low, is_nan, _mm512_set1_epi8((char)nan));
        high = _mm512_mask_mov_epi8(high, is_nan, _mm512_set1_epi8((char)(nan >> 8)));
    }
    join_bytes(low, high, words);
}

/* Reorders bytes so that the floats come out in order after bytes have become words, and words
 * floats. */
INLINE __m512i order_plain(__m512i bytes)
{
    const __m512i places =
        _mm512_broadcast_i32x4(_mm_set_epi32(0x0f0b0e0a, 0x0d090c08, 0x07030602, 0x05010400));
    return _mm512_shuffle_epi8(transpose(bytes), places);
}

INLINE struct values read_float8(const struct codes *codes, const uint8_t *x, bool pairs)
{
    const __m512i bytes = _mm512_loadu_si512(x);
    __m512i words[2];
    look_up_float8(codes, pairs ? interleave_halves(bytes) : order_plain(bytes), QK_FP32, words);
    return (struct values){low_half(words[0]), high_half(words[0]), low_half(words[1]),
                           high_half(words[1])};
}

/* ---- Results of codes ----------------------------------------------------------------------- */

INLINE __m512i in_each_lane(const uint8_t bytes[16])
{
    return _mm512_broadcast_i32x4(load_128(bytes));
}

/* Sets the members one by one: see dequantize_avx512vbmi.c. */
INLINE struct codes load_codes(const struct qk_code_table *table, unsigned bits)
{
    const __m512i none = _mm512_setzero_si512();
    const __m512 zero = _mm512_setzero_ps();
    if (!table || bits < 8)
        return (struct codes){table ? _mm512_loadu_ps(table->values) : zero,
                              zero,
                              none,
                              none,
                              none,
                              none,
                              none,
                              none,
                              none,
                              false};
    const struct qk_float8_parts *parts = &table->parts;
    const __m512i steps = _mm512_unpacklo_epi64(
        none, _mm512_unpacklo_epi32(transpose(_mm512_castsi128_si512(load_128(parts->steps[0]))),
                                    transpose(_mm512_castsi128_si512(load_128(parts->steps[1])))));
    return (struct codes){_mm512_loadu_ps(parts->values[0]),
                          _mm512_loadu_ps(parts->values[1]),
                          in_each_lane(parts->bytes[0][0]),
                          in_each_lane(parts->bytes[0][1]),
                          in_each_lane(parts->bytes[1][0]),
                          in_each_lane(parts->bytes[1][1]),
                          _mm512_set1_epi8((char)parts->turn),
                          _mm512_set1_epi16(parts->shift),
                          steps,
                          isnan(table->values[128])};
}

/* Returns dword `first` of each 128-bit lane, one after the other, in each lane. */
INLINE __m512i collect_dwords(__m512i v, int first)
{
    const __m512i places = _mm512_broadcast_i32x4(_mm_set_epi32(12, 8, 4, 0));
    return _mm512_permutexvar_epi32(_mm512_add_epi32(places, _mm512_set1_epi32(first)), v);
}

/* Returns 16-bit results, each in a dword: floats converted to FP16 or rounded to BF16. */
INLINE __m512i result_words(__m512 values, enum qk_type y_type)
{
    return y_type == QK_FP16 ? _mm512_cvtepu16_epi32(_mm512_cvtps_ph(values, NEAREST))
                             : _mm512_srli_epi32(round_bf16(values), 16);
}

/* Splits 16-bit results p and q into bytes. Each 128-bit lane gets four lower bytes of p, four of
 * q, and then the upper bytes in the same way. */
INLINE __m512i split_words(__m512i p, __m512i q)
{
    const __m512i words = _mm512_packus_epi32(p, q);
    return _mm512_packus_epi16(_mm512_and_si512(words, _mm512_set1_epi16(0xff)),
                               _mm512_srli_epi16(words, 8));
}

/* Makes a table of the results of a float8 block. The scale is bounded. */
INLINE struct codes finish_float8(const struct codes *codes, vector scale, enum qk_type y_type)
{
    const short more = y_type == QK_FP16 ? 3 : 0;
    struct codes results = *codes;
    const __m512i common = result_words(multiply(codes->values, scale), y_type);
    const __m512i special = result_words(multiply(codes->special_values, scale), y_type);
    const __m512i steps = more > 0 ? _mm512_slli_epi16(codes->steps, 3) : codes->steps;
    const __m512i bytes = _mm512_sub_epi8(split_words(common, special), steps);
    results.shift = _mm512_sub_epi16(codes->shift, _mm512_set1_epi16(more));
    results.low = collect_dwords(bytes, 0);
    results.special_low = collect_dwords(bytes, 1);
    results.high = collect_dwords(bytes, 2);
    results.special_high = collect_dwords(bytes, 3);
    return results;
}

/* Makes a table of a block's results. */
INLINE struct codes finish_codes(const struct codes *codes, vector zero, vector scale,
                                 vector offset, struct form form)
{
    if (form.bits == 8)
        return finish_float8(codes, scale, form.y_type);
    struct codes results = *codes;
    results.values = add(multiply(subtract(codes->values, zero), scale), offset);
    if (form.y_type == QK_FP32)
        return results;
    const __m512i words = result_words(results.values, form.y_type);
    const __m512i bytes = split_words(words, words);
    results.low = collect_dwords(bytes, 0);
    results.high = collect_dwords(bytes, 2);
    return results;
}

/* Looks up the results of a chunk. */
INLINE struct values look_up_chunk(const struct codes *results, const uint8_t *x, unsigned bits,
                                   struct form form)
{
    const __m512 none = _mm512_setzero_ps();
    __m512i words[2];
    if (form.y_type == QK_FP32)
        return bits == 4 ? read_bits4(results, x, false) : read_bits2(results, x, false);
    if (bits == 8) {
        look_up_float8(results, interleave_halves(_mm512_loadu_si512(x)), form.y_type, words);
    } else {
        const __m512i codes = bits == 4 ? nibbles(x) : crumbs(x);
        join_bytes(_mm512_shuffle_epi8(results->low, codes),
                   _mm512_shuffle_epi8(results->high, codes), words);
    }
    return (struct values){_mm512_castsi512_ps(words[0]), none, _mm512_castsi512_ps(words[1]),
                           none};
}

INLINE bool finishes_float8(const struct qk_dequantize_args *args)
{
    const size_t least = args->y_type == QK_FP16 ? FLOAT8_FP16_BLOCK_MIN : FLOAT8_BLOCK_MIN;
    return args->y_type != QK_FP32 && !args->span.offsets && args->span.block >= least &&
           qk_scales_are_bounded(args);
}

/* Returns false: finish_codes makes the tables of results. */
INLINE bool take_float8(const struct qk_code_table *table, const struct codes *from,
                        const uint8_t *x, char *y, size_t chunks, float scale, struct form form,
                        struct how how)
{
    (void)table, (void)from, (void)x, (void)y, (void)chunks, (void)scale, (void)form, (void)how;
    return false;
}

#include "kernels/dequantize/widen_avx2.h"

#include "kernels/dequantize/kernels.h"

void qk_dequantize_init_avx512bw(struct qk_dequantize_kernels *kernels)
{
    init(kernels, "dequantize_avx512bw", 0.28);
}

#endif
