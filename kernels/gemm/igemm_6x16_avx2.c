/* VPMADDWD on vectors of 8 positions multiplies words of x by words of weights, both less their
 * zero points, and adds two products to a sum. A product is at most 255 * 255, so a pair of
 * products is far from saturating. Sums wrap modulo 2^32. */
#include "kernels/gemm/igemm.h"

#ifdef __x86_64__

#include <immintrin.h>
#include <string.h>

static inline __m256i add_products(__m256i sum, __m256i x, __m256i w)
{
    return _mm256_add_epi32(sum, _mm256_madd_epi16(x, w));
}

#include "kernels/gemm/igemm_ymm.h"
#include "kernels/gemm/igemm_ymm_bytes.h"

static void multiply(const struct qk_igemm_args *args)
{
    if (args->bytes)
        requantize_panel(args);
    else
        multiply_panel(args);
}

static void unpack(const uint8_t *weights, size_t slabs, struct qk_igemm_wide wide,
                   const uint8_t *wide_weights, int8_t *to)
{
    (void)wide, (void)wide_weights;
    for (size_t i = 0; i < slabs * MR; i++, weights += QK_IGEMM_QUAD_BYTES, to += 2) {
        int16_t words[2];
        memcpy(words, weights, sizeof(words));
        to[0] = (int8_t)words[0];
        to[1] = (int8_t)words[1];
    }
}

const struct qk_igemm qk_igemm_s16s16_6x16__avx2 = {
    .quad_k = 2,
    .mr = MR,
    .nr = QK_IGEMM_NR,
    .lanes = LANES,
    .row_stride = QK_IGEMM_QUAD_BYTES,
    .quad_stride = (size_t)MR * QK_IGEMM_QUAD_BYTES,
    .multiply = multiply,
    .unpack = unpack,
    .stores_bytes = true,
};

#endif
