/* Whether the results of float8s can be looked up by parts (struct qk_float8_parts). Only for
 * dequantize_avx2.c and dequantize_avx512bw.c. */
#ifndef KERNELS_DEQUANTIZE_TAME_H
#define KERNELS_DEQUANTIZE_TAME_H

#include "kernels/dequantize/dequantize.h"
#include "kernels/element/float.h"

/* True for scales from 2^-100 to 2^100: no float8 times such a scale leaves the normal exponents of
 * FP32 and BF16, since float8s reach from 2^-17 to 2^16. */
static inline bool qk_scale_is_tame(float scale)
{
    const uint32_t exponent = qk_bits_of_float(scale) >> 23 & 255;
    return exponent - (127 - 100) < 200;
}

/* True if all scales of a span are. */
static inline bool qk_scales_are_tame(const struct qk_span *span)
{
    const float *scales = span->scales;
    const size_t last = (span->done + span->count - 1) / span->block; /* block, from the first on */
    const bool around = span->period > 0 && span->p + last >= span->period;
    const size_t begin = around ? 0 : span->p;
    const size_t end = around ? span->period : span->p + last + 1;
    bool tame = true;
    for (size_t i = begin; i < end; i++)
        tame &= qk_scale_is_tame(scales[i]);
    return tame;
}

#endif
