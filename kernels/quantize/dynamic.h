/* Quantizes FP32 to UINT8 with the scale and zero point that fit its own range, as ONNX Runtime's
 * DynamicQuantizeLinear does:
 *
 *   low = min(0, x), high = max(0, x)
 *   scale = fl32(fl32(high - low) / 255), or 1 if high = low
 *   zero_point = round_half_even(clamp(fl32(0 - fl32(low / scale)), 0, 255))
 *   y = clamp(round_half_even(fl32(x / scale))) + zero_point, clamped as floats before rounding
 *
 * Each thread finds the range for itself, once in each call of `run`. So there are few units, and
 * they need not wait for each other. NaNs in x do not count for the range. */
#pragma once

#include "kernels/elementwise/traversal.h"
#include "kernels/qk.h"
#include "kernels/quantize/quantize.h"

/* Plans x, which is input 0. Sets the outputs y, y_scale and y_zero_point, and the units. */
enum qk_status qk_quantize_dynamic_plan(const struct qk_quantize_kernels *kernels,
                                        const struct qk_elementwise_tuning *tuning,
                                        const struct qk_tensor *x, struct qk_memory memory,
                                        struct qk_plan *plan, struct qk_error *error);
