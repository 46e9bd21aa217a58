/* Quantize kernels on vectors of 8 floats: the arithmetic, packing and stores for loops.h. */
#include "kernels/quantize/quantize.h"

/* The Makefile sets this on x86 only, for files with this suffix. */
#ifdef __AVX2__

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))

/* How many elements a loop takes at a time, and how many a vector has. */
#define CHUNK ((size_t)32)
#define LANES ((size_t)8)

/* Whether products divide vectors whose elements have scales of their own. AVX2 has too few
 * registers for it. */
#define PRODUCTS_OF_EACH false

typedef __m256 vector;
typedef __m256i words;  /* 32-bit integers */
typedef __m256i octets; /* the bytes of a chunk */
struct chunk {
    words a, b, c, d;
};
struct doubles {
    __m256d low, high;
};

/* ---- Floats --------------------------------------------------------------------------------- */

INLINE vector splat(float value)
{
    return _mm256_set1_ps(value);
}

INLINE vector load_vector(const void *from)
{
    return _mm256_loadu_ps(from);
}

INLINE vector add(vector a, vector b)
{
    return _mm256_add_ps(a, b);
}

INLINE vector multiply(vector a, vector b)
{
    return _mm256_mul_ps(a, b);
}

/* Returns a * b - c, rounded once. */
INLINE vector multiply_subtract(vector a, vector b, vector c)
{
    return _mm256_fmsub_ps(a, b, c);
}

/* Returns c - a * b, rounded once. */
INLINE vector negated_multiply_add(vector a, vector b, vector c)
{
    return _mm256_fnmadd_ps(a, b, c);
}

INLINE vector divide(vector a, vector b)
{
    return _mm256_div_ps(a, b);
}

INLINE vector greater(vector a, vector b)
{
    return _mm256_max_ps(a, b);
}

INLINE vector lesser(vector a, vector b)
{
    return _mm256_min_ps(a, b);
}

/* Clamps v. A NaN becomes the lower limit, because the instruction returns its second operand for a
 * NaN. */
INLINE vector limited_to(vector v, vector low, vector high)
{
    return lesser(greater(v, low), high);
}

INLINE bool any_nan(vector a, vector b, vector c, vector d)
{
    const vector low = _mm256_cmp_ps(a, b, _CMP_UNORD_Q);
    return _mm256_movemask_ps(_mm256_or_ps(low, _mm256_cmp_ps(c, d, _CMP_UNORD_Q))) != 0;
}

/* Returns the first `count` elements of `before` and the other elements of `after`. */
INLINE vector mix(vector before, vector after, size_t count)
{
    const __m256i places = _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0);
    const __m256i is_before = _mm256_cmpgt_epi32(_mm256_set1_epi32((int)count), places);
    return _mm256_blendv_ps(after, before, _mm256_castsi256_ps(is_before));
}

/* ---- Words ---------------------------------------------------------------------------------- */

INLINE words splat_word(uint32_t value)
{
    return _mm256_set1_epi32((int)value);
}

INLINE words load_words(const void *from)
{
    return _mm256_loadu_si256(from);
}

INLINE words words_of_vector(vector v)
{
    return _mm256_castps_si256(v);
}

INLINE vector vector_of_words(words w)
{
    return _mm256_castsi256_ps(w);
}

INLINE words add_words(words a, words b)
{
    return _mm256_add_epi32(a, b);
}

INLINE words subtract_words(words a, words b)
{
    return _mm256_sub_epi32(a, b);
}

INLINE words and_words(words a, words b)
{
    return _mm256_and_si256(a, b);
}

INLINE words xor_words(words a, words b)
{
    return _mm256_xor_si256(a, b);
}

INLINE words shift_right(words w, unsigned count)
{
    return _mm256_srli_epi32(w, (int)count);
}

INLINE words shift_right_signed(words w, unsigned count)
{
    return _mm256_srai_epi32(w, (int)count);
}

