/* Dequantize kernels on vectors of 8 floats: how these read, compute and store a chunk; loops.h
 * goes through a span. */
#include "kernels/dequantize/dequantize.h"

/* Nothing but x86 sets this, and only for the files of this suffix. */
#ifdef __AVX2__

#include <immintrin.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

/* Elements that loops take at a time. */
#define CHUNK ((size_t)32)

/* A chunk's elements, 8 in each vector, in order. */
struct values {
    __m256 a, b, c, d;
};

/* What codes of less than 16 bits mean, as reading needs it. */
struct codes {
    const float *all;
    __m256 low;  /* the values of the first 8 codes */
    __m256 high; /* and of the next 8 */
};

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

/* ---- Reading x ------------------------------------------------------------------------------ */

INLINE __m256i bytes(const uint8_t *x)
{
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)x));
}

INLINE __m256i words(const uint8_t *x)
{
    return _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)x));
}

/* 2^23 + x as a float. From 2^23 on the last bit of a float is worth 1, so a small integer becomes
 * a float by being its lowest bits. Signed integers have their sign bit, `sign`, flipped first,
 * which adds its worth. */
INLINE __m256 raise(__m256i integers, int sign)
{
    return _mm256_castsi256_ps(_mm256_xor_si256(integers, _mm256_set1_epi32(0x4b000000 | sign)));
}

INLINE struct values read_u8(const struct codes *codes, const uint8_t *x, bool pairs)
{
    (void)pairs;
    (void)codes;
    return (struct values){raise(bytes(x), 0), raise(bytes(x + 8), 0), raise(bytes(x + 16), 0),
                           raise(bytes(x + 24), 0)};
}

INLINE struct values read_s8(const struct codes *codes, const uint8_t *x, bool pairs)
{
    (void)pairs;
    (void)codes;
    return (struct values){raise(bytes(x), 0x80), raise(bytes(x + 8), 0x80),
                           raise(bytes(x + 16), 0x80), raise(bytes(x + 24), 0x80)};
}

INLINE struct values read_u16(const struct codes *codes, const uint8_t *x, bool pairs)
{
    (void)pairs;
    (void)codes;
    return (struct values){raise(words(x), 0), raise(words(x + 16), 0), raise(words(x + 32), 0),
                           raise(words(x + 48), 0)};
}

INLINE struct values read_s16(const struct codes *codes, const uint8_t *x, bool pairs)
{
    (void)pairs;
    (void)codes;
    return (struct values){raise(words(x), 0x8000), raise(words(x + 16), 0x8000),
                           raise(words(x + 32), 0x8000), raise(words(x + 48), 0x8000)};
}

/* Looks up eight 4-bit codes. A permutation looks up 3 bits in a table of 8; bit 3 chooses between
 * two tables. */
INLINE __m256 look_up_4(const struct codes *codes, const uint8_t *x)
{
    const __m256i distances = _mm256_set_epi32(28, 24, 20, 16, 12, 8, 4, 0);
    int32_t bits;
    memcpy(&bits, x, sizeof(bits));
    const __m256i indices = _mm256_srlv_epi32(_mm256_set1_epi32(bits), distances);
    return _mm256_blendv_ps(_mm256_permutevar8x32_ps(codes->low, indices),
                            _mm256_permutevar8x32_ps(codes->high, indices),
                            _mm256_castsi256_ps(_mm256_slli_epi32(indices, 28)));
}

INLINE struct values read_bits4(const struct codes *codes, const uint8_t *x, bool pairs)
{
    (void)pairs;
    return (struct values){look_up_4(codes, x), look_up_4(codes, x + 4), look_up_4(codes, x + 8),
                           look_up_4(codes, x + 12)};
}

