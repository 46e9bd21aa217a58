#include "kernels/conv/geometry.h"

#include <inttypes.h>

struct pads {
    int64_t begin, end;
};

/* Returns the pads of SAME_UPPER or SAME_LOWER: the elements beyond x that ceil(in / stride)
 * positions read. The pads are never negative: onnx's defs.cc clamps them to 0, while ONNX Runtime
 * would skip leading elements. */
static struct pads same_pads(const struct qk_conv_axis *axis, int64_t span, bool upper)
{
    int64_t out = axis->in == 0 ? 0 : (axis->in - 1) / axis->stride + 1;
    int64_t last = out == 0 ? 0 : (out - 1) * axis->stride; /* < in */
    int64_t end = last + span;                              /* < 2^47 + 2^62 */
    int64_t total = end > axis->in ? end - axis->in : 0;
    int64_t begin = upper ? total / 2 : total - total / 2;
    return (struct pads){begin, total - begin};
}

/* Sets axis->out and axis->pad from the other members. `number` is the caller's number of the axis,
 * for the error text. Returns QK_INVALID if the pads are too large or no window fits. */
static enum qk_status fit_axis(struct qk_conv_axis *axis, struct pads pads,
                               enum qk_conv_padding padding, uint32_t number,
                               struct qk_error *error)
{
    const bool same = padding == QK_CONV_PAD_SAME_UPPER || padding == QK_CONV_PAD_SAME_LOWER;
    const int64_t span = (axis->kernel - 1) * axis->dilation + 1;
    if (padding == QK_CONV_PAD_VALID)
        pads = (struct pads){0, 0};
    else if (same)
        pads = same_pads(axis, span, padding == QK_CONV_PAD_SAME_UPPER);
    if (pads.begin > QK_CONV_NUMBER_MAX || pads.end > QK_CONV_NUMBER_MAX)
        return qk_fail(error, QK_INVALID,
                       "auto_pad: expected pads of at most %" PRId32 ", got %" PRId64
                       " and %" PRId64 " for D%u of x, which is %" PRId64 " (kernel %" PRId64
                       ", dilation %" PRId64 ")",
                       QK_CONV_NUMBER_MAX, pads.begin, pads.end, number, axis->in, axis->kernel,
                       axis->dilation);
    const int64_t padded = axis->in + pads.begin + pads.end;
    if (padded < span || (same && axis->in == 0))
        return qk_fail(error, QK_INVALID,
                       "x: expected a window of %" PRId64 " (kernel %" PRId64 ", dilation %" PRId64
                       ") to fit in D%u, got %" PRId64 " with pads %" PRId64 " and %" PRId64,
                       span, axis->kernel, axis->dilation, number, axis->in, pads.begin, pads.end);
    axis->pad = pads.begin;
    axis->out = (padded - span) / axis->stride + 1;
    return QK_OK;
}

/* Returns QK_INVALID if x with interleaved channels is so long that the arithmetic of geometry.h
 * could overflow. qk_conv_geometry_squeeze may make any axis the last one, so all are checked. */
static enum qk_status check_interleaved(const struct qk_conv_geometry *geometry,
                                        const struct qk_tensor *x, struct qk_error *error)
{
    const size_t channels = x->dims[x->rank - 1];
    if (x->count > (size_t)QK_CONV_AXIS_MAX)
        return qk_fail(error, QK_INVALID, "x: expected at most %" PRId64 " elements, got %zu",
                       QK_CONV_AXIS_MAX, x->count);
    for (uint32_t i = 0; i < QK_CONV_SPATIAL_MAX && x->count > 0; i++) {
        const struct qk_conv_axis *axis = &geometry->axis[i];
        const int64_t span = (axis->kernel - 1) * axis->dilation + 1;
        const int64_t end = (axis->out - 1) * axis->stride + span - axis->pad;
        const int64_t padded = axis->pad + (end > axis->in ? end : axis->in);
        if (padded > QK_CONV_AXIS_MAX / (int64_t)channels)
            return qk_fail(error, QK_INVALID,
                           "x: expected at most %" PRId64 " for the length of a padded axis times "
                           "the number of channels, got %" PRId64 " times %zu",
                           QK_CONV_AXIS_MAX, padded, channels);
    }
    return QK_OK;
}

