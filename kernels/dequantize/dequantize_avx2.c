/* Dequantize kernels on vectors of 8 floats: how they compute and store a chunk. read_avx2.h reads
 * the chunk, and loops.h has the loops over a span. */
#include "kernels/dequantize/bounded.h"
#include "kernels/dequantize/dequantize.h"
#include "kernels/dequantize/read_avx2.h"

/* The Makefile sets this on x86 only, for files with this suffix. */
#ifdef __AVX2__

#include <immintrin.h>
#include <math.h>
#include <string.h>

/* How many elements a loop takes at a time. */
#define CHUNK ((size_t)32)

/* If a float8 block has at least this many elements, making a table of its results takes less time
 * than it saves. */
#define FLOAT8_BLOCK_MIN 64
#define FLOAT8_FP16_BLOCK_MIN 128

typedef __m256 vector;
typedef vector subtract_fn(vector value, vector zero);

INLINE vector splat(float value)
{
    return _mm256_set1_ps(value);
}

INLINE vector load_vector(const float *from)
{
    return _mm256_loadu_ps(from);
}

INLINE void store_vector(void *to, vector v)
{
    _mm256_storeu_ps(to, v);
}

INLINE vector multiply(vector a, vector b)
{
    return _mm256_mul_ps(a, b);
}

INLINE vector add(vector a, vector b)
{
    return _mm256_add_ps(a, b);
}

/* ---- Zero points ---------------------------------------------------------------------------- */

INLINE __m256 subtract(__m256 value, __m256 zero)
{
    return _mm256_sub_ps(value, zero);
}

/* Floats have no zero points. */
INLINE __m256 subtract_none(__m256 value, __m256 zero)
{
    (void)zero;
    return value;
}

INLINE __m256 subtract_wrapping(__m256 value, __m256 zero)
{
    return _mm256_cvtepi32_ps(
        _mm256_sub_epi32(_mm256_castps_si256(value), _mm256_castps_si256(zero)));
}

INLINE __m256d low_doubles(__m256 integers)
{
    return _mm256_cvtepi32_pd(_mm256_castsi256_si128(_mm256_castps_si256(integers)));
}

INLINE __m256d high_doubles(__m256 integers)
{
    return _mm256_cvtepi32_pd(_mm256_extracti128_si256(_mm256_castps_si256(integers), 1));
}

/* Doubles hold the difference of two 32-bit integers exactly. It is rounded once, to a float. */
INLINE __m256 subtract_s32(__m256 value, __m256 zero)
{
    const __m128 low = _mm256_cvtpd_ps(_mm256_sub_pd(low_doubles(value), low_doubles(zero)));
    const __m128 high = _mm256_cvtpd_ps(_mm256_sub_pd(high_doubles(value), high_doubles(zero)));
    return _mm256_set_m128(high, low);
}

/* Flips the top bits, which subtracts 2^31 from both numbers and makes them signed. The difference
 * stays the same. */
INLINE __m256 subtract_u32(__m256 value, __m256 zero)
{
    const __m256 sign = _mm256_set1_ps(-0.0F);
    return subtract_s32(_mm256_xor_ps(value, sign), _mm256_xor_ps(zero, sign));
}

/* ---- Rounding and storing y ----------------------------------------------------------------- */

/* Rounds 16 floats to BF16, the upper half of a float. The results of a become the lower 16 bits of
 * each lane, those of b the upper 16 bits. An upper half grows by 1 if the lower half is more than
 * 0x8000, or if it is 0x8000 and the upper half is odd. NaNs are canonical already. */
INLINE __m256i rounded_halves(__m256 a, __m256 b)
{
    const __m256i p = _mm256_castps_si256(a);
    const __m256i q = _mm256_castps_si256(b);
    const __m256i high = _mm256_blend_epi16(_mm256_srli_epi32(p, 16), q, 0xaa);
    const __m256i low = _mm256_blend_epi16(p, _mm256_slli_epi32(q, 16), 0xaa);
    const __m256i is_even = _mm256_andnot_si256(high, _mm256_set1_epi16(1));
    return _mm256_add_epi16(high, _mm256_srli_epi16(_mm256_subs_epu16(low, is_even), 15));
}

