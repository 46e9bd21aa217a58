/* Computes with vectors of 16 floats, and rounds and stores chunks of y, for both AVX-512 tiers.
 * Only for dequantize_avx512bw.c and dequantize_avx512vbmi.c. */
#pragma once

#include "kernels/dequantize/dequantize.h"
#include "kernels/dequantize/read_avx512.h"

/* The Makefile sets this on x86 only, for files with these suffixes. */
#ifdef __AVX512BW__

/* How many bytes ahead x is prefetched if y is stored past the caches. */
#define PREFETCH_BYTES 2048

#define CHUNK QK_DEQUANTIZE_CHUNK
#define NEAREST (_MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)

typedef __m512 vector;
typedef vector subtract_fn(vector value, vector zero);

INLINE vector splat(float value)
{
    return _mm512_set1_ps(value);
}

INLINE vector load_vector(const float *from)
{
    return _mm512_loadu_ps(from);
}

INLINE void store_vector(void *to, vector v)
{
    _mm512_storeu_ps(to, v);
}

INLINE vector multiply(vector a, vector b)
{
    return _mm512_mul_ps(a, b);
}

INLINE vector add(vector a, vector b)
{
    return _mm512_add_ps(a, b);
}

/* ---- Zero points ---------------------------------------------------------------------------- */

INLINE __m512 subtract(__m512 value, __m512 zero)
{
    return _mm512_sub_ps(value, zero);
}

/* Floats have no zero points. */
INLINE __m512 subtract_none(__m512 value, __m512 zero)
{
    (void)zero;
    return value;
}

INLINE __m512 subtract_wrapping(__m512 value, __m512 zero)
{
    return to_float(_mm512_sub_epi32(_mm512_castps_si512(value), _mm512_castps_si512(zero)));
}

INLINE __m256i low_words(__m512 value)
{
    return _mm512_castsi512_si256(_mm512_castps_si512(value));
}

INLINE __m256i high_words(__m512 value)
{
    return _mm512_extracti64x4_epi64(_mm512_castps_si512(value), 1);
}

/* Doubles hold the difference of two 32-bit integers exactly. It is rounded once, to a float. */
INLINE __m512 difference(__m512d a, __m512d b, __m512d zero_a, __m512d zero_b)
{
    const __m256 low = _mm512_cvtpd_ps(_mm512_sub_pd(a, zero_a));
    const __m256 high = _mm512_cvtpd_ps(_mm512_sub_pd(b, zero_b));
    return _mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1);
}

INLINE __m512 subtract_s32(__m512 value, __m512 zero)
{
    return difference(_mm512_cvtepi32_pd(low_words(value)), _mm512_cvtepi32_pd(high_words(value)),
                      _mm512_cvtepi32_pd(low_words(zero)), _mm512_cvtepi32_pd(high_words(zero)));
}

INLINE __m512 subtract_u32(__m512 value, __m512 zero)
{
    return difference(_mm512_cvtepu32_pd(low_words(value)), _mm512_cvtepu32_pd(high_words(value)),
                      _mm512_cvtepu32_pd(low_words(zero)), _mm512_cvtepu32_pd(high_words(zero)));
}

/* ---- Rounding and storing y ----------------------------------------------------------------- */

#ifdef __AVX512VNNI__

/* Rounds to BF16, the upper half of a float. The sum bits + lowest + 0x7fff has the result in its
 * upper half, where `lowest` is bit 16, the lowest bit that stays, which makes ties go to even. One
 * VPDPWSSD does both additions: it adds the products of the halves (1, lowest) and (0x7fff, 1) to
 * the bits. VCVTNEPS2BF16 cannot be used, because it turns subnormals into zeros. NaNs are
 * canonical already. */
INLINE __m512i round_bf16(__m512 value)
{
    const __m512i bits = _mm512_castps_si512(value);
    const __m512i lowest =
        _mm512_ternarylogic_epi32(bits, _mm512_set1_epi32(0x10000), _mm512_set1_epi32(1), 0xea);
    return _mm512_dpwssd_epi32(bits, lowest, _mm512_set1_epi32(0x17fff));
}

#else

/* The same function without VNNI. Bit 16, the lowest bit that stays, is or-ed into bit 0 instead of
 * being added. If bit 0 is set already, there is no tie, and adding 1 more would not change the
 * upper half. */
