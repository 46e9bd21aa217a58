#include "kernels/pool/geometry.h"

#include <inttypes.h>

/* Sets the pads of SAME_UPPER or SAME_LOWER. C's division truncates, and so does ONNX Runtime's if
 * the sum of both pads is negative. */
static void set_same_pads(struct qk_pool_axis *axis, bool upper)
{
    const int64_t out = (axis->in - 1) / axis->stride + 1;
    const int64_t sum = (out - 1) * axis->stride + axis->kernel - axis->in;
    axis->pad = upper ? sum / 2 : (sum + 1) / 2;
    axis->pad_end = sum - axis->pad;
}

/* Sets axis->out from the other members. A window that begins less than a stride before it would
 * fit counts as one position, because the division truncates. */
static void set_out(struct qk_pool_axis *axis, bool ceil_mode)
{
    const int64_t span = (axis->kernel - 1) * axis->dilation + 1;
    const int64_t left = axis->in + axis->pad + axis->pad_end - span;
    axis->out = left / axis->stride + 1;
    if (!ceil_mode)
        return;
    if (left > 0 && left % axis->stride != 0)
        axis->out++;
    if ((axis->out - 1) * axis->stride >= axis->in + axis->pad)
        axis->out--;
}

static enum qk_status fit_axis(struct qk_pool_axis *axis, const struct qk_pool_desc *desc,
                               uint32_t number, struct qk_error *error)
{
    if (axis->in < 1)
        return qk_fail(error, QK_INVALID, "X: expected axes of at least 1, got 0 as D%u", number);
    if (axis->in > QK_LENGTH_MAX)
        return qk_fail(error, QK_INVALID,
                       "X: expected axes of at most %" PRId64 ", got %" PRId64 " as D%u",
                       QK_LENGTH_MAX, axis->in, number);
    if (desc->padding == QK_POOL_PAD_VALID)
        axis->pad = axis->pad_end = 0;
    else if (desc->padding != QK_POOL_PAD_EXPLICIT)
        set_same_pads(axis, desc->padding == QK_POOL_PAD_SAME_UPPER);
    set_out(axis, desc->ceil_mode);
    if (axis->out < 0)
        return qk_fail(error, QK_INVALID,
                       "X: expected at least %" PRId64 " elements (kernel %" PRId64
                       ", dilation %" PRId64 ") along D%u, got %" PRId64 " with pads %" PRId64
                       " and %" PRId64,
                       (axis->kernel - 1) * axis->dilation + 1, axis->kernel, axis->dilation,
                       number, axis->in, axis->pad, axis->pad_end);
    return QK_OK;
}

enum qk_status qk_pool_geometry_init(struct qk_pool_geometry *geometry,
                                     const struct qk_pool_desc *desc, const struct qk_tensor *x,
                                     struct qk_tensor *y, struct qk_error *error)
{
    const uint32_t rank = desc->spatial_rank;
    const uint32_t lead = QK_POOL_SPATIAL_MAX - rank;
    const uint32_t first = desc->channels_last ? 1 : 2; /* of x's spatial axes */
    if (x->rank != rank + 2)
        return qk_fail_of_rank(error, "X: expected rank %u for kernel_shape of %u, got %u",
                               rank + 2, rank, x->rank);
    const size_t channels = x->dims[desc->channels_last ? rank + 1 : 1];
    if (channels < 1)
        return qk_fail(error, QK_INVALID, "X: expected at least 1 channel, got 0");
    qk_tensor_copy(y, x);
    for (uint32_t i = 0; i < QK_POOL_SPATIAL_MAX; i++) {
        struct qk_pool_axis *axis = &geometry->axis[i];
        *axis = (struct qk_pool_axis){.in = 1, .out = 1, .kernel = 1, .stride = 1, .dilation = 1};
        if (i < lead)
            continue;
        const size_t in = x->dims[first + i - lead];
        *axis = (struct qk_pool_axis){
            .in = in > INT64_MAX ? INT64_MAX : (int64_t)in,
            .kernel = desc->kernel[i],
            .stride = desc->stride[i],
            .dilation = desc->dilation[i],
            .pad = desc->pad_begin[i],
            .pad_end = desc->pad_end[i],
        };
        const enum qk_status status = fit_axis(axis, desc, i - lead + 1, error);
        if (status != QK_OK)
            return status;
        y->dims[first + i - lead] = (size_t)axis->out;
    }
    if (!qk_tensor_set_count(y))
        return qk_fail(error, QK_INVALID,
                       "Y: expected a size that fits in 64 bits, got a larger one");
    geometry->inner = desc->channels_last ? channels : 1;
    geometry->groups = x->count == 0 ? 0 : desc->channels_last ? x->dims[0] : x->dims[0] * channels;
    return QK_OK;
}
