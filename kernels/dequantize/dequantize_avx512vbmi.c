/* Dequantize kernels on vectors of 16 floats with VBMI. Permutations of bytes read x, and look up
 * float8s in tables of 128 entries. What VBMI does not make faster is left to the AVX-512BW
 * kernels. */
#include "kernels/dequantize/dequantize.h"
#include "kernels/dequantize/read_avx512.h"
#include "kernels/dequantize/write_avx512.h"

/* The Makefile sets this on x86 only, for files with this suffix. */
#ifdef __AVX512VBMI__

#include <immintrin.h>
#include <math.h>

/* If a float8 block has at least this many chunks, making a table of its results takes less time
 * than it saves. */
#define FLOAT8_CHUNKS_MIN 8

/* ---- Reading x ------------------------------------------------------------------------------ */

/* What codes mean. low and high are for FLOAT8 only: the lower and upper bytes of the upper halves
 * of floats, or of results. */
struct codes {
    __m512 values; /* the float of each 4-bit code */
    __m512i words; /* 16-bit results of the codes; for BF16 each twice, side by side */
    __m512i low[2];
    __m512i high[2];
    __m512i nan_low;
    __m512i nan_high;
    bool code_128_is_nan;
};

/* Returns 2^23 + x as floats (see `magic` in read_avx2.h). x is 16 of `bytes`, from index `first`
 * on and `step` apart. */
INLINE __m512 magic_bytes(__m512i bytes, int first, int step)
{
    const __m512i lanes = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    const __m512i places = _mm512_add_epi32(_mm512_mullo_epi32(lanes, _mm512_set1_epi32(step)),
                                            _mm512_set1_epi32(first));
    return _mm512_castsi512_ps(_mm512_mask_permutexvar_epi8(_mm512_set1_epi32(0x4b000000),
                                                            0x1111111111111111, places, bytes));
}

/* Like magic_bytes, for 16-bit words. `first` and `step` count bytes. */
INLINE __m512 magic_words(__m512i words, int first, int step)
{
    const __m512i lanes = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    const __m512i places =
        _mm512_add_epi32(_mm512_mullo_epi32(lanes, _mm512_set1_epi32(step * 0x101)),
                         _mm512_set1_epi32(first * 0x101 + 0x100));
    return _mm512_castsi512_ps(_mm512_mask_permutexvar_epi8(_mm512_set1_epi32(0x4b000000),
                                                            0x3333333333333333, places, words));
}

INLINE struct values magic_all_bytes(__m512i bytes, bool pairs)
{
    if (pairs)
        return (struct values){magic_bytes(bytes, 0, 2), magic_bytes(bytes, 1, 2),
                               magic_bytes(bytes, 32, 2), magic_bytes(bytes, 33, 2)};
    return (struct values){magic_bytes(bytes, 0, 1), magic_bytes(bytes, 16, 1),
                           magic_bytes(bytes, 32, 1), magic_bytes(bytes, 48, 1)};
}

