/* The kernels of binary.h for AVX2. */
#include "kernels/binary/binary.h"

#ifdef __x86_64__

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))
#define TIER avx2
#define CYCLES 0.4
#define LANES 8

typedef __m256 vector;

INLINE vector splat(float value)
{
    return _mm256_set1_ps(value);
}

INLINE vector widen(const uint8_t *codes, bool is_signed)
{
    const __m128i bytes = _mm_loadl_epi64((const __m128i *)codes);
    return _mm256_cvtepi32_ps(is_signed ? _mm256_cvtepi8_epi32(bytes)
                                        : _mm256_cvtepu8_epi32(bytes));
}

INLINE vector fused(vector a, vector b, vector c)
{
    return _mm256_fmadd_ps(a, b, c);
}

INLINE vector multiply(vector a, vector b)
{
    return _mm256_mul_ps(a, b);
}

INLINE vector add(vector a, vector b)
{
    return _mm256_add_ps(a, b);
}

INLINE vector subtract(vector a, vector b)
{
    return _mm256_sub_ps(a, b);
}

/* The conversion gives the least integer for NaN and for what does not fit into 32 bits. Packing
 * clamps, and interleaves the vectors: four elements of each lie side by side. */
INLINE void store(uint8_t *y, vector a, vector b, vector c, vector d, bool is_signed)
{
    const __m256i order = _mm256_set_epi32(7, 3, 6, 2, 5, 1, 4, 0);
    const __m256i low = _mm256_packs_epi32(_mm256_cvtps_epi32(a), _mm256_cvtps_epi32(b));
    const __m256i high = _mm256_packs_epi32(_mm256_cvtps_epi32(c), _mm256_cvtps_epi32(d));
    const __m256i bytes =
        is_signed ? _mm256_packs_epi16(low, high) : _mm256_packus_epi16(low, high);
    _mm256_storeu_si256((__m256i *)y, _mm256_permutevar8x32_epi32(bytes, order));
}

#include "kernels/binary/loops.h"

#endif
