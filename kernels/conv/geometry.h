/* Which element of x each output position and tap of the kernel look at, axis by axis. Private to
 * conv/. */
#ifndef KERNELS_CONV_GEOMETRY_H
#define KERNELS_CONV_GEOMETRY_H

#include "kernels/conv/conv.h"

/* Position o and tap k look at element o * stride + k * dilation - pad, outside x unless it is in
 * [0, in).
 *
 * No sum or product of these numbers overflows an int64_t or a size_t, because each of them is
 * bounded where it enters: kernel, stride, dilation and both pads are less than 2^31, and `in` is
 * less than 2^47. (The operator checks what it reads; qk_conv_geometry_init checks `in` and the
 * pads of SAME_UPPER and SAME_LOWER.) It follows that:
 *
 * - the span of a window, (kernel - 1) * dilation + 1, is less than 2^62 before it is known to fit;
 * - the padded axis, in + pads, is less than 2^48. So are `out`, the span of a window that fits,
 *   and every o * stride + k * dilation of a position o < out and a tap k < kernel: it lies in the
 *   padded axis.
 * - One of these times a number of quads or bytes that a unit keeps in a cache, which are less than
 * 2^15, is less than 2^63. Code that multiplies by a row of any length must bound the row first.
 * - A stride or dilation times a number of taps of a vector, which are at most 16, is small. */
struct qk_conv_axis {
    int64_t in, out, kernel, stride, dilation;
    int64_t pad; /* before the axis; the one behind it has only had a say in `out` */
};

struct qk_conv_geometry {
    struct qk_conv_axis axis[QK_CONV_SPATIAL_MAX];
    int lead;      /* the first axis that counts: those before it have one element, kernel 1 */
    size_t images; /* N */
    size_t channel_size; /* elements of one channel of x; 0 when x is empty */
    size_t positions;    /* output elements of one channel */
};

/* A plane is what the last two axes have: rows and columns that lie together in x. The axes before
 * those, the outer ones, count planes. */
enum { QK_AXIS_ROW = QK_CONV_SPATIAL_MAX - 2, QK_AXIS_COLUMN = QK_CONV_SPATIAL_MAX - 1 };

/* The element of the axis that tap `tap` of position `position` looks at; it may be outside. */
static inline int64_t qk_conv_input_index(const struct qk_conv_axis *axis, size_t position,
                                          size_t tap)
{
    return (int64_t)position * axis->stride + (int64_t)tap * axis->dilation - axis->pad;
}

/* Makes axes fewer and longer, which leaves less to loop over. Axes of one element and one tap go
 * before `lead`. Where more than `least` axes are left, neighbours with one tap that see x as it is
 * become one axis, unless that would be longer than QK_CONV_AXIS_MAX. Positions and taps keep their
 * order, and a last axis with several taps stays the last. */
void qk_conv_geometry_squeeze(struct qk_conv_geometry *geometry, int least);

/* How many positions the outer axes have together; for a y that is not empty. */
size_t qk_conv_outer_positions(const struct qk_conv_geometry *geometry);

/* Finds the plane that tap `tap` of the outer axes sees from their position `position`: `offset`
 * elements behind the channel's first. False: it sees padding. */
bool qk_conv_find_plane(const struct qk_conv_geometry *geometry, size_t position, size_t tap,
                        size_t *offset);

/* x: [N, C, D1..Dn] with n = desc->spatial_rank. QK_INVALID: an axis holds no window, is longer
 * than QK_CONV_AXIS_MAX, or needs SAME pads of more than QK_CONV_NUMBER_MAX; or y has more
 * positions than 64 bits count. */
enum qk_status qk_conv_geometry_init(struct qk_conv_geometry *geometry,
                                     const struct qk_conv_desc *desc, const struct qk_tensor *x,
                                     struct qk_error *error);

#endif