INLINE struct values magic_all_words(__m512i p, __m512i q, bool pairs)
{
    if (pairs)
        return (struct values){magic_words(p, 0, 4), magic_words(p, 2, 4), magic_words(q, 0, 4),
                               magic_words(q, 2, 4)};
    return (struct values){magic_words(p, 0, 2), magic_words(p, 32, 2), magic_words(q, 0, 2),
                           magic_words(q, 32, 2)};
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

/* Returns the bits of 8 bytes of x in every lane, shifted right by the lane's distance, so that the
 * lane's code is in the lowest bits. */
INLINE __m512i shifted_64(const uint8_t *x, __m512i distances)
{
    int64_t bits;
    memcpy(&bits, x, sizeof(bits));
    return _mm512_multishift_epi64_epi8(distances, _mm512_set1_epi64(bits));
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
    (void)pairs;
    return look_up_bits2(codes->values, x);
}

/* Looks up the 16-bit results of 32 codes. A permutation reads 5 bits of each word. Without `pairs`
 * they are a code and, above it, bits of the next code, so the table repeats its entries. With
 * `pairs` each result is in the table twice, side by side, and the lowest of the 5 bits is one of
 * the code before. */
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

/* The order of the bytes of x before two tables of bytes are unpacked to words. order_pairs makes
 * the words come out in order, as values in pairs need them. order_plain puts an element into the
 * lower word of each 32-bit lane and the element 16 further on into the upper word, as floats in
 * order need them. */
static const uint8_t order_pairs[64] = {
    0,  1,  2,  3,  4,  5,  6,  7,  32, 33, 34, 35, 36, 37, 38, 39, 8,  9,  10, 11, 12, 13,
    14, 15, 40, 41, 42, 43, 44, 45, 46, 47, 16, 17, 18, 19, 20, 21, 22, 23, 48, 49, 50, 51,
    52, 53, 54, 55, 24, 25, 26, 27, 28, 29, 30, 31, 56, 57, 58, 59, 60, 61, 62, 63};
static const uint8_t order_plain[64] = {
    0,  16, 1,  17, 2,  18, 3,  19, 32, 48, 33, 49, 34, 50, 35, 51, 4,  20, 5,  21, 6,  22,
    7,  23, 36, 52, 37, 53, 38, 54, 39, 55, 8,  24, 9,  25, 10, 26, 11, 27, 40, 56, 41, 57,
    42, 58, 43, 59, 12, 28, 13, 29, 14, 30, 15, 31, 44, 60, 45, 61, 46, 62, 47, 63};

/* Looks up two bytes for each of 64 codes and joins them to words. With `in_order` the words are in
 * order. Otherwise each word is beside the word of the element 16 further on. Seven bits of a code
 * find its bytes. The eighth bit is the sign. */
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

INLINE struct values read_float8(const struct codes *codes, const uint8_t *x, bool pairs)
{
    __m512i words[2];
    look_up_bytes(codes, x, pairs, words);
    return (struct values){low_half(words[0]), high_half(words[0]), low_half(words[1]),
                           high_half(words[1])};
}

/* ---- Results of codes ----------------------------------------------------------------------- */

/* Sets the members one by one. An initializer with fewer members would clear the whole struct
 * first, which would have to wait until stores past the caches end. */
INLINE struct codes load_codes(const struct qk_code_table *table, unsigned bits)
{
    const __m512i none = _mm512_setzero_si512();
    const __m512 values = table ? _mm512_loadu_ps(table->values) : _mm512_setzero_ps();
    if (!table || bits < 8)
        return (struct codes){values, none, {none, none}, {none, none}, none, none, false};
    const uint8_t *low = table->halves[0];
    const uint8_t *high = table->halves[1];
    return (struct codes){values,
                          none,
                          {_mm512_loadu_si512(low), _mm512_loadu_si512(low + 64)},
                          {_mm512_loadu_si512(high), _mm512_loadu_si512(high + 64)},
                          _mm512_set1_epi8((char)0xc0),
                          _mm512_set1_epi8((char)0xff),
                          isnan(table->values[128])};
}

/* Returns the rounded upper half of each float, twice. */
INLINE __m512i double_bf16(__m512 value)
{
    const __m512i rounded = round_bf16(value);
    return _mm512_mask_blend_epi16(0xaaaaaaaa, _mm512_srli_epi32(rounded, 16), rounded);
}

/* Makes a table of a block's results, for codes of less than 8 bits. */
INLINE struct codes finish_codes(const struct codes *codes, vector zero, vector scale,
                                 vector offset, struct form form)
{
    struct codes results = *codes;
    results.values = add(multiply(subtract(codes->values, zero), scale), offset);
    if (form.y_type == QK_FP16)
        results.words = _mm512_broadcast_i64x4(_mm512_cvtps_ph(results.values, NEAREST));
    else if (form.y_type == QK_BF16)
        results.words = double_bf16(results.values);
    return results;
}

/* Looks up the results of a chunk. */
INLINE struct values look_up_chunk(const struct codes *results, const uint8_t *x, unsigned bits,
                                   struct form form)
{
    if (form.y_type == QK_FP32)
        return bits == 4 ? read_bits4(results, x, false) : read_bits2(results, x, false);
    const bool pairs = form.y_type == QK_BF16;
    const __m512 none = _mm512_setzero_ps();
    return (struct values){look_up_words(results, x, bits, pairs), none,
                           look_up_words(results, x + 4 * bits, bits, pairs), none};
}

INLINE __m256i finish_16(const float *values, float scale, enum qk_type y_type)
{
    const vector y = multiply(load_vector(values), splat(scale));
    return y_type == QK_FP16 ? _mm512_cvtps_ph(y, NEAREST)
                             : _mm512_cvtepi32_epi16(_mm512_srli_epi32(round_bf16(y), 16));
}

/* Makes a table of the 16-bit results of float8s. The table has 128 codes, because results of
 * negative codes differ only in the sign. The scale must be normal, so that no code but a NaN's
 * becomes a NaN. */
INLINE struct codes finish_float8(const struct codes *from, const struct qk_code_table *table,
                                  float scale, enum qk_type y_type)
{
    struct codes codes = *from;
    for (size_t k = 0; k < 4; k++) {
        const __m512i words = _mm512_inserti64x4(
            _mm512_castsi256_si512(finish_16(table->values + 32 * k, scale, y_type)),
            finish_16(table->values + 32 * k + 16, scale, y_type), 1);
        const __m256i low = _mm512_cvtepi16_epi8(words);
        const __m256i high = _mm512_cvtepi16_epi8(_mm512_srli_epi16(words, 8));
        codes.low[k / 2] =
            k % 2 ? _mm512_inserti64x4(codes.low[k / 2], low, 1) : _mm512_castsi256_si512(low);
        codes.high[k / 2] =
            k % 2 ? _mm512_inserti64x4(codes.high[k / 2], high, 1) : _mm512_castsi256_si512(high);
    }
    if (y_type == QK_FP16) {
        codes.nan_low = _mm512_setzero_si512();
        codes.nan_high = _mm512_set1_epi8((char)0xfe);
    }
    return codes;
}

/* Dequantizes chunks of float8s by a table of their results. Returns false if the table would not
 * save time or if the scale is not normal. The caller then computes the chunks without it. */
INLINE bool take_float8(const struct qk_code_table *table, const struct codes *from,
                        const uint8_t *x, char *y, size_t chunks, float scale, struct form form,
                        struct how how)
{
    if (chunks < FLOAT8_CHUNKS_MIN || !isnormal(scale))
        return false;
    const struct codes codes = finish_float8(from, table, scale, form.y_type);
    for (; chunks > 0; chunks--, x += CHUNK, y += 2 * CHUNK) {
        __m512i words[2];
        if (how.stream)
            _mm_prefetch((const char *)x + PREFETCH_BYTES, _MM_HINT_T0);
        look_up_bytes(&codes, x, true, words);
        store_512(y, 0, words[0], how);
        store_512(y, 64, words[1], how);
    }
    return true;
}

/* Returns false: tables of few entries, as AVX-512BW has them, would not be faster. */
INLINE bool finishes_float8(const struct qk_dequantize_args *args)
{
    (void)args;
    return false;
}

/* Permutations of bytes would not help with 32-bit elements. */
#define SMALL_CODES_ONLY

#include "kernels/dequantize/kernels.h"

void qk_dequantize_init_avx512(struct qk_dequantize_kernels *kernels)
{
    kernels->name = "dequantize_avx512";
    kernels->run[QK_CODE_U8] = u8;
    kernels->run[QK_CODE_S8] = s8;
    kernels->run[QK_CODE_U16] = u16;
    kernels->run[QK_CODE_S16] = s16;
    kernels->run[QK_CODE_BITS2] = bits2;
    kernels->run[QK_CODE_BITS4] = bits4;
    kernels->run[QK_CODE_FLOAT8] = float8;
    kernels->element_cycles = 0.24;
}

#endif
