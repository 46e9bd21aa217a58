/* Finds, axis by axis, which element of x each tap of the kernel reads for each output position.
 * All algorithms use it. Private to conv/. */
#pragma once

#include "kernels/conv/conv.h"

/* Position o and tap k read element o * stride + k * dilation - pad, which is outside x unless it
 * is in [0, in).
 *
 * No sum or product of these numbers overflows an int64_t or a size_t, because each number is
 * bounded where it enters: kernel, stride, dilation and both pads are less than 2^31, and `in` is
 * less than 2^47. (The operator checks the attributes; qk_conv_geometry_init checks `in` and the
 * pads of SAME_UPPER and SAME_LOWER.) It follows that:
 *
 * - The span of a window, (kernel - 1) * dilation + 1, is less than 2^62 before the window is known
 *   to fit.
 * - The padded axis, in + pads, is less than 2^48. So are `out`, the span of a window that fits,
 *   and o * stride + k * dilation for every position o < out and tap k < kernel, because this
 *   element is in the padded axis.
 * - One of these numbers times a number of quads or bytes that a unit keeps in a cache, which is
 *   less than 2^15, is less than 2^63. Code that multiplies by the length of a row must bound that
 *   length first.
 * - A stride or dilation times the number of taps in a vector, at most 16, is less than 2^35. */
struct qk_conv_axis {
    int64_t in, out, kernel, stride, dilation;
    int64_t pad; /* elements of padding before the axis; padding after it only adds to `out` */
};

struct qk_conv_geometry {
    struct qk_conv_axis axis[QK_CONV_SPATIAL_MAX];
    int lead; /* the first axis that counts: all axes before it have one element and kernel 1 */
    size_t images;         /* N */
    size_t channel_size;   /* elements of one channel of x; 0 if x is empty */
    size_t channel_stride; /* elements between equal elements of two neighbouring channels */
    size_t positions;      /* output elements of one channel */
};

/* A plane is the last two axes of one channel: rows and columns, contiguous in x. The axes before
 * these two, the outer axes, count planes. */
enum { QK_AXIS_ROW = QK_CONV_SPATIAL_MAX - 2, QK_AXIS_COLUMN = QK_CONV_SPATIAL_MAX - 1 };

/* Returns the input index: which element of the axis tap `tap` of position `position` reads. It may
 * be outside the axis. */
static inline int64_t qk_conv_input_index(const struct qk_conv_axis *axis, size_t position,
                                          size_t tap)
{
    return (int64_t)position * axis->stride + (int64_t)tap * axis->dilation - axis->pad;
}

/* Makes axes fewer and longer, so that the algorithms have fewer loops. Axes with one element and
 * one tap move before `lead`. If more than `least` axes are left, neighbouring axes with one tap
 * that read x unchanged are merged, unless the merged axis would be longer than QK_CONV_AXIS_MAX: a
 * 1 x 1 kernel on 28 x 28 becomes an axis of 784. Positions and taps keep their order. A last axis
 * with several taps stays the last. */
void qk_conv_geometry_squeeze(struct qk_conv_geometry *geometry, int least);

/* If channels are last in x, multiplies all numbers of elements of the column axis by the number of
 * channels. One channel of x is then a plane with longer rows, of which a tap reads every
 * `channels`-th element, and the planes of two channels begin channel_stride = 1 element apart. All
 * that reads x needs no other change. For 3 channels abc of a row, a kernel of 2 columns and a pad
 * of 1:
 *
 *     x        a0 b0 c0 a1 b1 c1 ...    `in` is 3 times as long
 *     channel 0, tap 0 reads -3 0 3 ...; tap 1 reads 0 3 6 ...
 *     channel 1 reads the same from element 1 on
 *
 * Call it last: it changes no other axis, and positions and taps stay. */
void qk_conv_geometry_interleave(struct qk_conv_geometry *geometry,
                                 const struct qk_conv_desc *desc);

/* Returns the product of the positions of the outer axes, which is 1 if there are none. y must not
 * be empty. */
size_t qk_conv_outer_positions(const struct qk_conv_geometry *geometry);

/* Finds the plane that tap `tap` of the outer axes reads for their position `position`. Sets
 * *offset to the number of elements between the channel's first element and the plane's. Returns
 * false if the tap reads padding. */
bool qk_conv_find_plane(const struct qk_conv_geometry *geometry, size_t position, size_t tap,
                        size_t *offset);

/* Fits the axes to x, which is [N, C, D1..Dn] or, with channels_last, [N, D1..Dn, C], with n =
 * desc->spatial_rank. Returns QK_INVALID if an axis holds no window, is longer than
 * QK_CONV_AXIS_MAX, or needs SAME pads of more than QK_CONV_NUMBER_MAX, if y has more positions
 * than 64 bits count, or if a padded last axis with interleaved channels is longer than
 * QK_CONV_AXIS_MAX. */
enum qk_status qk_conv_geometry_init(struct qk_conv_geometry *geometry,
                                     const struct qk_conv_desc *desc, const struct qk_tensor *x,
                                     struct qk_error *error);
