/* VPDPBUSD on vectors of 16 rows multiplies u8 by s8 and adds four products to a sum, modulo 2^32
 * (the form without saturation). */
#include "kernels/gemm/igemm.h"

#ifdef __x86_64__

#include <immintrin.h>
#include <string.h>

static inline __m512i add_products(__m512i sum, __m512i x, __m512i w)
{
    return _mm512_dpbusd_epi32(sum, x, w);
}

#include "kernels/gemm/igemm_32x14_zmm_bytes.h"

/* A quad of a row has two pairs of channels, which go to two rows of pairs. */
static void unpack(const uint8_t *weights, size_t slabs, struct qk_igemm_wide wide,
                   const uint8_t *wide_weights, int8_t *to)
{
    const __m512i evens =
        _mm512_set_epi16(62, 60, 58, 56, 54, 52, 50, 48, 46, 44, 42, 40, 38, 36, 34, 32, 30, 28, 26,
                         24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    const __m512i odds = _mm512_add_epi16(evens, _mm512_set1_epi16(1));
    (void)wide, (void)wide_weights;
    for (size_t i = 0; i < slabs; i++, weights += 128, to += 128) {
        const __m512i low = _mm512_load_si512(weights), high = _mm512_load_si512(weights + 64);
        _mm512_storeu_si512(to, _mm512_permutex2var_epi16(low, evens, high));
        _mm512_storeu_si512(to + 64, _mm512_permutex2var_epi16(low, odds, high));
    }
}

static void multiply_either(const struct qk_igemm_args *args)
{
    if (args->bytes)
        multiply_to_bytes(args);
    else
        multiply(args);
}

const struct qk_igemm qk_igemm_u8s8_32x14__avx512vnni = {
    .quad_k = 4,
    .mr = MR,
    .nr = NR,
    .by_position = true,
    .lanes = LANES,
    .part = NR,
    .row_stride = QK_IGEMM_QUAD_BYTES,
    .quad_stride = (size_t)MR * QK_IGEMM_QUAD_BYTES,
    .unpack = unpack,
    .multiply = multiply_either,
    .stores_bytes = true,
};

#endif
