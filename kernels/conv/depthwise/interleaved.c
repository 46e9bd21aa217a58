#include "kernels/conv/depthwise/interleaved.h"

#include "kernels/sizes.h"

/* With strides and windows of at most this length, a unit reads at most 16 bytes for each of its
 * positions, and some more around them. Real networks have strides of 1 or 2 and windows of up to
 * 13. */
#define STRIDE_MOST 4
#define SPAN_MOST 32

static int64_t span_of(int64_t kernel, int64_t dilation)
{
    return (kernel - 1) * dilation + 1;
}

bool qk_depthwise_crops_are_small(const struct qk_conv_desc *desc)
{
    if (desc->spatial_rank > 2)
        return false;
    for (int i = QK_AXIS_ROW; i <= QK_AXIS_COLUMN; i++)
        if (desc->stride[i] > STRIDE_MOST ||
            span_of(desc->kernel[i], desc->dilation[i]) > SPAN_MOST)
            return false;
    return true;
}

/* Crops one axis to what `count` positions from `first` on read. Returns the first element that
 * they read. */
static size_t crop_axis(struct qk_conv_axis *axis, size_t first, size_t count)
{
    const int64_t span = span_of(axis->kernel, axis->dilation);
    const int64_t begin = (int64_t)first * axis->stride - axis->pad;
    const int64_t end = begin + (int64_t)(count - 1) * axis->stride + span;
    const int64_t in = axis->in;
    const int64_t from = begin < 0 ? 0 : begin;
    axis->out = (int64_t)count;
    if (end <= 0 || begin >= in) { /* padding alone: an element that no tap reads */
        axis->in = 1;
        axis->pad = end - begin;
        return 0;
    }
    axis->in = (end < in ? end : in) - from;
    axis->pad = from - begin;
    return (size_t)from;
}

void qk_depthwise_crop(const struct qk_conv_geometry *geometry, size_t row, size_t rows,
                       size_t column, size_t columns, struct qk_depthwise_crop *crop)
{
    crop->geometry = *geometry;
    crop->row = crop_axis(&crop->geometry.axis[QK_AXIS_ROW], row, rows);
    crop->column = crop_axis(&crop->geometry.axis[QK_AXIS_COLUMN], column, columns);
    crop->geometry.images = 1;
    crop->geometry.channel_size = (size_t)crop->geometry.axis[QK_AXIS_ROW].in *
                                  (size_t)crop->geometry.axis[QK_AXIS_COLUMN].in;
    crop->geometry.channel_stride = crop->geometry.channel_size;
    crop->geometry.positions = rows * columns;
}

static size_t most_read(const struct qk_conv_axis *axis, size_t count)
{
    const size_t reach =
        (count - 1) * (size_t)axis->stride + (size_t)span_of(axis->kernel, axis->dilation);
    return qk_size_max(qk_size_min(reach, (size_t)axis->in), 1);
}

size_t qk_depthwise_crop_most(const struct qk_conv_geometry *geometry, size_t rows, size_t columns)
{
    return most_read(&geometry->axis[QK_AXIS_ROW], rows) *
           most_read(&geometry->axis[QK_AXIS_COLUMN], columns);
}

void qk_depthwise_take_planes(const struct qk_move_kernels *move,
                              const struct qk_conv_geometry *geometry,
                              const struct qk_depthwise_crop *crop, const uint8_t *x,
                              size_t channels, size_t count, uint8_t *planes)
{
    const size_t width = (size_t)geometry->axis[QK_AXIS_COLUMN].in;
    const size_t size = crop->geometry.channel_size;
    size_t rows = (size_t)crop->geometry.axis[QK_AXIS_ROW].in;
    size_t columns = (size_t)crop->geometry.axis[QK_AXIS_COLUMN].in;
    if (columns == width) { /* whole rows follow each other in x, too */
        columns *= rows;
        rows = 1;
    }
    x += (crop->row * width + crop->column) * channels;
    for (size_t i = 0; i < rows; i++, planes += columns, x += width * channels)
        qk_move_transpose(move, 0, planes, (int64_t)size, x, (int64_t)channels, count, columns);
}

void qk_depthwise_put_planes(const struct qk_move_kernels *move, const uint8_t *planes, size_t rows,
                             size_t columns, size_t width, size_t channels, size_t count,
                             uint8_t *y)
{
    const size_t size = rows * columns;
    if (columns == width) {
        columns *= rows;
        rows = 1;
    }
    for (size_t i = 0; i < rows; i++, planes += columns, y += width * channels)
        qk_move_transpose(move, 0, y, (int64_t)channels, planes, (int64_t)size, columns, count);
}