INLINE __m256 look_up_2(const struct codes *codes, const uint8_t *x)
{
    const __m256i distances = _mm256_set_epi32(14, 12, 10, 8, 6, 4, 2, 0);
    uint16_t bits;
    memcpy(&bits, x, sizeof(bits));
    return _mm256_permutevar8x32_ps(codes->low,
                                    _mm256_srlv_epi32(_mm256_set1_epi32(bits), distances));
}

INLINE struct values read_bits2(const struct codes *codes, const uint8_t *x, bool pairs)
{
    (void)pairs;
    return (struct values){look_up_2(codes, x), look_up_2(codes, x + 2), look_up_2(codes, x + 4),
                           look_up_2(codes, x + 6)};
}

INLINE __m256 gather(const struct codes *codes, const uint8_t *x)
{
    return _mm256_i32gather_ps(codes->all, bytes(x), 4);
}

INLINE struct values read_float8(const struct codes *codes, const uint8_t *x, bool pairs)
{
    (void)pairs;
    return (struct values){gather(codes, x), gather(codes, x + 8), gather(codes, x + 16),
                           gather(codes, x + 24)};
}

INLINE __m256i load_words(const uint8_t *x)
{
    return _mm256_loadu_si256((const __m256i *)x);
}

/* 32-bit integers as they are, in vectors of floats; subtracting a zero point makes floats of them.
 */
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

/* Doubles hold the difference of two 32-bit integers exactly; it is rounded once, to a float. */
INLINE __m256 subtract_s32(__m256 value, __m256 zero)
{
    const __m128 low = _mm256_cvtpd_ps(_mm256_sub_pd(low_doubles(value), low_doubles(zero)));
    const __m128 high = _mm256_cvtpd_ps(_mm256_sub_pd(high_doubles(value), high_doubles(zero)));
    return _mm256_set_m128(high, low);
}

/* Flipping the top bits subtracts 2^31 from both as signed numbers, which does not change the
 * difference. */
INLINE __m256 subtract_u32(__m256 value, __m256 zero)
{
    const __m256 sign = _mm256_set1_ps(-0.0F);
    return subtract_s32(_mm256_xor_ps(value, sign), _mm256_xor_ps(zero, sign));
}

/* ---- Rounding and storing y ----------------------------------------------------------------- */

/* Rounds to BF16, the upper half of a float. Adding 0x7fff and the lowest bit that stays makes ties
 * go to even. NaNs are canonical already. */
INLINE __m256i round_bf16(__m256 value)
{
    const __m256i bits = _mm256_castps_si256(value);
    const __m256i lowest = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded =
        _mm256_add_epi32(_mm256_or_si256(bits, lowest), _mm256_set1_epi32(0x7fff));
    return _mm256_srli_epi32(rounded, 16);
}

INLINE __m256i pack_bf16(__m256 a, __m256 b)
{
    return _mm256_permute4x64_epi64(_mm256_packus_epi32(round_bf16(a), round_bf16(b)), 0xd8);
}

