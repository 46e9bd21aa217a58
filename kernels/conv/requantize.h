/* Sums to bytes, in the step order of ONNX Runtime's MlasRequantizeOutput: convert the sum to
 * float, multiply, clamp in float to [qmin - zp, qmax - zp] (NaN gives the lower bound), round to
 * nearest even, then add zp. Private to conv/. */
#ifndef KERNELS_CONV_REQUANTIZE_H
#define KERNELS_CONV_REQUANTIZE_H

#include "kernels/conv/conv.h"

/* For elements of `type`, QK_UINT8 or QK_INT8. */
struct qk_requantize qk_requantize_for(enum qk_type type, int32_t zero_point);

/* One channel's row of a tile. A sum is sums[i] + carried[i] + bias, modulo 2^32. */
struct qk_requantize_row {
    const float *sums;      /* integers, |sum| <= 2^24 */
    const int32_t *carried; /* from earlier blocks of k; NULL: there were none */
    int32_t bias;
    float multiplier;
    size_t count;
    uint8_t *y;
};

void qk_requantize_row(const struct qk_requantize *requantize, const struct qk_requantize_row *row);

/* carried[i] += sums[i], modulo 2^32. */
void qk_requantize_carry(const float *restrict sums, size_t count, int32_t *restrict carried);

#endif
