/* Decides for dequantize_avx2.c and dequantize_avx512bw.c whether a kernel may look up the results
 * of float8s by parts (struct qk_float8_parts). It may if every scale of the span is bounded. */
#pragma once

#include <math.h>

#include "kernels/dequantize/dequantize.h"

/* Returns true if the scale is bounded: if the results of all codes with s >= 16 (struct
 * qk_float8_parts) are normal numbers of FP32 and of y_type. The limits for BF16 are a little
 * inside its range. Returns false for a NaN. */
static inline bool qk_scale_is_bounded(const struct qk_float8_parts *parts, enum qk_type y_type,
                                       float scale)
{
    const float low = y_type == QK_FP16 ? 0x1p-14F : 0x1p-120F;
    const float high = y_type == QK_FP16 ? 65504 : 0x1p120F;
    return fabsf(parts->least * scale) >= low && fabsf(parts->most * scale) <= high;
}

/* Returns true if all scales of a span are bounded. */
static inline bool qk_scales_are_bounded(const struct qk_dequantize_args *args)
{
    const struct qk_span *span = &args->span;
    const struct qk_float8_parts *parts = &args->table->parts;
    const float *scales = span->scales;
    const size_t last = (span->done + span->count - 1) / span->block; /* blocks after the first */
    const bool around = span->period > 0 && span->p + last >= span->period;
    const size_t begin = around ? 0 : span->p;
    const size_t end = around ? span->period : span->p + last + 1;
    bool bounded = true;
    for (size_t i = begin; i < end; i++)
        bounded &= qk_scale_is_bounded(parts, args->y_type, scales[i]);
    return bounded;
}