enum qk_status qk_conv_geometry_init(struct qk_conv_geometry *geometry,
                                     const struct qk_conv_desc *desc, const struct qk_tensor *x,
                                     struct qk_error *error)
{
    const uint32_t lead = QK_CONV_SPATIAL_MAX - desc->spatial_rank;
    const uint32_t first = desc->channels_last ? 1 : 2; /* the dim of x that is D1 */
    size_t positions = 1;
    size_t channel_size = 1;
    bool fits = true;
    for (uint32_t i = 0; i < QK_CONV_SPATIAL_MAX; i++) {
        size_t in = i < lead ? 1 : x->dims[first + i - lead];
        if (in > QK_CONV_AXIS_MAX)
            return qk_fail(error, QK_INVALID,
                           "x: expected axes of at most %" PRId64 ", got %zu as D%u",
                           QK_CONV_AXIS_MAX, in, i - lead + 1);
        struct qk_conv_axis *axis = &geometry->axis[i];
        *axis = (struct qk_conv_axis){.in = (int64_t)in,
                                      .kernel = desc->kernel[i],
                                      .stride = desc->stride[i],
                                      .dilation = desc->dilation[i]};
        struct pads pads = {desc->pad_begin[i], desc->pad_end[i]};
        enum qk_conv_padding padding = i < lead ? QK_CONV_PAD_EXPLICIT : desc->padding;
        enum qk_status status = fit_axis(axis, pads, padding, i < lead ? 0 : i - lead + 1, error);
        if (status != QK_OK)
            return status;
        fits = fits && qk_mul_size(positions, (size_t)axis->out, &positions);
        if (x->count != 0)
            channel_size *= in; /* at most x->count */
    }
    if (!fits)
        return qk_fail(error, QK_INVALID,
                       "y: expected a size that fits in 64 bits, got a larger one");
    geometry->lead = (int)lead;
    geometry->images = x->dims[0];
    geometry->channel_size = x->count == 0 ? 0 : channel_size;
    geometry->channel_stride = geometry->channel_size;
    geometry->positions = positions;
    return desc->channels_last ? check_interleaved(geometry, x, error) : QK_OK;
}

void qk_conv_geometry_interleave(struct qk_conv_geometry *geometry, const struct qk_conv_desc *desc)
{
    struct qk_conv_axis *column = &geometry->axis[QK_AXIS_COLUMN];
    const int64_t channels = (int64_t)(desc->group_channels * desc->group);
    if (!desc->channels_last || geometry->channel_size == 0)
        return; /* without elements nothing is read */
    geometry->channel_stride = 1;
    /* A stride or dilation that is never taken may be too large to be multiplied. */
    column->stride = column->out > 1 ? column->stride * channels : channels;
    column->dilation = column->kernel > 1 ? column->dilation * channels : channels;
    column->in *= channels;
    column->pad *= channels;
}

static bool is_single(const struct qk_conv_axis *axis)
{
    return axis->in == 1 && axis->out == 1 && axis->kernel == 1 && axis->pad == 0;
}

/* Returns true if each position reads the element with its own index, and nothing else. */
static bool is_plain(const struct qk_conv_axis *axis)
{
    return axis->in == axis->out && axis->kernel == 1 && axis->stride == 1 && axis->pad == 0;
}

/* Merges two neighbouring axes into `both`. Returns false if one of them is not plain, or if their
 * product is too long. */
static bool merge(const struct qk_conv_axis *a, const struct qk_conv_axis *b,
                  struct qk_conv_axis *both)
{
    int64_t in;
    if (!is_plain(a) || !is_plain(b) || __builtin_mul_overflow(a->in, b->in, &in) ||
        in > QK_CONV_AXIS_MAX)
        return false;
    *both = *b;
    both->in = both->out = in;
    return true;
}

void qk_conv_geometry_squeeze(struct qk_conv_geometry *geometry, int least)
{
    struct qk_conv_axis *axis = geometry->axis;
    const int last = QK_CONV_SPATIAL_MAX - 1;
    int to = QK_CONV_SPATIAL_MAX; /* axes from here on are done */
    for (int i = last; i >= 0; i--)
        if (!is_single(&axis[i]))
            axis[--to] = axis[i];
    for (int i = last - 1; i >= to && to + least < QK_CONV_SPATIAL_MAX; i--)
        if (merge(&axis[i], &axis[i + 1], &axis[i + 1])) {
            for (int j = i; j > to; j--)
                axis[j] = axis[j - 1];
            to++;
            i++; /* the axis before it has moved to i */
        }
    for (int i = 0; i < to; i++)
        axis[i] = (struct qk_conv_axis){.in = 1, .out = 1, .kernel = 1, .stride = 1, .dilation = 1};
    geometry->lead = to < QK_CONV_SPATIAL_MAX ? to : QK_AXIS_COLUMN; /* one axis always counts */
}

size_t qk_conv_outer_positions(const struct qk_conv_geometry *geometry)
{
    size_t count = 1;
    for (int i = 0; i < QK_AXIS_ROW; i++)
        count *= (size_t)geometry->axis[i].out;
    return count;
}

bool qk_conv_find_plane(const struct qk_conv_geometry *geometry, size_t position, size_t tap,
                        size_t *offset)
{
    if (geometry->channel_size == 0)
        return false;
    size_t stride =
        (size_t)geometry->axis[QK_AXIS_ROW].in * (size_t)geometry->axis[QK_AXIS_COLUMN].in;
    *offset = 0;
    for (int i = QK_AXIS_ROW - 1; i >= geometry->lead; i--) {
        const struct qk_conv_axis *axis = &geometry->axis[i];
        const int64_t at =
            qk_conv_input_index(axis, position % (size_t)axis->out, tap % (size_t)axis->kernel);
        if (at < 0 || at >= axis->in)
            return false;
        *offset += (size_t)at * stride;
        stride *= (size_t)axis->in;
        position /= (size_t)axis->out;
        tap /= (size_t)axis->kernel;
    }
    return true;
}