/* Packs 16 floats as BF16. With `pairs`, a has the even elements and b the odd ones. */
INLINE __m256i pack_bf16(__m256 a, __m256 b, bool pairs)
{
    const __m256i halves = rounded_halves(a, b);
    const __m256i even_then_odd =
        _mm256_broadcastsi128_si256(_mm_set_epi32(0x0f0e0b0a, 0x07060302, 0x0d0c0908, 0x05040100));
    return pairs ? halves
                 : _mm256_permute4x64_epi64(_mm256_shuffle_epi8(halves, even_then_odd), 0xd8);
}

/* Packs 16 floats as FP16. NaNs stay canonical. With `pairs`, a has the even elements and b the odd
 * ones. */
INLINE __m256i pack_fp16(__m256 a, __m256 b, bool pairs)
{
    const __m128i p = _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT);
    const __m128i q = _mm256_cvtps_ph(b, _MM_FROUND_TO_NEAREST_INT);
    return pairs ? _mm256_set_m128i(_mm_unpackhi_epi16(p, q), _mm_unpacklo_epi16(p, q))
                 : _mm256_set_m128i(q, p);
}

/* How a chunk is stored: past the caches or not, and how much of it the chunk before has stored
 * already (begin_early in loops.h). */
struct how {
    bool stream;
    size_t stored; /* how many bytes of y at the chunk's beginning are stored already */
};

/* Keeps the compiler from reordering stores. The CPU merges two stores to a cache line only if one
 * directly follows the other. With stores out of order, FP32 results with parameters along the last
 * axis took 1.6 times as long. */
INLINE void keep_order(void)
{
    __asm__ volatile("" : : : "memory");
}

INLINE void store_256(char *y, size_t at, __m256i v, struct how how)
{
    if (!how.stream)
        _mm256_storeu_si256((__m256i *)(y + at), v);
    else if (at >= how.stored)
        _mm256_stream_si256((__m256i *)(y + at), v);
    keep_order();
}

/* The compiler merges the conversion with a store only if a vector of this type is stored. The
 * conversion then needs no permutation. */
typedef short halves_8 __attribute__((vector_size(16), aligned(1), may_alias));

INLINE void store_fp16(char *y, size_t at, __m256 a, __m256 b, struct how how)
{
    if (how.stream) {
        store_256(y, at, pack_fp16(a, b, false), how);
    } else {
        *(halves_8 *)(y + at) = (halves_8)_mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT);
        *(halves_8 *)(y + at + 16) = (halves_8)_mm256_cvtps_ph(b, _MM_FROUND_TO_NEAREST_INT);
    }
}

/* How the values of a chunk are converted to y. */
enum result {
    RESULT_FP32,
    RESULT_FP16,
    RESULT_BF16,
    RESULT_BF16_PAIRS,
    RESULT_WORDS /* nothing: the values are 16-bit results already */
};

struct form {
    unsigned bits; /* of x */
    bool pairs;
    bool finished; /* the table of codes has results */
    enum qk_type y_type;
    size_t y_bytes;
    enum result result;
};

/* Returns how a chunk is computed and stored. Values in pairs (see struct values) cost less to pack
 * as BF16. They cannot be used if parameters are loaded element by element, in order, nor for codes
 * of less than 8 bits. */
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
    case RESULT_FP16:
        store_fp16(y, 0, v.a, v.b, how);
        store_fp16(y, 32, v.c, v.d, how);
        break;
    case RESULT_BF16:
    case RESULT_BF16_PAIRS:
        store_256(y, 0, pack_bf16(v.a, v.b, result == RESULT_BF16_PAIRS), how);
        store_256(y, 32, pack_bf16(v.c, v.d, result == RESULT_BF16_PAIRS), how);
        break;
    case RESULT_WORDS:
        store_256(y, 0, _mm256_castps_si256(v.a), how);
        store_256(y, 32, _mm256_castps_si256(v.c), how);
        break;
    default:
        store_256(y, 0, _mm256_castps_si256(v.a), how);
        store_256(y, 32, _mm256_castps_si256(v.b), how);
        store_256(y, 64, _mm256_castps_si256(v.c), how);
        store_256(y, 96, _mm256_castps_si256(v.d), how);
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
    const __m256i places = _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0);
    const __m256i is_before = _mm256_cmpgt_epi32(_mm256_set1_epi32((int)count), places);
    return _mm256_blendv_ps(after, before, _mm256_castsi256_ps(is_before));
}

