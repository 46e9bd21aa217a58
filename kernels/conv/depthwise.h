/* Convolutions with one channel in a group, straight from planes of x: lanes are positions, and a
 * product takes up to four neighbouring taps of one row of the kernel. Private to conv/.
 *
 * Planes are staged as for slabs (kernels/conv/slabs.h), but as bytes, and with all columns: the
 * taps of position p begin at byte p * stride of their row. `pitch` is a multiple of the stride, so
 * that positions run on from line to line.
 */
#ifndef KERNELS_CONV_DEPTHWISE_H
#define KERNELS_CONV_DEPTHWISE_H

#include "kernels/conv/backend.h"
#include "kernels/conv/blocks.h"

/* Up to four taps: what a product takes. */
#define QK_DEPTHWISE_TAPS 4

/* One output channel over the blocks of a unit. */
struct qk_depthwise_job {
    const uint8_t *planes;   /* unsigned; QK_DEPTHWISE_SLACK bytes behind the last are readable */
    const uint32_t *offsets; /* [cells]: where the taps of position 0 begin */
    size_t cells;
    size_t stride;          /* of the columns */
    const uint8_t *order;   /* [64], of qk_depthwise_order */
    const uint8_t *weights; /* [cells][QK_DEPTHWISE_TAPS], signed; 0 for taps that are not there */
    const uint8_t *ones; /* the same with 1 for taps that are; read where w_zero_point is not 0 */
    int32_t w_zero_point;
    int32_t bias;
    float multiplier;
    const struct qk_requantize *requantize;
    bool y_signed;
    const struct qk_conv_block *blocks;
    size_t block_count;
    uint8_t *y;
};

#define QK_DEPTHWISE_SLACK 320 /* a block of 64 positions, strides apart, and a vector */

/* Whether a vector of bytes holds 16 positions' taps. */
static inline bool qk_depthwise_fits(size_t stride, size_t dilation)
{
    return stride <= 4 && dilation <= 21 && 15 * stride + (QK_DEPTHWISE_TAPS - 1) * dilation < 64;
}

/* Byte 4 p + t is the one that tap t of position p sees, of those in a vector. */
void qk_depthwise_order(size_t stride, size_t dilation, uint8_t order[64]);

void qk_depthwise_vnni(const struct qk_depthwise_job *job);

#endif
