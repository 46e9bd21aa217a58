/* VPDPWSSD on vectors of 8 positions multiplies words and adds two products to a sum, modulo 2^32
 * (the form without saturation). For Winograd's convolution (kernels/conv/winograd/winograd.h). */
#include "kernels/gemm/igemm.h"

#ifdef __x86_64__

#include <immintrin.h>

static inline __m256i add_products(__m256i sum, __m256i x, __m256i w)
{
    return _mm256_dpwssd_avx_epi32(sum, x, w);
}

#include "kernels/gemm/igemm_ymm.h"

const struct qk_igemm qk_igemm_s16s16_6x16__avxvnni = {
    .quad_k = 2,
    .mr = MR,
    .nr = QK_IGEMM_NR,
    .row_stride = QK_IGEMM_QUAD_BYTES,
    .quad_stride = (size_t)MR * QK_IGEMM_QUAD_BYTES,
    .multiply = multiply_panel,
};

#endif
