/* Quantize kernels on vectors of 16 floats: the arithmetic, packing and stores for loops.h. */
#include "kernels/quantize/quantize.h"

/* The Makefile sets this on x86 only, for files with this suffix. */
#ifdef __AVX512BW__

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))

/* How many elements a loop takes at a time, and how many a vector has. */
#define CHUNK ((size_t)64)
#define LANES ((size_t)16)

/* Whether products divide vectors whose elements have scales of their own. */
#define PRODUCTS_OF_EACH true

typedef __m512 vector;
typedef __m512i words;  /* 32-bit integers */
typedef __m512i octets; /* the bytes of a chunk */
struct chunk {
    words a, b, c, d;
};
struct doubles {
    __m512d low, high;
};

/* ---- Floats --------------------------------------------------------------------------------- */

INLINE vector splat(float value)
{
    return _mm512_set1_ps(value);
}

INLINE vector load_vector(const void *from)
{
    return _mm512_loadu_ps(from);
}

INLINE vector add(vector a, vector b)
{
    return _mm512_add_ps(a, b);
}

INLINE vector multiply(vector a, vector b)
{
    return _mm512_mul_ps(a, b);
}

/* Returns a * b - c, rounded once. */
INLINE vector multiply_subtract(vector a, vector b, vector c)
{
    return _mm512_fmsub_ps(a, b, c);
}

/* Returns c - a * b, rounded once. */
INLINE vector negated_multiply_add(vector a, vector b, vector c)
{
    return _mm512_fnmadd_ps(a, b, c);
}

INLINE vector divide(vector a, vector b)
{
    return _mm512_div_ps(a, b);
}

INLINE vector greater(vector a, vector b)
{
    return _mm512_max_ps(a, b);
}

INLINE vector lesser(vector a, vector b)
{
    return _mm512_min_ps(a, b);
}

/* Clamps v. A NaN becomes the lower limit, because the instruction returns its second operand for
 * it. */
INLINE vector limited_to(vector v, vector low, vector high)
{
    return lesser(greater(v, low), high);
}

INLINE bool any_nan(vector a, vector b, vector c, vector d)
{
    const __mmask16 low = _mm512_cmp_ps_mask(a, b, _CMP_UNORD_Q);
    return !_kortestz_mask16_u8(low, _mm512_cmp_ps_mask(c, d, _CMP_UNORD_Q));
}

/* Returns the first `count` elements of `before` and the other elements of `after`. */
INLINE vector mix(vector before, vector after, size_t count)
{
    return _mm512_mask_mov_ps(after, (__mmask16)_bzhi_u32(0xffff, (unsigned)count), before);
}

/* ---- Words ---------------------------------------------------------------------------------- */

INLINE words splat_word(uint32_t value)
{
    return _mm512_set1_epi32((int)value);
}

INLINE words load_words(const void *from)
{
    return _mm512_loadu_si512(from);
}

INLINE words words_of_vector(vector v)
{
    return _mm512_castps_si512(v);
}

INLINE vector vector_of_words(words w)
{
    return _mm512_castsi512_ps(w);
}

INLINE words add_words(words a, words b)
{
    return _mm512_add_epi32(a, b);
}

INLINE words subtract_words(words a, words b)
{
    return _mm512_sub_epi32(a, b);
}

INLINE words and_words(words a, words b)
{
    return _mm512_and_si512(a, b);
}

INLINE words xor_words(words a, words b)
{
    return _mm512_xor_si512(a, b);
}

INLINE words shift_right(words w, unsigned count)
{
    return _mm512_srli_epi32(w, count);
}

INLINE words shift_right_signed(words w, unsigned count)
{
    return _mm512_srai_epi32(w, count);
}

INLINE __mmask16 is_greater(words a, words b)
{
    return _mm512_cmpgt_epi32_mask(a, b);
}

INLINE words choose(__mmask16 condition, words yes, words no)
{
    return _mm512_mask_mov_epi32(no, condition, yes);
}

/* Rounds to nearest, ties to even. The values fit into 32 bits. */
INLINE words round_to_words(vector v)
{
    return _mm512_cvtps_epi32(v);
}