/* NaNs stay canonical. */
INLINE __m256i pack_fp16(__m256 a, __m256 b)
{
    return _mm256_set_m128i(_mm256_cvtps_ph(b, _MM_FROUND_TO_NEAREST_INT),
                            _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}

/* How a chunk is stored: past the caches or not, and how much of it the chunk before has stored
 * already (begin_early of loops.h). */
struct how {
    bool stream;
    size_t stored; /* bytes of y at the chunk's beginning */
};

INLINE void store_256(char *y, size_t at, __m256i v, struct how how)
{
    if (!how.stream)
        _mm256_storeu_si256((__m256i *)(y + at), v);
    else if (at >= how.stored)
        _mm256_stream_si256((__m256i *)(y + at), v);
}

INLINE void store(char *y, struct values v, enum qk_type type, struct how how)
{
    switch (type) {
    case QK_FP16:
        store_256(y, 0, pack_fp16(v.a, v.b), how);
        store_256(y, 32, pack_fp16(v.c, v.d), how);
        break;
    case QK_BF16:
        store_256(y, 0, pack_bf16(v.a, v.b), how);
        store_256(y, 32, pack_bf16(v.c, v.d), how);
        break;
    default:
        store_256(y, 0, _mm256_castps_si256(v.a), how);
        store_256(y, 32, _mm256_castps_si256(v.b), how);
        store_256(y, 64, _mm256_castps_si256(v.c), how);
        store_256(y, 96, _mm256_castps_si256(v.d), how);
    }
}

struct form {
    bool pairs;    /* never: values are in order */
    bool finished; /* a table of codes holds results, but for their rounding to y_type */
    enum qk_type y_type;
    size_t y_bytes;
};

INLINE struct form form_of(unsigned bits, enum qk_type y_type, bool finished, bool can_pair)
{
    (void)bits;
    (void)can_pair;
    return (struct form){false, finished, y_type, y_type == QK_FP32 ? 4 : 2};
}

INLINE void store_chunk(char *y, struct values v, struct form form, struct how how)
{
    if (__builtin_expect(how.stream, false)) /* then memory sets the pace */
        store(y, v, form.y_type, (struct how){true, how.stored});
    else
        store(y, v, form.y_type, (struct how){false, 0});
}

/* ---- Chunks of two blocks -------------------------------------------------------------------- */

/* The first `count` elements of `before` and the others of `after`. */
INLINE vector mix_one(vector before, vector after, size_t count)
{
    const __m256i places = _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0);
    const __m256i is_before = _mm256_cmpgt_epi32(_mm256_set1_epi32((int)count), places);
    return _mm256_blendv_ps(after, before, _mm256_castsi256_ps(is_before));
}

/* The same for the four vectors of a chunk. */
INLINE struct values mix(struct values before, struct values after, size_t count, struct form form)
{
    (void)form;
    return (struct values){mix_one(before.a, after.a, count),
                           mix_one(before.b, after.b, count < 8 ? 0 : count - 8),
                           mix_one(before.c, after.c, count < 16 ? 0 : count - 16),
                           mix_one(before.d, after.d, count < 24 ? 0 : count - 24)};
}

/* ---- Results of codes ----------------------------------------------------------------------- */

INLINE struct codes load_codes(const struct qk_code_table *table, unsigned bits)
{
    const vector none = _mm256_setzero_ps();
    if (!table || bits >= 8)
        return (struct codes){table ? table->values : NULL, none, none};
    return (struct codes){table->values, load_vector(table->values),
                          load_vector(table->values + 8)};
}

INLINE struct codes finish_codes(const struct codes *codes, vector zero, vector scale,
                                 vector offset, struct form form)
{
    (void)form;
    return (struct codes){codes->all, add(multiply(subtract(codes->low, zero), scale), offset),
                          add(multiply(subtract(codes->high, zero), scale), offset)};
}

/* Looks up the results of a chunk. */
INLINE struct values look_up_chunk(const struct codes *results, const uint8_t *x, unsigned bits,
                                   struct form form)
{
    (void)form;
    return bits == 4 ? read_bits4(results, x, false) : read_bits2(results, x, false);
}

/* AVX2 gathers float8s from a table of floats; a table of their results would not be faster. */
INLINE bool take_float8(const struct qk_code_table *table, const struct codes *codes,
                        const uint8_t *x, char *y, size_t chunks, float scale, struct form form,
                        struct how how)
{
    (void)table, (void)codes, (void)x, (void)y, (void)chunks, (void)scale, (void)form, (void)how;
    return false;
}

/* How many bytes ahead x is fetched where y is stored past the caches. */
#define PREFETCH_BYTES 2048

#include "kernels/dequantize/widen_avx2.h"

#include "kernels/dequantize/loops.h"

void qk_dequantize_init_avx2(struct qk_dequantize_kernels *kernels)
{
    init(kernels, "dequantize_avx2", 0.48);
}

#endif
