/* Finds, axis by axis, which elements of x each output position of a pooling operator reads. The
 * rules are ONNX Runtime's (core/providers/cpu/nn/pool_attributes.h). They differ from those of
 * convolutions (kernels/conv/geometry.h): a window may leave the image without padding, ceil_mode
 * exists, and the pads of SAME_UPPER and SAME_LOWER ignore dilations and may be negative. Private
 * to kernels/. */
#pragma once

#include "kernels/qk.h"

/* The largest number of spatial axes. ONNX Runtime has no pooling of more. */
#define QK_POOL_SPATIAL_MAX 3

/* The largest kernel, stride, dilation or pad of an axis: as for convolutions. */
#define QK_POOL_NUMBER_MAX INT32_MAX

enum qk_pool_padding {
    QK_POOL_PAD_EXPLICIT,
    QK_POOL_PAD_VALID,
    QK_POOL_PAD_SAME_UPPER,
    QK_POOL_PAD_SAME_LOWER
};

/* What is known without x. There are always QK_POOL_SPATIAL_MAX axes. The first ones have kernel 1
 * if the operator has fewer. */
struct qk_pool_desc {
    uint32_t spatial_rank;
    enum qk_pool_padding padding;
    bool ceil_mode;
    bool channels_last;
    /* From 1 to QK_POOL_NUMBER_MAX. */
    int64_t kernel[QK_POOL_SPATIAL_MAX];
    int64_t stride[QK_POOL_SPATIAL_MAX];
    int64_t dilation[QK_POOL_SPATIAL_MAX];
    /* From 0 to QK_POOL_NUMBER_MAX. Read only if `padding` is QK_POOL_PAD_EXPLICIT. */
    int64_t pad_begin[QK_POOL_SPATIAL_MAX];
    int64_t pad_end[QK_POOL_SPATIAL_MAX];
};

/* Position o and tap k read element o * stride + k * dilation - pad, and nothing if this is outside
 * [0, in). `in` is less than 2^47 and kernel, stride and dilation are less than 2^31, so all these
 * numbers and `out` * stride are less than 2^63. */
struct qk_pool_axis {
    int64_t in, out, kernel, stride, dilation;
    int64_t pad; /* before the axis; negative if elements are skipped */
    int64_t pad_end;
};

/* x has `groups` images, each with the spatial axes and then `inner` channels. If channels come
 * before the spatial axes, each channel is a group of its own, and `inner` is 1. */
struct qk_pool_geometry {
    struct qk_pool_axis axis[QK_POOL_SPATIAL_MAX];
    size_t groups;
    size_t inner;
};

/* The last spatial axis, whose elements lie next to each other. */
enum { QK_POOL_COLUMN = QK_POOL_SPATIAL_MAX - 1 };

/* Taps [begin, end) of a position are inside x. */
struct qk_pool_taps {
    int64_t begin, end;
};

static inline struct qk_pool_taps qk_pool_taps_of(const struct qk_pool_axis *axis, int64_t position)
{
    const int64_t start = position * axis->stride - axis->pad;
    const int64_t dilation = axis->dilation;
    struct qk_pool_taps taps = {0, axis->kernel};
    if (start < 0) /* most dilations are 1, and need no division */
        taps.begin = dilation == 1 ? -start : (dilation - 1 - start) / dilation;
    const int64_t left = axis->in - 1 - start;
    const int64_t last = left < 0 ? -1 : dilation == 1 ? left : left / dilation;
    if (last < axis->kernel - 1)
        taps.end = last + 1;
    if (taps.begin > taps.end)
        taps.begin = taps.end;
    return taps;
}

/* Fits the axes to x, and sets y's rank, dims and counts. Returns QK_INVALID if x has another rank,
 * no channels or an empty spatial axis, if an axis of y would have less than 0 positions, or if y
 * has more elements than 64 bits count. */
enum qk_status qk_pool_geometry_init(struct qk_pool_geometry *geometry,
                                     const struct qk_pool_desc *desc, const struct qk_tensor *x,
                                     struct qk_tensor *y, struct qk_error *error);
