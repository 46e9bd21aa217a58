/* VPDPBUSD on vectors of 8 positions, for CPUs that have AVX-VNNI but not AVX-512. It multiplies u8
 * by s8 and adds four products to a sum, modulo 2^32 (the form without saturation). */
#include "kernels/gemm/igemm.h"

#ifdef __x86_64__

#include <immintrin.h>

static inline __m256i add_products(__m256i sum, __m256i x, __m256i w)
{
    return _mm256_dpbusd_avx_epi32(sum, x, w);
}

#include "kernels/gemm/igemm_ymm.h"

const struct qk_igemm qk_igemm_u8s8_6x16__avxvnni = {
    .quad_k = 4,
    .mr = MR,
    .nr = QK_IGEMM_NR,
    .row_stride = QK_IGEMM_QUAD_BYTES,
    .quad_stride = (size_t)MR * QK_IGEMM_QUAD_BYTES,
    .multiply = multiply,
};

#endif
