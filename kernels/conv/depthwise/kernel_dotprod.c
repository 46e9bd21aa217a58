/* Depthwise convolutions with SDOT, which adds four products to a sum. */
#include "kernels/conv/depthwise/depthwise.h"

#ifdef __aarch64__

#include <arm_neon.h>

#define SUMS 2 /* registers that hold 8 sums */

typedef uint8x16x2_t bytes_32;
typedef int8x16_t lane_taps;
typedef int32x4x2_t lane_sums;

static inline lane_sums splat_sum(int32_t sum)
{
    const int32x4_t sums = vdupq_n_s32(sum);
    return (lane_sums){{sums, sums}};
}

static inline int32x4_t sums_of(lane_sums sums, size_t four)
{
    return sums.val[four];
}

static inline lane_sums add_products(lane_sums sums, bytes_32 x, lane_taps w)
{
    return (lane_sums){{vdotq_s32(sums.val[0], vreinterpretq_s8_u8(x.val[0]), w),
                        vdotq_s32(sums.val[1], vreinterpretq_s8_u8(x.val[1]), w)}};
}

#include "kernels/conv/depthwise/kernel_neon.h"

const struct qk_depthwise qk_depthwise_s8s8_1x32__dotprod = {
    .kernel = "conv_depthwise_dotprod",
    .load_bytes = LOAD,
    .x_signed = true,
    .cycles = 3, /* of Neoverse N1, in the model of tests/bench/RESULTS.md */
    .run = {[QK_EPILOGUE_BYTES] = run_bytes},
    .sum = sum_weights,
};

#endif
