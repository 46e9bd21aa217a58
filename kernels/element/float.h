/* Rounds floats to FP16 and BF16, inline, for scalar loops. Private to kernels/.
 *
 * The functions compute with integers, because instructions give other bits. VCVTNEPS2BF16 would
 * turn subnormals into zeros, and VCVTPS2PH would keep the payloads of NaNs. */
#pragma once

#include <string.h>

#include "kernels/qk.h"

static inline uint32_t qk_bits_of_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static inline float qk_float_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* Does what qk_fp16_round does (kernels/qk.h). */
static inline uint16_t qk_fp16_round_inline(float value)
{
    const uint32_t bits = qk_bits_of_float(value);
    const uint32_t sign = bits >> 16 & 0x8000;
    const uint32_t magnitude = bits & 0x7fffffff;
    uint32_t rounded;
    if (magnitude > 0x7f800000)
        rounded = 0x7e00;
    else if (magnitude >= 0x477ff000) /* 65520, the middle of the largest FP16 and 65536 */
        rounded = 0x7c00;
    else if (magnitude < 0x38800000) /* below 2^-14, where FP16 is subnormal: the sum is rounded to
                                        a multiple of 2^-24, because floats in [0.5, 1] are as far
                                        apart as FP16's subnormals */
        rounded = qk_bits_of_float(qk_float_of_bits(magnitude) + 0.5F) - 0x3f000000;
    else /* drops 13 bits and lowers the exponent's bias from 127 to 15 */
        rounded = (magnitude + 0xfff + (magnitude >> 13 & 1) - 0x38000000) >> 13;
    return (uint16_t)(sign | rounded);
}

/* Does what qk_bf16_round does (kernels/qk.h). */
static inline uint16_t qk_bf16_round_inline(float value)
{
    const uint32_t bits = qk_bits_of_float(value);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return (uint16_t)((bits >> 16 & 0x8000) | 0x7fc0);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