INLINE __m512i round_bf16(__m512 value)
{
    const __m512i bits = _mm512_castps_si512(value);
    const __m512i odd = _mm512_ternarylogic_epi32(bits, _mm512_srli_epi32(bits, 16),
                                                  _mm512_set1_epi32(1), 0xf8); /* a | (b & c) */
    return _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
}

#endif

/* Returns the upper halves of the lanes of a in the lower 16 bits of each lane, and those of b in
 * the upper 16 bits. */
INLINE __m512i upper_halves(__m512i a, __m512i b)
{
    const __m512i upper = _mm512_broadcast_i32x4(_mm_set_epi32(0x0f0e, 0x0b0a, 0x0706, 0x0302));
    return _mm512_mask_shuffle_epi8(b, 0x3333333333333333, a, upper);
}

#ifdef __AVX512VNNI__

INLINE __m512i rounded_halves(__m512 a, __m512 b)
{
    return upper_halves(round_bf16(a), round_bf16(b));
}

#else

/* Rounds the upper halves of both vectors at once, as 16-bit words. An upper half grows by 1 if the
 * lower half is more than 0x8000, or if it is 0x8000 and the upper half is odd. */
INLINE __m512i rounded_halves(__m512 a, __m512 b)
{
    const __m512i p = _mm512_castps_si512(a);
    const __m512i q = _mm512_castps_si512(b);
    const __m512i lower =
        _mm512_broadcast_i32x4(_mm_set_epi32(0x0d0c0000, 0x09080000, 0x05040000, 0x01000000));
    const __m512i high = upper_halves(p, q);
    const __m512i low = _mm512_mask_shuffle_epi8(p, 0xcccccccccccccccc, q, lower);
    const __m512i is_even = _mm512_andnot_si512(high, _mm512_set1_epi16(1));
    return _mm512_add_epi16(high, _mm512_srli_epi16(_mm512_subs_epu16(low, is_even), 15));
}

#endif

static const uint16_t even_then_odd[32] = {0,  2,  4,  6,  8,  10, 12, 14, 16, 18, 20,
                                           22, 24, 26, 28, 30, 1,  3,  5,  7,  9,  11,
                                           13, 15, 17, 19, 21, 23, 25, 27, 29, 31};

/* Packs 32 floats as BF16. With `pairs`, a has the even elements and b the odd ones. */
INLINE __m512i pack_bf16(__m512 a, __m512 b, bool pairs)
{
    const __m512i words = rounded_halves(a, b);
    return pairs ? words : _mm512_permutexvar_epi16(_mm512_loadu_si512(even_then_odd), words);
}

/* How a chunk is stored. The last chunk of a call begins early (begin_early), with results that the
 * chunk before has stored. Stores past the caches skip these, in whole cache lines, because storing
 * a line twice takes long. */
struct how {
    bool stream;
    size_t stored; /* how many bytes of y at the chunk's beginning are stored already */
};

INLINE void store_512(char *y, size_t at, __m512i v, struct how how)
{
    if (!how.stream)
        _mm512_storeu_si512(y + at, v);
    else if (at >= how.stored)
        _mm512_stream_si512((__m512i *)(y + at), v);
}

/* 16 FP16s. The compiler merges the conversion with a store only if a vector of this type is
 * stored. The conversion then needs no permutation. */
typedef short halves_16 __attribute__((vector_size(32), aligned(1), may_alias));

/* Stores 32 floats as FP16. NaNs stay canonical. Storing the 16 FP16s of each register by
 * themselves costs less than joining them first. Stores past the caches are joined, so that each
 * fills a cache line. */
INLINE void store_fp16(char *y, size_t at, __m512 a, __m512 b, struct how how)
{
    const __m256i low = _mm512_cvtps_ph(a, NEAREST);
    const __m256i high = _mm512_cvtps_ph(b, NEAREST);
    if (how.stream) {
        store_512(y, at, _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1), how);
    } else {
        *(halves_16 *)(y + at) = (halves_16)low;
        *(halves_16 *)(y + at + 32) = (halves_16)high;
    }
}

