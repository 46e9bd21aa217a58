/* Dequantize kernels on vectors of 16 floats: how these compute and store a chunk, and tables of
 * float8s; read_avx512.h reads it, and loops.h goes through a span. */
#include "kernels/dequantize/dequantize.h"
#include "kernels/dequantize/read_avx512.h"

/* Nothing but x86 sets this, and only for the files of this suffix. */
#ifdef __AVX512VBMI__

#include <immintrin.h>
#include <math.h>

/* From so many chunks on, making a table of a float8 block's results takes less time than it saves.
 */
#define FLOAT8_CHUNKS_MIN 8

/* How many bytes ahead x is fetched where y is stored past the caches. */
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

/* Doubles hold the difference of two 32-bit integers exactly; it is rounded once, to a float. */
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

/* Rounds to BF16, the upper half of a float: bits + 0x7fff + the lowest bit that stays, which makes
 * ties go to even, computed by one multiplication of 16-bit halves. Never by VCVTNEPS2BF16, which
 * makes zeros of subnormals. NaNs are canonical already. */
INLINE __m512i round_bf16(__m512 value)
{
    const __m512i bits = _mm512_castps_si512(value);
    const __m512i lowest =
        _mm512_ternarylogic_epi32(bits, _mm512_set1_epi32(0x10000), _mm512_set1_epi32(1), 0xea);
    return _mm512_dpwssd_epi32(bits, lowest, _mm512_set1_epi32(0x17fff));
}

static const uint16_t even_then_odd[32] = {0,  2,  4,  6,  8,  10, 12, 14, 16, 18, 20,
                                           22, 24, 26, 28, 30, 1,  3,  5,  7,  9,  11,
                                           13, 15, 17, 19, 21, 23, 25, 27, 29, 31};

/* The rounded upper halves of 32 floats; with `pairs`, those of a are the even ones. */
INLINE __m512i pack_bf16(__m512 a, __m512 b, bool pairs)
{
    const __m512i upper = _mm512_broadcast_i32x4(_mm_set_epi32(0x0f0e, 0x0b0a, 0x0706, 0x0302));
    const __m512i words =
        _mm512_mask_shuffle_epi8(round_bf16(b), 0x3333333333333333, round_bf16(a), upper);
    return pairs ? words : _mm512_permutexvar_epi16(_mm512_loadu_si512(even_then_odd), words);
}

/* The rounded upper half of each float, twice. */
INLINE __m512i double_bf16(__m512 value)
{
    const __m512i rounded = round_bf16(value);
    return _mm512_mask_blend_epi16(0xaaaaaaaa, _mm512_srli_epi32(rounded, 16), rounded);
}

/* How a chunk is stored. Stores past the caches leave out what the chunk before has stored, in
 * whole cache lines, since storing a line twice costs much. */
struct how {
    bool stream;
    size_t stored; /* bytes of y at the chunk's beginning */
};

INLINE void store_512(char *y, size_t at, __m512i v, struct how how)
{
    if (!how.stream)
        _mm512_storeu_si512(y + at, v);
    else if (at >= how.stored)
        _mm512_stream_si512((__m512i *)(y + at), v);
}

/* NaNs stay canonical. Storing two halves costs less than putting them together first, but not past
 * the caches. */
INLINE void store_fp16(char *y, size_t at, __m512 a, __m512 b, struct how how)
{
    const __m256i low = _mm512_cvtps_ph(a, NEAREST);
    const __m256i high = _mm512_cvtps_ph(b, NEAREST);
    if (how.stream) {
        store_512(y, at, _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1), how);
    } else {
        _mm256_storeu_si256((__m256i *)(y + at), low);
        _mm256_storeu_si256((__m256i *)(y + at + 32), high);
    }
}

/* What must be done to the values of a chunk before they are y. */
enum result {
    RESULT_FP32,
    RESULT_FP16,
    RESULT_BF16,
    RESULT_BF16_PAIRS,
    RESULT_WORDS /* nothing: they are results of 16 bits already */
};

struct form {
    bool pairs;
    bool finished; /* a table of codes holds results */
    enum qk_type y_type;
    size_t y_bytes;
    enum result result;
};

/* Values in pairs (see struct values) cost less to pack as BF16. They cannot be used where
 * parameters differ by element, in order, nor for codes of less than 8 bits. */
INLINE struct form form_of(unsigned bits, enum qk_type y_type, bool finished, bool can_pair)
{
    struct form form = {false, finished, y_type, y_type == QK_FP32 ? 4 : 2, RESULT_FP32};
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
    if (__builtin_expect(how.stream, false)) /* then memory sets the pace */
        store(y, v, form.result, (struct how){true, how.stored});
    else
        store(y, v, form.result, (struct how){false, 0});
}

/* ---- Chunks of two blocks -------------------------------------------------------------------- */

/* The first `count` elements of `before` and the others of `after`. */
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

/* The same for a chunk, in whatever order its values are; `count` is less than CHUNK. */
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

/* ---- Results of codes ----------------------------------------------------------------------- */

/* Sets the members one by one: clearing the whole struct first, as an initializer with fewer
 * members would, has to wait for stores past the caches to end. */
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

/* Makes a table of the 16-bit results of float8s: of 128 codes, since those of negative codes
 * differ only in the sign. The scale must be normal, so that no code but a NaN's becomes a NaN. */
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

/* Does chunks of float8s by a table of their results, where that is worth it; false: it is not. */
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

#include "kernels/dequantize/widen_avx2.h"

#include "kernels/dequantize/loops.h"

void qk_dequantize_init_avx512(struct qk_dequantize_kernels *kernels)
{
    init(kernels, "dequantize_avx512", 0.24);
}

#endif
