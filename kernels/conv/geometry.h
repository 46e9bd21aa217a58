/* Where each output position looks in x. Private to conv/. */
#ifndef KERNELS_CONV_GEOMETRY_H
#define KERNELS_CONV_GEOMETRY_H

#include "kernels/conv/conv.h"

/* Position o and tap k look at element o * stride + k * dilation - pad, outside x unless it is in
 * [0, in). Every o * stride + k * dilation fits in int64_t: it lies in the padded axis, and
 * qk_conv_geometry_init has refused those that do not fit. */
struct qk_conv_axis {
    int64_t in, out, kernel, stride, dilation;
    int64_t pad; /* before; the pad behind only decided `out` */
};

struct qk_conv_geometry {
    struct qk_conv_axis axis[QK_CONV_SPATIAL_MAX];
    int lead;            /* axes before it are there for the form only: one element, kernel 1 */
    size_t images;       /* N */
    size_t channel_size; /* elements of one channel of x; 0 when x is empty */
    size_t positions;    /* output elements of one channel */
};

/* The last two axes have rows and columns, which lie together in x; the others have planes. */
enum { QK_AXIS_ROW = QK_CONV_SPATIAL_MAX - 2, QK_AXIS_COLUMN = QK_CONV_SPATIAL_MAX - 1 };

/* The element of the axis that tap `tap` of position `position` sees. */
static inline int64_t qk_conv_look(const struct qk_conv_axis *axis, size_t position, size_t tap)
{
    return (int64_t)position * axis->stride + (int64_t)tap * axis->dilation - axis->pad;
}

/* Axes that have one element and one tap go before `lead`, and where more than `least` are left,
 * neighbours with one tap that see x as it is become one. Positions and taps stay in order, and a
 * last axis with several taps stays the last. */
void qk_conv_geometry_squeeze(struct qk_conv_geometry *geometry, int least);

/* Positions of the axes before the last two, counted in one; of a y that is not empty. */
size_t qk_conv_outer_positions(const struct qk_conv_geometry *geometry);

/* Where in a channel the plane begins that tap `tap` of those axes sees from their position
 * `position`; false: it is padding. */
bool qk_conv_find_plane(const struct qk_conv_geometry *geometry, size_t position, size_t tap,
                        size_t *offset);

/* x: [N, C, D1..Dn] with n = desc->spatial_rank. QK_INVALID: an axis holds no window, or its sizes
 * do not fit in 63 bits. */
enum qk_status qk_conv_geometry_init(struct qk_conv_geometry *geometry,
                                     const struct qk_conv_desc *desc, const struct qk_tensor *x,
                                     struct qk_error *error);

#endif
