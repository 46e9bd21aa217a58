/* Packs the numbers that each output channel has in all algorithms: sum of weights, bias and
 * multiplier. Private to conv/. */
#pragma once

#include "kernels/conv/conv.h"

/* Returns the zero point of an output channel's weights. All channels share one zero point, or each
 * channel has its own. */
static inline int32_t qk_w_zero_point(const struct qk_conv *conv, size_t channel)
{
    const struct qk_conv_constants *constants = &conv->constants;
    const uint8_t byte = constants->w_zero_point[constants->w_zero_point_count == 1 ? 0 : channel];
    return constants->w_type == QK_INT8 ? (int8_t)byte : byte;
}

/* Returns the byte that each byte of x is xored with to become the operand of a product. The
 * product takes unsigned bytes or, with x_signed, signed bytes. */
static inline uint8_t qk_conv_x_flip(enum qk_type x_type, bool x_signed)
{
    return (x_type == QK_INT8) != x_signed ? 0x80 : 0;
}

/* Returns the offset of a stored activation, stored = x - x_zero_point + offset, in an algorithm
 * that multiplies bytes: unsigned ones or, with x_signed, signed ones. */
int32_t qk_conv_x_offset(enum qk_type x_type, int32_t x_zero_point, bool x_signed);

/* Returns the zero point of x for a run with these inputs. */
int32_t qk_conv_x_zero_point(const struct qk_conv *conv, const void *const *inputs);

/* Returns the biases of `count` output channels from `channel` on, for a run in which stored
 * activations have this offset. If x's zero point comes with the run, `room` gets them. */
const int32_t *qk_conv_bias(const struct qk_conv *conv, int32_t x_offset, size_t channel,
                            size_t count, int32_t *room);

/* Returns sum(w - w_zp) of one output channel, modulo 2^32. */
int32_t qk_conv_weight_sum(const struct qk_conv *conv, size_t channel);

/* Packs bias and multiplier of output channels [begin, end). Activations are multiplied as they are
 * stored, so every sum is too large by x_offset times the sum of weights. This is subtracted from
 * the bias here, once. Before the call conv->bias holds sum(w - w_zp) of each channel, modulo 2^32,
 * unless x_offset is 0. If x's zero point comes with each run, that sum stays. */
void qk_conv_pack_channels(const struct qk_conv *conv, int32_t x_offset, size_t begin, size_t end);
