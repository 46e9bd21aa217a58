/* The kernels of binary.h for AVX-512. */
#include "kernels/binary/binary.h"

#ifdef __x86_64__

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))
#define TIER avx512bw
#define CYCLES 0.3
#define LANES 16

typedef __m512 vector;

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

INLINE vector subtract(vector a, vector b)
{
    return _mm512_sub_ps(a, b);
}

/* The conversion gives the least integer for NaN and for what does not fit into 32 bits. Packing
 * clamps, and interleaves the vectors: four elements of each lie side by side. */
INLINE void store(uint8_t *y, vector a, vector b, vector c, vector d, bool is_signed)
{
    const __m512i order = _mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0);
    const __m512i low = _mm512_packs_epi32(_mm512_cvtps_epi32(a), _mm512_cvtps_epi32(b));
    const __m512i high = _mm512_packs_epi32(_mm512_cvtps_epi32(c), _mm512_cvtps_epi32(d));
    const __m512i bytes =
        is_signed ? _mm512_packs_epi16(low, high) : _mm512_packus_epi16(low, high);
    _mm512_storeu_si512(y, _mm512_permutexvar_epi32(order, bytes));
}

#include "kernels/binary/loops.h"

#endif
