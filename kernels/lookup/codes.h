/* The real values of codes of 8 bits, as ONNX Runtime's operators on 8 bits compute them in float32
 * (onnxruntime/contrib_ops/cpu/quantization/qlinear_lookup_table.cc). Private to kernels/. */
#pragma once

#include "kernels/element/load.h"
#include "kernels/element/round.h"
#include "kernels/lookup/lookup.h"
#include "kernels/qk.h"

/* A quantized tensor's codes: value = scale * (code - zero). */
struct qk_codes {
    float scale;
    int32_t zero;
    int32_t least, greatest; /* the smallest and the largest code */
};

/* Reads the scale and zero point of codes of `type`, UINT8 or INT8. An absent zero point is 0. */
static inline struct qk_codes qk_codes_of(enum qk_type type, const struct qk_tensor *scale,
                                          const struct qk_tensor *zero_point)
{
    return (struct qk_codes){
        .scale = qk_load_f32(scale->data, 0),
        .zero = zero_point->type == QK_NONE
                    ? 0
                    : (int32_t)qk_load_integer(zero_point->type, zero_point->data, 0),
        .least = (int32_t)qk_type_info(type)->min,
        .greatest = (int32_t)qk_type_info(type)->max,
    };
}

static inline float qk_dequantize_code(const struct qk_codes *codes, int32_t code)
{
    return codes->scale * (float)(code - codes->zero);
}

/* Returns the bits of the code that is nearest to value, saturated. A NaN becomes the least code.
 */
static inline uint8_t qk_quantize_code(const struct qk_codes *codes, float value)
{
    const float quotient = value / codes->scale;
    const float least = (float)(codes->least - codes->zero);
    const float greatest = (float)(codes->greatest - codes->zero);
    const float clamped = !(quotient > least) ? least : quotient > greatest ? greatest : quotient;
    return (uint8_t)(qk_round_even((double)clamped) + codes->zero);
}

/* Fills a table that gives codes of x the scale and zero point of y. Returns false if they have
 * them already: then the table gives each code itself, even if the scale is 0 or infinite. */
static inline bool qk_requantize(const struct qk_codes *x, const struct qk_codes *y,
                                 struct qk_lookup_table *table)
{
    const bool changes = !(x->scale == y->scale && x->zero == y->zero);
    for (int32_t code = x->least; code <= x->greatest; code++)
        table->entries[(uint8_t)code] =
            changes ? qk_quantize_code(y, qk_dequantize_code(x, code)) : (uint8_t)code;
    return changes;
}