INLINE vector mix_words(vector before, vector after, size_t count)
{
    const __m256i places = _mm256_set_epi16(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    const __m256i is_before = _mm256_cmpgt_epi16(_mm256_set1_epi16((short)count), places);
    return _mm256_castsi256_ps(
        _mm256_blendv_epi8(_mm256_castps_si256(after), _mm256_castps_si256(before), is_before));
}

/* Like mix_one, for a chunk whose values are in any of their three orders. `count` is less than
 * CHUNK. */
INLINE struct values mix(struct values before, struct values after, size_t count, struct form form)
{
    const size_t low = count < 16 ? count : 16;
    const size_t high = count - low;
    if (form.result == RESULT_WORDS)
        return (struct values){mix_words(before.a, after.a, low), after.b,
                               mix_words(before.c, after.c, high), after.d};
    if (form.pairs)
        return (struct values){
            mix_one(before.a, after.a, (low + 1) / 2), mix_one(before.b, after.b, low / 2),
            mix_one(before.c, after.c, (high + 1) / 2), mix_one(before.d, after.d, high / 2)};
    return (struct values){
        mix_one(before.a, after.a, low), mix_one(before.b, after.b, low < 8 ? 0 : low - 8),
        mix_one(before.c, after.c, high), mix_one(before.d, after.d, high < 8 ? 0 : high - 8)};
}

/* ---- Results of codes ----------------------------------------------------------------------- */

/* Returns the odd or the even elements of 16 floats. In pairs they cost less to pack as BF16. */
INLINE __m256 every_other(const float *values, bool odd)
{
    const __m256 a = load_vector(values);
    const __m256 b = load_vector(values + 8);
    const __m256 in_lanes = odd ? _mm256_shuffle_ps(a, b, 0xdd) : _mm256_shuffle_ps(a, b, 0x88);
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(in_lanes), 0xd8));
}

INLINE struct codes load_codes(const struct qk_code_table *table, unsigned bits)
{
    const vector zero = _mm256_setzero_ps();
    const __m256i none = _mm256_setzero_si256();
    if (!table || bits > 8)
        return (struct codes){{zero, zero}, {zero, zero}, none, none, none, none,
                              none,         none,         none, none, false};
    if (bits < 8)
        return (struct codes){{load_vector(table->values), load_vector(table->values + 8)},
                              {zero, zero},
                              bytes_in_each_lane(table->halves[0]),
                              bytes_in_each_lane(table->halves[1]),
                              none,
                              none,
                              none,
                              none,
                              none,
                              none,
                              false};
    const struct qk_float8_parts *parts = &table->parts;
    return (struct codes){
        {every_other(parts->values[0], false), every_other(parts->values[0], true)},
        {every_other(parts->values[1], false), every_other(parts->values[1], true)},
        bytes_in_each_lane(parts->bytes[0][0]),
        bytes_in_each_lane(parts->bytes[0][1]),
        bytes_in_each_lane(parts->bytes[1][0]),
        bytes_in_each_lane(parts->bytes[1][1]),
        bytes_in_each_lane(parts->steps[0]),
        bytes_in_each_lane(parts->steps[1]),
        _mm256_set1_epi8((char)parts->turn),
        _mm256_set1_epi16((short)(0x10000 >> parts->shift)),
        isnan(table->values[128]),
    };
}

/* Splits 16 results of 16 bits into their lower and upper bytes. With `pairs`, a has the even
 * elements and b the odd ones. */