/* How the values of a chunk are converted to y. */
enum result {
    RESULT_FP32,
    RESULT_FP16,
    RESULT_BF16,
    RESULT_BF16_PAIRS,
    RESULT_WORDS /* not at all: the values are 16-bit results already */
};

struct form {
    unsigned bits; /* of x */
    bool pairs;
    bool finished; /* the table of codes has results instead of values */
    enum qk_type y_type;
    size_t y_bytes;
    enum result result;
};

/* Returns how a chunk is computed and stored. BF16 costs less to pack if values are in pairs (see
 * struct values). They cannot be in pairs if parameters are loaded element by element, because
 * these are in order, nor for codes of less than 8 bits. */
INLINE struct form form_of(unsigned bits, enum qk_type y_type, bool finished, bool can_pair)
{
    struct form form = {bits, false, finished, y_type, y_type == QK_FP32 ? 4 : 2, RESULT_FP32};
    if (y_type == QK_FP32)
        return form;
    form.pairs = can_pair && bits >= 8 && bits < 32 && y_type == QK_BF16;
    form.result = finished            ? RESULT_WORDS
                  : y_type == QK_FP16 ? RESULT_FP16
                  : form.pairs        ? RESULT_BF16_PAIRS
                                      : RESULT_BF16;
    return form;
}

INLINE void store(char *y, struct values v, enum result result, struct how how)
{
    switch (result) {
    case RESULT_FP32:
        store_512(y, 0, _mm512_castps_si512(v.a), how);
        store_512(y, 64, _mm512_castps_si512(v.b), how);
        store_512(y, 128, _mm512_castps_si512(v.c), how);
        store_512(y, 192, _mm512_castps_si512(v.d), how);
        break;
    case RESULT_FP16:
        store_fp16(y, 0, v.a, v.b, how);
        store_fp16(y, 64, v.c, v.d, how);
        break;
    case RESULT_BF16:
    case RESULT_BF16_PAIRS:
        store_512(y, 0, pack_bf16(v.a, v.b, result == RESULT_BF16_PAIRS), how);
        store_512(y, 64, pack_bf16(v.c, v.d, result == RESULT_BF16_PAIRS), how);
        break;
    case RESULT_WORDS:
        store_512(y, 0, _mm512_castps_si512(v.a), how);
        store_512(y, 64, _mm512_castps_si512(v.c), how);
    }
}

INLINE void store_chunk(char *y, struct values v, struct form form, struct how how)
{
    if (__builtin_expect(how.stream, false)) /* memory limits the speed then */
        store(y, v, form.result, (struct how){true, how.stored});
    else
        store(y, v, form.result, (struct how){false, 0});
}

/* ---- Chunks of two blocks -------------------------------------------------------------------- */

/* Returns the first `count` elements of `before` and the other elements of `after`. */
INLINE vector mix_one(vector before, vector after, size_t count)
{
    return _mm512_mask_mov_ps(after, (__mmask16)_bzhi_u32(0xffff, (unsigned)count), before);
}

INLINE vector mix_words(vector before, vector after, size_t count)
{
    return _mm512_castsi512_ps(_mm512_mask_mov_epi16(_mm512_castps_si512(after),
                                                     _bzhi_u32(0xffffffff, (unsigned)count),
                                                     _mm512_castps_si512(before)));
}

/* Like mix_one, for a chunk whose values are in any of their three orders. `count` is less than
 * CHUNK. */
INLINE struct values mix(struct values before, struct values after, size_t count, struct form form)
{
    const size_t low = count < 32 ? count : 32;
    const size_t high = count - low;
    if (form.result == RESULT_WORDS)
        return (struct values){mix_words(before.a, after.a, low), after.b,
                               mix_words(before.c, after.c, high), after.d};
    if (form.pairs)
        return (struct values){
            mix_one(before.a, after.a, (low + 1) / 2), mix_one(before.b, after.b, low / 2),
            mix_one(before.c, after.c, (high + 1) / 2), mix_one(before.d, after.d, high / 2)};
    return (struct values){
        mix_one(before.a, after.a, low), mix_one(before.b, after.b, low < 16 ? 0 : low - 16),
        mix_one(before.c, after.c, high), mix_one(before.d, after.d, high < 16 ? 0 : high - 16)};
}

#endif
