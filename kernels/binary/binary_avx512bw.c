/* The kernels of binary.h for AVX-512. */
#include "kernels/binary/binary.h"

#ifdef __x86_64__

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))
#define TIER avx512bw
#define CYCLES 0.3
#define FINISH finish
#define LANES 16

typedef __m512 vector;
typedef __m512i words;

INLINE vector splat(float value)
{
    return _mm512_set1_ps(value);
}

INLINE vector widen(const uint8_t *codes, bool is_signed)
{
    const __m128i bytes = _mm_loadu_si128((const __m128i *)codes);
    return _mm512_cvtepi32_ps(is_signed ? _mm512_cvtepi8_epi32(bytes)
                                        : _mm512_cvtepu8_epi32(bytes));
}

INLINE vector fused(vector a, vector b, vector c)
{
    return _mm512_fmadd_ps(a, b, c);
}

INLINE vector multiply(vector a, vector b)
{
    return _mm512_mul_ps(a, b);
}

INLINE vector add(vector a, vector b)
{
    return _mm512_add_ps(a, b);
}

/* The conversion gives the least integer for NaN and for what does not fit into 32 bits. Packing
 * clamps, and interleaves the vectors: four elements of each lie side by side. */
INLINE __m512i pack(vector a, vector b, vector c, vector d, bool is_signed)
{
    const __m512i low = _mm512_packs_epi32(_mm512_cvtps_epi32(a), _mm512_cvtps_epi32(b));
    const __m512i high = _mm512_packs_epi32(_mm512_cvtps_epi32(c), _mm512_cvtps_epi32(d));
    return is_signed ? _mm512_packs_epi16(low, high) : _mm512_packus_epi16(low, high);
}

INLINE void store_bytes(uint8_t *y, __m512i bytes, bool stream)
{
    if (stream)
        _mm512_stream_si512((__m512i *)(void *)y, bytes);
    else
        _mm512_storeu_si512(y, bytes);
}

INLINE void store(uint8_t *y, vector a, vector b, vector c, vector d, bool is_signed, bool stream)
{
    const __m512i order = _mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0);
    store_bytes(y, _mm512_permutexvar_epi32(order, pack(a, b, c, d, is_signed)), stream);
}

/* ---- Products: vector i has elements i, 4 + i, 8 + i, ... ---------------------------------- */

/* Zero points of signed codes are those of the codes with the top bit flipped. */
INLINE words splat_words(int zero, bool is_signed)
{
    return _mm512_set1_epi16((short)(is_signed ? zero + 128 : zero));
}

/* Sets halves[0] to codes 0, 2, 4, ... as words, and [1] to codes 1, 3, 5, ... */
INLINE void split(const uint8_t *codes, bool is_signed, words halves[2])
{
    __m512i bytes = _mm512_loadu_si512(codes);
    if (is_signed)
        bytes = _mm512_xor_si512(bytes, _mm512_set1_epi8(-128));
    halves[0] = _mm512_and_si512(bytes, _mm512_set1_epi16(255));
    halves[1] = _mm512_srli_epi16(bytes, 8);
}

#define LOW_WORDS UINT32_C(0x55555555)

/* VPMADDWD adds two products of words. One of the two has a factor 0. */
INLINE void products(const uint8_t *first, words first_zero, const uint8_t *second,
                     words second_zero, bool is_signed, vector made[4])
{
    words a[2];
    words b[2];
    split(first, is_signed, a);
    split(second, is_signed, b);
#pragma GCC unroll 2
    for (size_t i = 0; i < 2; i++) {
        const __m512i low = _mm512_maskz_sub_epi16(LOW_WORDS, a[i], first_zero);
        const __m512i high = _mm512_maskz_sub_epi16(~LOW_WORDS, a[i], first_zero);
        const __m512i factor = _mm512_sub_epi16(b[i], second_zero);
        made[i] = _mm512_cvtepi32_ps(_mm512_madd_epi16(low, factor));
        made[2 + i] = _mm512_cvtepi32_ps(_mm512_madd_epi16(high, factor));
    }
}

INLINE void products_by(const uint8_t *codes, words zero, words difference, bool is_signed,
                        vector made[4])
{
    const __m512i low = _mm512_maskz_mov_epi16(LOW_WORDS, difference);
    const __m512i high = _mm512_maskz_mov_epi16(~LOW_WORDS, difference);
    words a[2];
    split(codes, is_signed, a);
#pragma GCC unroll 2
    for (size_t i = 0; i < 2; i++) {
        const __m512i factor = _mm512_sub_epi16(a[i], zero);
        made[i] = _mm512_cvtepi32_ps(_mm512_madd_epi16(low, factor));
        made[2 + i] = _mm512_cvtepi32_ps(_mm512_madd_epi16(high, factor));
    }
}

INLINE void store_products(uint8_t *y, const vector made[4], bool is_signed, bool stream)
{
    const __m512i order =
        _mm512_broadcast_i32x4(_mm_setr_epi8(0, 8, 4, 12, 1, 9, 5, 13, 2, 10, 6, 14, 3, 11, 7, 15));
    const __m512i bytes = pack(made[0], made[2], made[1], made[3], is_signed);
    store_bytes(y, _mm512_shuffle_epi8(bytes, order), stream);
}

INLINE void copy_in(uint8_t to[64], const uint8_t *from, size_t count)
{
    _mm512_storeu_si512(to, _mm512_maskz_loadu_epi8((UINT64_C(1) << count) - 1, from));
}

INLINE void copy_out(uint8_t *to, const uint8_t from[64], size_t count)
{
    _mm512_mask_storeu_epi8(to, (UINT64_C(1) << count) - 1, _mm512_loadu_si512(from));
}

static void finish(void)
{
    _mm_sfence();
}

#include "kernels/binary/loops.h"

#endif
