/* Pooling with AVX-512. */
#include "kernels/pool/kernels.h"

#ifdef __AVX512BW__

#include "kernels/pool/vectors_avx2.h"

#define QK_POOL_FLOATS 16

typedef __m512 float_vector;

INLINE float_vector load_floats(const float *x)
{
    return _mm512_loadu_ps(x);
}

INLINE void store_floats(float *y, float_vector a)
{
    _mm512_storeu_ps(y, a);
}

INLINE float_vector splat_floats(float value)
{
    return _mm512_set1_ps(value);
}

INLINE float_vector widen(const uint8_t *x, uint8_t flip, int32_t zero)
{
    const __m128i read = _mm_loadu_si128((const __m128i *)x);
    const __m512i wide = _mm512_cvtepu8_epi32(_mm_xor_si128(read, _mm_set1_epi8((char)flip)));
    return _mm512_cvtepi32_ps(_mm512_sub_epi32(wide, _mm512_set1_epi32(zero)));
}

INLINE void widen_pairs(const uint8_t *x, uint8_t flip, int32_t zero, float_vector *even,
                        float_vector *odd)
{
    const __m256i read = _mm256_loadu_si256((const __m256i *)x);
    const __m512i pairs =
        _mm512_cvtepu16_epi32(_mm256_xor_si256(read, _mm256_set1_epi8((char)flip)));
    const __m512i low = _mm512_and_si512(pairs, _mm512_set1_epi32(0xFF));
    const __m512i zeros = _mm512_set1_epi32(zero);
    *even = _mm512_cvtepi32_ps(_mm512_sub_epi32(low, zeros));
    *odd = _mm512_cvtepi32_ps(_mm512_sub_epi32(_mm512_srli_epi32(pairs, 8), zeros));
}

INLINE float_vector fused(float_vector a, float_vector b, float_vector c)
{
    return _mm512_fmadd_ps(a, b, c);
}

INLINE float_vector negative_fused(float_vector a, float_vector b, float_vector c)
{
    return _mm512_fnmadd_ps(a, b, c);
}

INLINE float_vector max_floats(float_vector a, float_vector b)
{
    return _mm512_max_ps(a, b);
}

INLINE float_vector min_floats(float_vector a, float_vector b)
{
    return _mm512_min_ps(a, b);
}

INLINE void store_low(uint8_t *y, float_vector a)
{
    _mm_storeu_si128((__m128i *)y, _mm512_cvtepi32_epi8(_mm512_castps_si512(a)));
}

/* Adds the bytes of one plane. `rest` has the bits of its last bytes, which fill no vector. */
INLINE __m512i sum_plane(const uint8_t *x, size_t size, __mmask64 rest, uint8_t flip)
{
    const __m512i zero = _mm512_setzero_si512();
    const __m512i flips = _mm512_set1_epi8((char)flip);
    __m512i total = zero;
    size_t i = 0;
    for (; i + 64 <= size; i += 64) {
        const __m512i read = _mm512_loadu_si512(x + i);
        const __m512i bytes = flip ? _mm512_xor_si512(read, flips) : read;
        total = _mm512_add_epi64(total, _mm512_sad_epu8(bytes, zero));
    }
    if (rest == 0)
        return total;
    const __m512i read = _mm512_mask_loadu_epi8(flips, rest, x + i);
    const __m512i bytes = flip ? _mm512_xor_si512(read, flips) : read;
    return _mm512_add_epi64(total, _mm512_sad_epu8(bytes, zero));
}

/* Stores the sums of four planes. All are less than 2^32, so that two of them share each 64 bits: a
 * shift takes no port that sums of bytes and shuffles need. */
INLINE void store_totals(uint32_t *to, __m512i a, __m512i b, __m512i c, __m512i d)
{
    const __m512i ab = _mm512_add_epi32(a, _mm512_slli_epi64(b, 32));
    const __m512i cd = _mm512_add_epi32(c, _mm512_slli_epi64(d, 32));
    const __m512i all =
        _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
    const __m256i half =
        _mm256_add_epi32(_mm512_castsi512_si256(all), _mm512_extracti64x4_epi64(all, 1));
    _mm_storeu_si128((__m128i *)to, _mm_add_epi32(_mm256_castsi256_si128(half),
                                                  _mm256_extracti128_si256(half, 1)));
}

INLINE size_t sum_fours(const uint8_t *x, size_t x_bytes, size_t count, size_t size, uint8_t flip,
                        uint32_t *totals)
{
    (void)x_bytes; /* masks leave out what is behind a plane */
    const __mmask64 rest = ((__mmask64)1 << size % 64) - 1;
    size_t i = 0;
    for (; i + 4 <= count; i += 4, x += 4 * size)
        store_totals(
            totals + i, sum_plane(x, size, rest, flip), sum_plane(x + size, size, rest, flip),
            sum_plane(x + 2 * size, size, rest, flip), sum_plane(x + 3 * size, size, rest, flip));
    return i;
}

/* plane_loops.h has this function for the other tiers. */
#define QK_POOL_HAS_SUM_FOURS
#define QK_POOL_INIT qk_pool_init_avx512bw
#define QK_POOL_NAME "pool_avx512bw"
#define QK_POOL_MAX_CYCLES 0.04
#define QK_POOL_AVERAGE_CYCLES 0.5
#define QK_POOL_SUM_CYCLES 0.16
#include "kernels/pool/loops.h"

#endif
