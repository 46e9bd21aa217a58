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

/* x: [N, C, D1..Dn] with n = desc->spatial_rank. QK_INVALID: an axis holds no window, or its sizes
 * do not fit in 63 bits. */
enum qk_status qk_conv_geometry_init(struct qk_conv_geometry *geometry,
                                     const struct qk_conv_desc *desc, const struct qk_tensor *x,
                                     struct qk_error *error);

#endif
