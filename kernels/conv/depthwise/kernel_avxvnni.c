/* Depthwise convolutions with AVX-VNNI's VPDPBUSD on vectors of 8 lanes. It adds four products to a
 * sum. */
#include "kernels/conv/depthwise/depthwise.h"

#ifdef __x86_64__

#include <immintrin.h>

#include "kernels/gemm/dpbusd.h"

static inline __m256i add_products(__m256i sums, __m256i x, __m256i w)
{
    return qk_dpbusd_avx(sums, x, w);
}

#include "kernels/conv/depthwise/kernel_ymm_u8s8.h"

const struct qk_depthwise qk_depthwise_u8s8_1x32__avxvnni = {
    .kernel = "conv_depthwise_avxvnni",
    .load_bytes = LOAD,
    .cycles = 2,
    .run = {[QK_EPILOGUE_BYTES] = run_bytes},
    .sum = sum_weights,
};

#endif
