/* Requantizes 16 sums at a time (kernels/conv/requantize.h). Private to conv/. */
#pragma once

#include "kernels/conv/requantize.h"

#ifdef __aarch64__

#include <arm_neon.h>

/* Requantizes 16 sums, which include the bias. FMAXNM of a NaN and a number gives the number, so a
 * NaN becomes `low`. Adding 1.5 * 2^23 rounds to nearest even and leaves the integer in the lowest
 * bits (kernels/element/round.h), of which only one byte is used. Converting to an integer would
 * take longer, because ARM CPUs do more additions than conversions at a time. */
static inline uint8x16_t qk_requantize_16(const struct qk_requantize *to, const int32x4_t sums[4],
                                          float multiplier)
{
    const float32x4_t low = vdupq_n_f32(to->low);
    const float32x4_t high = vdupq_n_f32(to->high);
    int16x8_t values[4];
#pragma GCC unroll 4
    for (size_t i = 0; i < 4; i++) {
        const float32x4_t value = vmulq_n_f32(vcvtq_f32_s32(sums[i]), multiplier);
        values[i] = vreinterpretq_s16_f32(vminnmq_f32(vmaxnmq_f32(value, low), high) + 0x1.8p23F);
    }
    const uint8x16_t first = vreinterpretq_u8_s16(vuzp1q_s16(values[0], values[1]));
    const uint8x16_t second = vreinterpretq_u8_s16(vuzp1q_s16(values[2], values[3]));
    return vaddq_u8(vuzp1q_u8(first, second), vdupq_n_u8((uint8_t)to->zero_point));
}

#endif
