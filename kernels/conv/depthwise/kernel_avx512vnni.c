/* Depthwise convolutions with AVX-512's VPDPBUSD, which adds four products to a sum, on vectors of
 * 16 lanes. Without VBMI, no instruction permutes all bytes of such a vector, so quads are made in
 * vectors of 8. */
#include "kernels/conv/depthwise/depthwise.h"

#ifdef __x86_64__

#include <immintrin.h>

#include "kernels/conv/requantize_avx512.h"
#include "kernels/gemm/dpbusd.h"

#define SUM_LANES 16

typedef __m512i lane_taps;
typedef __m512i lane_sums;

static inline __m512i load_quads(const uint8_t *from)
{
    return _mm512_loadu_si512(from);
}

static inline lane_taps splat_taps(int32_t taps)
{
    return _mm512_set1_epi32(taps);
}

static inline lane_sums splat_sum(int32_t sum)
{
    return _mm512_set1_epi32(sum);
}

static inline void requantize_4(const struct qk_requantize *from, const lane_sums sums[4],
                                float multiplier, uint8_t bytes[64])
{
    const struct qk_requantize_512 to = qk_requantize_512_from(from);
    _mm512_storeu_si512(bytes, qk_requantize_64(&to, sums, multiplier));
}

static inline lane_sums add_products(lane_sums sums, __m512i x, lane_taps w)
{
    return qk_dpbusd(sums, x, w);
}

#include "kernels/conv/depthwise/kernel_ymm_u8s8.h"

const struct qk_depthwise qk_depthwise_u8s8_1x64__avx512vnni = {
    .kernel = "conv_depthwise_vnni_novbmi",
    .load_bytes = LOAD,
    .cycles = 1.5,
    .run = {[QK_EPILOGUE_BYTES] = run_bytes},
    .sum = sum_weights,
};

#endif
