/* Depthwise convolutions with SMULL and SADALP. Each sum has two lanes, which are added up at the
 * end (kernels/gemm/igemm_6x8_neon.c). */
#include "kernels/conv/depthwise/depthwise.h"

#ifdef __aarch64__

#include <arm_neon.h>

#define SUMS 4 /* registers that hold 8 sums */

typedef uint8x16x2_t bytes_32;
typedef int8x16_t lane_taps;
typedef int32x4x4_t lane_sums;

static inline lane_sums splat_sum(int32_t sum)
{
    const int32x4_t sums = vreinterpretq_s32_u64(vdupq_n_u64((uint32_t)sum));
    return (lane_sums){{sums, sums, sums, sums}};
}

static inline int32x4_t sums_of(lane_sums sums, size_t four)
{
    return vpaddq_s32(sums.val[2 * four], sums.val[2 * four + 1]);
}

static inline lane_sums add_products(lane_sums sums, bytes_32 x, lane_taps w)
{
    const int8x16_t low = vreinterpretq_s8_u8(x.val[0]);
    const int8x16_t high = vreinterpretq_s8_u8(x.val[1]);
    /* Keeps the compiler from loading all quads at the same time, which would leave too few
     * registers for sums. */
    __asm__ volatile("" : : : "memory");
    return (lane_sums){{vpadalq_s16(sums.val[0], vmull_s8(vget_low_s8(low), vget_low_s8(w))),
                        vpadalq_s16(sums.val[1], vmull_high_s8(low, w)),
                        vpadalq_s16(sums.val[2], vmull_s8(vget_low_s8(high), vget_low_s8(w))),
                        vpadalq_s16(sums.val[3], vmull_high_s8(high, w))}};
}

#include "kernels/conv/depthwise/kernel_neon.h"

const struct qk_depthwise qk_depthwise_s8s8_1x32__neon = {
    .kernel = "conv_depthwise_neon",
    .load_bytes = LOAD,
    .x_signed = true,
    .cycles = 8, /* of Neoverse N1, in the model of tests/bench/RESULTS.md */
    .run = {[QK_EPILOGUE_BYTES] = run_bytes},
    .sum = sum_weights,
};

#endif