INLINE words is_greater(words a, words b)
{
    return _mm256_cmpgt_epi32(a, b);
}

INLINE words choose(words condition, words yes, words no)
{
    return _mm256_blendv_epi8(no, yes, condition);
}

/* Rounds to nearest, ties to even. The values fit into 32 bits. */
INLINE words round_to_words(vector v)
{
    return _mm256_cvtps_epi32(v);
}

INLINE vector float_of_words(words w)
{
    return _mm256_cvtepi32_ps(w);
}

/* Returns the lesser of a magnitude and a cap. */
INLINE vector capped(vector v, vector cap)
{
    return lesser(vector_of_words(and_words(words_of_vector(v), splat_word(0x7fffffff))), cap);
}

/* ---- Halves --------------------------------------------------------------------------------- */

INLINE vector widen_fp16(const void *from)
{
    return _mm256_cvtph_ps(_mm_loadu_si128(from));
}

INLINE vector widen_bf16(const void *from)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(from)), 16));
}

INLINE vector round_fp16(vector v)
{
    return _mm256_cvtph_ps(_mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}

/* Rounds to BF16, ties to even. A NaN keeps its bits, because rounding could make it an infinity or
 * a zero. */
INLINE vector round_bf16(vector v)
{
    const words bits = _mm256_castps_si256(v);
    const words lowest = and_words(shift_right(bits, 16), splat_word(1));
    const words sum = add_words(add_words(bits, splat_word(0x7fff)), lowest);
    const words upper = and_words(sum, splat_word(0xffff0000));
    return _mm256_blendv_ps(_mm256_castsi256_ps(upper), v, _mm256_cmp_ps(v, v, _CMP_UNORD_Q));
}

/* ---- Doubles -------------------------------------------------------------------------------- */

INLINE struct doubles doubles_of_words(words w)
{
    return (struct doubles){_mm256_cvtepi32_pd(_mm256_castsi256_si128(w)),
                            _mm256_cvtepi32_pd(_mm256_extracti128_si256(w, 1))};
}

INLINE struct doubles doubles_of_floats(vector v)
{
    return (struct doubles){_mm256_cvtps_pd(_mm256_castps256_ps128(v)),
                            _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1))};
}

INLINE struct doubles divide_doubles(struct doubles a, struct doubles b)
{
    return (struct doubles){_mm256_div_pd(a.low, b.low), _mm256_div_pd(a.high, b.high)};
}

INLINE struct doubles add_doubles(struct doubles a, struct doubles b)
{
    return (struct doubles){_mm256_add_pd(a.low, b.low), _mm256_add_pd(a.high, b.high)};
}

/* Clamps doubles. A NaN becomes -limit, because the instruction returns its second operand for a
 * NaN. */
INLINE struct doubles limited_doubles(struct doubles d, double limit)
{
    const __m256d low = _mm256_set1_pd(-limit), high = _mm256_set1_pd(limit);
    return (struct doubles){_mm256_min_pd(_mm256_max_pd(d.low, low), high),
                            _mm256_min_pd(_mm256_max_pd(d.high, low), high)};
}

INLINE words words_of_doubles(struct doubles d)
{
    return _mm256_set_m128i(_mm256_cvtpd_epi32(d.high), _mm256_cvtpd_epi32(d.low));
}

INLINE vector floats_of_doubles(struct doubles d)
{
    return _mm256_set_m128(_mm256_cvtpd_ps(d.high), _mm256_cvtpd_ps(d.low));
}

/* ---- Packing and storing -------------------------------------------------------------------- */

/* Puts packed bytes in order. Packing interleaves the vectors: four elements of each lie side by
 * side. */
INLINE octets in_order(octets b)
{
    return _mm256_permutevar8x32_epi32(b, _mm256_set_epi32(7, 3, 6, 2, 5, 1, 4, 0));
}

