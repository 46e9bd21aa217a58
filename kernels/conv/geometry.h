/* Which element of x each output position and tap of the kernel look at, axis by axis. Private to
 * conv/. */
#ifndef KERNELS_CONV_GEOMETRY_H
#define KERNELS_CONV_GEOMETRY_H

#include "kernels/conv/conv.h"

/* Position o and tap k look at element o * stride + k * dilation - pad, outside x unless it is in
 * [0, in). Every o * stride + k * dilation fits in int64_t: it lies in the padded axis, and
 * qk_conv_geometry_init has refused those that do not fit. */
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
static inline int64_t qk_conv_look(const struct qk_conv_axis *axis, size_t position, size_t tap)
{
    return (int64_t)position * axis->stride + (int64_t)tap * axis->dilation - axis->pad;
}

/* Makes axes fewer and longer, which leaves less to loop over. Axes of one element and one tap go
 * before `lead`. Where more than `least` axes are left, neighbours with one tap that see x as it is
 * become one axis. Positions and taps keep their order, and a last axis with several taps stays the
 * last. */
void qk_conv_geometry_squeeze(struct qk_conv_geometry *geometry, int least);

/* How many positions the outer axes have together; for a y that is not empty. */
size_t qk_conv_outer_positions(const struct qk_conv_geometry *geometry);

/* Finds the plane that tap `tap` of the outer axes sees from their position `position`: `offset`
 * elements behind the channel's first. False: it sees padding. */
bool qk_conv_find_plane(const struct qk_conv_geometry *geometry, size_t position, size_t tap,
                        size_t *offset);

/* x: [N, C, D1..Dn] with n = desc->spatial_rank. QK_INVALID: an axis holds no window, or its sizes
 * do not fit in 63 bits. */
enum qk_status qk_conv_geometry_init(struct qk_conv_geometry *geometry,
                                     const struct qk_conv_desc *desc, const struct qk_tensor *x,
                                     struct qk_error *error);

#endif