INLINE vector float_of_words(words w)
{
    return _mm512_cvtepi32_ps(w);
}

/* ---- Summands of magnitude_code() ----------------------------------------------------------- */

#define SUMMANDS

/* A table of 32 summands, indexed by the lowest bits of the exponent. No type has more exponents.
 */
struct summands {
    vector low, high;
};

INLINE vector some_summands(const struct qk_narrow *narrow, words places)
{
    const uint32_t least = narrow->normal >> 23;
    const words from_least = and_words(subtract_words(places, splat_word(least)), splat_word(31));
    const words codes = _mm512_slli_epi32(from_least, 23 - narrow->shift);
    const words exponents = add_words(from_least, splat_word(least + narrow->shift));
    return vector_of_words(add_words(_mm512_slli_epi32(exponents, 23), codes));
}

INLINE struct summands summands_of(const struct qk_narrow *narrow)
{
    const words places = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    return (struct summands){some_summands(narrow, places),
                             some_summands(narrow, add_words(places, splat_word(16)))};
}

INLINE vector summand(const struct summands *summands, vector magnitude)
{
    return _mm512_permutex2var_ps(summands->low, shift_right(words_of_vector(magnitude), 23),
                                  summands->high);
}

/* Returns the lesser of a magnitude and a cap. */
INLINE vector capped(vector v, vector cap)
{
    return _mm512_range_ps(v, cap, 10);
}

/* ---- Halves --------------------------------------------------------------------------------- */

INLINE vector widen_fp16(const void *from)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256(from));
}

INLINE vector widen_bf16(const void *from)
{
    return _mm512_castsi512_ps(
        _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(from)), 16));
}

INLINE vector round_fp16(vector v)
{
    return _mm512_cvtph_ps(_mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

/* Rounds to BF16, ties to even. A NaN keeps its bits, because rounding could make it an infinity or
 * a zero. */
INLINE vector round_bf16(vector v)
{
    const words bits = _mm512_castps_si512(v);
    const words lowest = and_words(shift_right(bits, 16), splat_word(1));
    const words sum = add_words(add_words(bits, splat_word(0x7fff)), lowest);
    const words upper = and_words(sum, splat_word(0xffff0000));
    return _mm512_mask_mov_ps(_mm512_castsi512_ps(upper), _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q),
                              v);
}

/* ---- Doubles -------------------------------------------------------------------------------- */

INLINE struct doubles doubles_of_words(words w)
{
    return (struct doubles){_mm512_cvtepi32_pd(_mm512_castsi512_si256(w)),
                            _mm512_cvtepi32_pd(_mm512_extracti64x4_epi64(w, 1))};
}

INLINE struct doubles doubles_of_floats(vector v)
{
    return (struct doubles){_mm512_cvtps_pd(_mm512_castps512_ps256(v)),
                            _mm512_cvtps_pd(_mm512_extractf32x8_ps(v, 1))};
}

INLINE struct doubles divide_doubles(struct doubles a, struct doubles b)
{
    return (struct doubles){_mm512_div_pd(a.low, b.low), _mm512_div_pd(a.high, b.high)};
}

INLINE struct doubles add_doubles(struct doubles a, struct doubles b)
{
    return (struct doubles){_mm512_add_pd(a.low, b.low), _mm512_add_pd(a.high, b.high)};
}

/* Clamps doubles. A NaN becomes -limit, because the instruction returns its second operand for it.
 */
INLINE struct doubles limited_doubles(struct doubles d, double limit)
{
    const __m512d low = _mm512_set1_pd(-limit), high = _mm512_set1_pd(limit);
    return (struct doubles){_mm512_min_pd(_mm512_max_pd(d.low, low), high),
                            _mm512_min_pd(_mm512_max_pd(d.high, low), high)};
}

INLINE words words_of_doubles(struct doubles d)
{
    return _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtpd_epi32(d.low)),
                              _mm512_cvtpd_epi32(d.high), 1);
}

INLINE vector floats_of_doubles(struct doubles d)
{
    return _mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtpd_ps(d.low)),
                              _mm512_cvtpd_ps(d.high), 1);
}

/* ---- Packing and storing -------------------------------------------------------------------- */