/* Packs the integers of four vectors with saturation. The result is not in order. */
INLINE octets packed(struct chunk chunk, bool is_signed)
{
    const __m256i low = _mm256_packs_epi32(chunk.a, chunk.b);
    const __m256i high = _mm256_packs_epi32(chunk.c, chunk.d);
    return is_signed ? _mm256_packs_epi16(low, high) : _mm256_packus_epi16(low, high);
}

INLINE __m256i pack_u16(words a, words b)
{
    return _mm256_permute4x64_epi64(_mm256_packus_epi32(a, b), 0xd8);
}

INLINE __m256i pack_s16(words a, words b)
{
    return _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0xd8);
}

INLINE __m256i within(__m256i bytes, int8_t least, int8_t most)
{
    return _mm256_min_epi8(_mm256_max_epi8(bytes, _mm256_set1_epi8(least)), _mm256_set1_epi8(most));
}

INLINE bool any_above(octets b, uint8_t most)
{
    const __m256i above = _mm256_subs_epu8(b, _mm256_set1_epi8((char)most));
    return !_mm256_testz_si256(above, above);
}

/* Limits the codes of magnitudes to `largest` and adds the signs of `numbers`. */
INLINE octets with_signs(octets codes, octets numbers, uint8_t largest, uint8_t sign,
                         bool zero_has_sign)
{
    const __m256i none = _mm256_setzero_si256();
    const __m256i within = _mm256_min_epu8(codes, _mm256_set1_epi8((char)largest));
    __m256i signs =
        _mm256_and_si256(_mm256_cmpgt_epi8(none, numbers), _mm256_set1_epi8((char)sign));
    if (!zero_has_sign)
        signs = _mm256_andnot_si256(_mm256_cmpeq_epi8(within, none), signs);
    return _mm256_or_si256(within, signs);
}

INLINE void store_bytes(char *y, __m256i bytes, bool stream)
{
    if (stream)
        _mm256_stream_si256((__m256i *)y, bytes);
    else
        _mm256_storeu_si256((__m256i *)y, bytes);
}

/* Stores the lowest 4 bits of each byte, two elements in a byte: the even one plus 16 times the odd
 * one. */
INLINE void store_nibbles(char *y, __m256i bytes, bool stream)
{
    const __m256i low = _mm256_and_si256(bytes, _mm256_set1_epi8(15));
    const __m256i both = _mm256_maddubs_epi16(low, _mm256_set1_epi16(0x1001));
    const __m128i packed =
        _mm_packus_epi16(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1));
    if (stream)
        _mm_stream_si128((__m128i *)y, packed);
    else
        _mm_storeu_si128((__m128i *)y, packed);
}

/* Stores the lowest 2 bits of each byte, four elements in a byte. One step joins two elements to 4
 * bits, and the next joins two of the results to a byte. */
INLINE void store_pairs(char *y, __m256i bytes, bool stream)
{
    const __m256i low = _mm256_and_si256(bytes, _mm256_set1_epi8(3));
    const __m256i two = _mm256_maddubs_epi16(low, _mm256_set1_epi16(0x0401));
    const __m256i four = _mm256_madd_epi16(two, _mm256_set1_epi32(0x00100001));
    const __m128i halves =
        _mm_packus_epi32(_mm256_castsi256_si128(four), _mm256_extracti128_si256(four, 1));
    const __m128i packed = _mm_packus_epi16(halves, halves);
    if (stream)
        _mm_stream_si64((long long *)y, _mm_cvtsi128_si64(packed));
    else
        _mm_storel_epi64((__m128i *)y, packed);
}

/* Makes what was stored past the caches visible to other threads. */
INLINE void end_streaming(void)
{
    _mm_sfence();
}

#include "kernels/quantize/loops.h"

void qk_quantize_init_avx2(struct qk_quantize_kernels *kernels)
{
    *kernels = (struct qk_quantize_kernels){
        .name = "quantize_avx2", .run = quantize, .finish = finish, .element_cycles = 1};
}

#endif