INLINE void split_results(__m256 a, __m256 b, enum qk_type y_type, bool pairs, __m256i *low,
                          __m256i *high)
{
    const __m256i v = y_type == QK_FP16 ? pack_fp16(a, b, pairs) : pack_bf16(a, b, pairs);
    const __m256i lows = _mm256_and_si256(v, _mm256_set1_epi16(0xff));
    const __m256i bytes = _mm256_packus_epi16(lows, _mm256_srli_epi16(v, 8));
    *low = _mm256_permute4x64_epi64(bytes, 0x88);  /* quarters 0, 2, 0, 2 */
    *high = _mm256_permute4x64_epi64(bytes, 0xdd); /* quarters 1, 3, 1, 3 */
}

/* Makes a table of a block's results. For float8s, the scale is bounded. */
INLINE struct codes finish_codes(const struct codes *codes, vector zero, vector scale,
                                 vector offset, struct form form)
{
    struct codes results = *codes;
    if (form.bits == 8) {
        const int more = form.y_type == QK_FP16 ? 3 : 0;
        split_results(multiply(codes->values[0], scale), multiply(codes->values[1], scale),
                      form.y_type, true, &results.low, &results.high);
        split_results(multiply(codes->special_values[0], scale),
                      multiply(codes->special_values[1], scale), form.y_type, true,
                      &results.special_low, &results.special_high);
        results.high = _mm256_sub_epi8(results.high, _mm256_slli_epi16(codes->steps, more));
        results.special_high =
            _mm256_sub_epi8(results.special_high, _mm256_slli_epi16(codes->special_steps, more));
        return results;
    }
    results.values[0] = add(multiply(subtract(codes->values[0], zero), scale), offset);
    results.values[1] = add(multiply(subtract(codes->values[1], zero), scale), offset);
    if (form.y_type != QK_FP32)
        split_results(results.values[0], results.values[1], form.y_type, false, &results.low,
                      &results.high);
    return results;
}

/* Looks up the results of a chunk. */
INLINE struct values look_up_chunk(const struct codes *results, const uint8_t *x, unsigned bits,
                                   struct form form)
{
    const vector none = _mm256_setzero_ps();
    __m256i joined[2];
    if (form.y_type == QK_FP32)
        return bits == 4 ? look_up_bits4(results, x) : read_bits2(results, x, false);
    if (bits == 8) {
        look_up_float8(results, interleave_halves(load_words(x)), form.y_type, joined);
    } else {
        const __m256i codes = bits == 4 ? nibbles(x) : crumbs(x);
        join_bytes(_mm256_shuffle_epi8(results->low, codes),
                   _mm256_shuffle_epi8(results->high, codes), joined);
    }
    return (struct values){_mm256_castsi256_ps(joined[0]), none, _mm256_castsi256_ps(joined[1]),
                           none};
}

INLINE bool finishes_float8(const struct qk_dequantize_args *args)
{
    const size_t least = args->y_type == QK_FP16 ? FLOAT8_FP16_BLOCK_MIN : FLOAT8_BLOCK_MIN;
    return args->y_type != QK_FP32 && !args->span.offsets && args->span.block >= least &&
           qk_scales_are_bounded(args);
}

/* Returns false: finish_codes makes the tables of results. */
INLINE bool take_float8(const struct qk_code_table *table, const struct codes *codes,
                        const uint8_t *x, char *y, size_t chunks, float scale, struct form form,
                        struct how how)
{
    (void)table, (void)codes, (void)x, (void)y, (void)chunks, (void)scale, (void)form, (void)how;
    return false;
}

/* How many bytes ahead x is prefetched if y is stored past the caches. */
#define PREFETCH_BYTES 2048

#include "kernels/dequantize/widen_avx2.h"

#include "kernels/dequantize/kernels.h"

void qk_dequantize_init_avx2(struct qk_dequantize_kernels *kernels)
{
    init(kernels, "dequantize_avx2", 0.48);
}

#endif
