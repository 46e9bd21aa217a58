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

#define QK_POOL_INIT qk_pool_init_avx512bw
#define QK_POOL_NAME "pool_avx512bw"
#define QK_POOL_MAX_CYCLES 0.04
#define QK_POOL_AVERAGE_CYCLES 0.5
#define QK_POOL_SUM_CYCLES 0.16
#include "kernels/pool/loops.h"

#endif
