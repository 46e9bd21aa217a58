/* Converts the int32 sums of a convolution to the bytes of y. The steps and their order are those
 * of ONNX Runtime's MlasRequantizeOutput: convert the sum to float, multiply, clamp in float to the
 * range of y's type less y's zero point (NaN gives the lower bound), round to nearest even, then
 * add the zero point. Private to kernels/. */
#pragma once

#include "kernels/conv/epilogue.h"
#include "kernels/element/round.h"

/* Returns the constants for y, whose `type` is QK_UINT8 or QK_INT8. */
static inline struct qk_requantize qk_requantize_for(enum qk_type type, int32_t zero_point)
{
    const struct qk_type_info *info = qk_type_info(type);
    return (struct qk_requantize){
        .low = (float)(info->min - zero_point),
        .high = (float)(info->max - zero_point),
        .zero_point = zero_point,
        .is_signed = info->min < 0,
    };
}

/* Requantizes one sum, which includes the bias. This is the definition: the vector code gives the
 * same bits. The low byte is y for both types, because the clamped value is in the type's range. */
static inline uint8_t qk_requantize_one(struct qk_requantize to, int32_t sum, float multiplier)
{
    float value = (float)sum * multiplier;
    value = value > to.low ? value : to.low; /* NaN compares false: low */
    value = value < to.high ? value : to.high;
    return (uint8_t)(qk_round_even_small(value) + to.zero_point);
}
