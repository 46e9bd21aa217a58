/* Pooling with AVX2. */
#include "kernels/pool/kernels.h"

#ifdef __AVX2__

#include "kernels/pool/vectors_avx2.h"

#define QK_POOL_FLOATS 8

typedef __m256 float_vector;

INLINE float_vector load_floats(const float *x)
{
    return _mm256_loadu_ps(x);
}

INLINE void store_floats(float *y, float_vector a)
{
    _mm256_storeu_ps(y, a);
}

INLINE float_vector splat_floats(float value)
{
    return _mm256_set1_ps(value);
}

INLINE float_vector widen(const uint8_t *x, uint8_t flip, int32_t zero)
{
    const __m128i read = _mm_loadl_epi64((const __m128i *)x);
    const __m256i wide = _mm256_cvtepu8_epi32(_mm_xor_si128(read, _mm_set1_epi8((char)flip)));
    return _mm256_cvtepi32_ps(_mm256_sub_epi32(wide, _mm256_set1_epi32(zero)));
}

INLINE void widen_pairs(const uint8_t *x, uint8_t flip, int32_t zero, float_vector *even,
                        float_vector *odd)
{
    const __m128i read = _mm_loadu_si128((const __m128i *)x);
    const __m256i pairs = _mm256_cvtepu16_epi32(_mm_xor_si128(read, _mm_set1_epi8((char)flip)));
    const __m256i low = _mm256_and_si256(pairs, _mm256_set1_epi32(0xFF));
    const __m256i zeros = _mm256_set1_epi32(zero);
    *even = _mm256_cvtepi32_ps(_mm256_sub_epi32(low, zeros));
    *odd = _mm256_cvtepi32_ps(_mm256_sub_epi32(_mm256_srli_epi32(pairs, 8), zeros));
}

INLINE float_vector fused(float_vector a, float_vector b, float_vector c)
{
    return _mm256_fmadd_ps(a, b, c);
}

INLINE float_vector negative_fused(float_vector a, float_vector b, float_vector c)
{
    return _mm256_fnmadd_ps(a, b, c);
}

INLINE float_vector max_floats(float_vector a, float_vector b)
{
    return _mm256_max_ps(a, b);
}

INLINE float_vector min_floats(float_vector a, float_vector b)
{
    return _mm256_min_ps(a, b);
}

INLINE void store_low(uint8_t *y, float_vector a)
{
    const __m256i low = _mm256_and_si256(_mm256_castps_si256(a), _mm256_set1_epi32(0xFF));
    const __m128i words =
        _mm_packs_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1));
    _mm_storel_epi64((__m128i *)y, _mm_packus_epi16(words, words));
}

#define QK_POOL_INIT qk_pool_init_avx2
#define QK_POOL_NAME "pool_avx2"
#define QK_POOL_MAX_CYCLES 0.06
#define QK_POOL_AVERAGE_CYCLES 0.8
#define QK_POOL_SUM_CYCLES 0.3
#include "kernels/pool/loops.h"

#endif
