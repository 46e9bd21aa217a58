/* VPDPWSSD on vectors of 16 rows multiplies words and adds two products to a sum, modulo 2^32 (the
 * form without saturation). For Winograd's convolution (kernels/conv/winograd/winograd.h). */
#include "kernels/gemm/igemm.h"

#ifdef __x86_64__

#include <immintrin.h>

static inline __m512i add_products(__m512i sum, __m512i x, __m512i w)
{
    return _mm512_dpwssd_epi32(sum, x, w);
}

#include "kernels/gemm/igemm_32x14_zmm.h"

const struct qk_igemm qk_igemm_s16s16_32x14__avx512vnni = {
    .quad_k = 2,
    .mr = MR,
    .nr = NR,
    .by_position = true,
    .lanes = LANES,
    .part = NR,
    .row_stride = QK_IGEMM_QUAD_BYTES,
    .quad_stride = (size_t)MR * QK_IGEMM_QUAD_BYTES,
    .multiply = multiply,
};

#endif