/* Puts packed bytes in order. Packing interleaves the vectors: four elements of each lie side by
 * side. */
INLINE octets in_order(octets b)
{
    const __m512i places = _mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0);
    return _mm512_permutexvar_epi32(places, b);
}

INLINE __m512i halves_in_order(__m512i halves)
{
    return _mm512_permutexvar_epi64(_mm512_set_epi64(7, 5, 3, 1, 6, 4, 2, 0), halves);
}

/* Packs the integers of four vectors with saturation. The result is not in order. */
INLINE octets packed(struct chunk chunk, bool is_signed)
{
    const __m512i low = _mm512_packs_epi32(chunk.a, chunk.b);
    const __m512i high = _mm512_packs_epi32(chunk.c, chunk.d);
    return is_signed ? _mm512_packs_epi16(low, high) : _mm512_packus_epi16(low, high);
}

INLINE __m512i pack_u16(words a, words b)
{
    return halves_in_order(_mm512_packus_epi32(a, b));
}

INLINE __m512i pack_s16(words a, words b)
{
    return halves_in_order(_mm512_packs_epi32(a, b));
}

INLINE __m512i within(__m512i bytes, int8_t least, int8_t most)
{
    return _mm512_min_epi8(_mm512_max_epi8(bytes, _mm512_set1_epi8(least)), _mm512_set1_epi8(most));
}

INLINE bool any_above(octets b, uint8_t most)
{
    return _mm512_cmpgt_epu8_mask(b, _mm512_set1_epi8((char)most)) != 0;
}

/* Limits the codes of magnitudes to `largest` and adds the signs of `numbers`. */
INLINE octets with_signs(octets codes, octets numbers, uint8_t largest, uint8_t sign,
                         bool zero_has_sign)
{
    const __m512i within = _mm512_min_epu8(codes, _mm512_set1_epi8((char)largest));
    __mmask64 negative = _mm512_movepi8_mask(numbers);
    if (!zero_has_sign)
        negative = _mm512_mask_test_epi8_mask(negative, within, within);
    return _mm512_mask_add_epi8(within, negative, within, _mm512_set1_epi8((char)sign));
}

INLINE void store_bytes(char *y, __m512i bytes, bool stream)
{
    if (stream)
        _mm512_stream_si512((__m512i *)y, bytes);
    else
        _mm512_storeu_si512(y, bytes);
}

/* Stores the lowest 4 bits of each byte, two elements in a byte: the even one plus 16 times the odd
 * one. */
INLINE void store_nibbles(char *y, __m512i bytes, bool stream)
{
    const __m512i low = _mm512_and_si512(bytes, _mm512_set1_epi8(15));
    const __m512i both = _mm512_maddubs_epi16(low, _mm512_set1_epi16(0x1001));
    const __m256i packed = _mm512_cvtepi16_epi8(both);
    if (stream)
        _mm256_stream_si256((__m256i *)y, packed);
    else
        _mm256_storeu_si256((__m256i *)y, packed);
}

/* Stores the lowest 2 bits of each byte, four elements in a byte. One step joins two elements to 4
 * bits, and the next joins two of the results to a byte. */
INLINE void store_pairs(char *y, __m512i bytes, bool stream)
{
    const __m512i low = _mm512_and_si512(bytes, _mm512_set1_epi8(3));
    const __m512i two = _mm512_maddubs_epi16(low, _mm512_set1_epi16(0x0401));
    const __m512i four = _mm512_madd_epi16(two, _mm512_set1_epi32(0x00100001));
    const __m128i packed = _mm512_cvtepi32_epi8(four);
    if (stream)
        _mm_stream_si128((__m128i *)y, packed);
    else
        _mm_storeu_si128((__m128i *)y, packed);
}

/* Makes what was stored past the caches visible to other threads. */
INLINE void end_streaming(void)
{
    _mm_sfence();
}

#include "kernels/quantize/loops.h"

void qk_quantize_init_avx512(struct qk_quantize_kernels *kernels)
{
    *kernels = (struct qk_quantize_kernels){
        .name = "quantize_avx512", .run = quantize, .finish = finish, .element_cycles = 0.8};
}

#endif
