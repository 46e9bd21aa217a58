/* Quantized convolution: geometry, im2col blocks, exact integer sums through sgemm, requantize.
 *
 * acc[m][p] = sum_k (x[k][p] - x_zp) * (w[m][k] - w_zp[m]) + bias[m], modulo 2^32, as int32.
 * y = clamp(round_half_even(fl32(fl32(acc) * multiplier[m]))) + y_zp, in the order of
 * ONNX Runtime's MlasRequantizeOutput: clamp in float to [qmin - y_zp, qmax - y_zp] (NaN gives the
 * lower bound), round to nearest even, then add y_zp.
 */
#ifndef KERNELS_CONV_CONV_H
#define KERNELS_CONV_CONV_H

#include "kernels/qk.h"

#define QK_CONV_SPATIAL_MAX 3

/* What is known without x: attributes and weights. 1-D and 2-D are kept as 3-D with leading axes of
 * length 1, so that one loop nest serves all. */
struct qk_conv_desc {
    uint32_t spatial_rank; /* 1, 2 or 3, as the caller sees it */
    size_t out_channels;   /* M */
    size_t group_channels; /* C / group */
    size_t group;
    size_t kernel[QK_CONV_SPATIAL_MAX];
    size_t stride[QK_CONV_SPATIAL_MAX];
    size_t dilation[QK_CONV_SPATIAL_MAX];
};

/* The rest of the contract is the conv implementer's to write: packed weights, geometry, run. */

#endif
