/* The loops of im2col (struct qk_im2col). Each tier includes them, and passes its own function that
 * writes a segment. Only for im2col_kernels_*.c. */
#pragma once

#include <string.h>

#include "kernels/conv/sgemm/im2col_kernels.h"
#include "kernels/conv/window.h"
#include "kernels/sizes.h"

/* A segment is some neighbouring columns (positions) of one row of the matrix. Column i reads the
 * byte at from + i * stride if i is in [first, behind), and padding otherwise. */
struct im2col_segment {
    uintptr_t from;
    int64_t stride;
    size_t first, behind; /* first <= behind <= count */
    size_t count;
};

typedef void im2col_segment_fn(const struct qk_im2col *job, const struct im2col_segment *segment,
                               float *to);

/* One tap of the kernel. The matrix has a row of this tap for each channel. All these rows read the
 * same elements of their channels. */
struct im2col_tap {
    size_t outer;            /* the tap of the outer axes */
    struct qk_window window; /* the elements of a plane that the tap reads */
    bool run; /* neighbouring positions read neighbouring elements, even across the end of a row, so
                 one segment may have several rows */
};

static struct im2col_tap im2col_tap_at(const struct qk_conv_geometry *geometry, size_t tap)
{
    const struct qk_conv_axis *rows = &geometry->axis[QK_AXIS_ROW];
    const struct qk_conv_axis *columns = &geometry->axis[QK_AXIS_COLUMN];
    const size_t row_taps = tap / (size_t)columns->kernel;
    struct im2col_tap found = {
        .outer = row_taps / (size_t)rows->kernel,
        .window =
            {
                .in_rows = rows->in,
                .in_columns = columns->in,
                .row_first = qk_conv_input_index(rows, 0, row_taps % (size_t)rows->kernel),
                .column_first = qk_conv_input_index(columns, 0, tap % (size_t)columns->kernel),
                .row_stride = rows->stride,
                .column_stride = columns->stride,
                .rows = (size_t)rows->out,
                .columns = (size_t)columns->out,
            },
    };
    qk_window_fit(&found.window);
    found.run = columns->stride == 1 && columns->in == columns->out && rows->stride == 1 &&
                found.window.inside_rows.begin < found.window.inside_rows.end &&
                found.window.inside_columns.begin < found.window.inside_columns.end;
    return found;
}

static inline void im2col_pad(const struct qk_im2col *job, size_t count, float *to)
{
    for (size_t i = 0; i < count; i++)
        to[i] = job->fill;
}

/* Copies every second of 32 bytes, from the first on. Written with 16-bit words, because compilers
 * vectorize that. */
static inline void im2col_take_even(const uint8_t *from, uint8_t to[QK_WIDEN_CHUNK])
{
    uint16_t words[QK_WIDEN_CHUNK];
    memcpy(words, from, sizeof(words));
    for (size_t i = 0; i < QK_WIDEN_CHUNK; i++)
        to[i] = (uint8_t)(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? words[i] : words[i] >> 8);
}

/* Converts `count` elements, `stride` apart, to floats. With a stride of 1 or 2 it works in chunks.
 * A chunk may read beyond `count` elements, up to the end of x. It may also write beyond `count`
 * floats, into a later segment, which is written afterwards, or into the slack of the row, for
 * which row_stride has room. */
static inline void im2col_widen(const struct qk_im2col *job, const uint8_t *from, int64_t stride,
                                size_t count, float *to)
{
    if (stride == 1 && count >= QK_WIDEN_CHUNK) {
        qk_widen_row(job->widen, from, count, to);
        return;
    }
    const int64_t chunk = stride <= 2 ? QK_WIDEN_CHUNK * stride : INT64_MAX; /* no chunks */
    for (; count > 0 && job->x_end - from >= chunk; from += chunk, to += QK_WIDEN_CHUNK) {
        uint8_t even[QK_WIDEN_CHUNK];
        if (stride == 2)
            im2col_take_even(from, even);
        qk_widen_chunk(job->widen, stride == 2 ? even : from, to);
        count -= qk_size_min(count, QK_WIDEN_CHUNK);
    }
    for (size_t i = 0; i < count; i++)
        to[i] = (float)qk_widen_one(job->widen, from[(int64_t)i * stride]);
}

/* Writes a segment, in plain C that compilers vectorize with the flags of each tier. */
static inline void im2col_write_segment(const struct qk_im2col *job,
                                        const struct im2col_segment *segment, float *to)
{
    im2col_pad(job, segment->first, to);
    if (segment->first < segment->behind)
        im2col_widen(job,
                     (const uint8_t *)(segment->from + segment->first * (uintptr_t)segment->stride),
                     segment->stride, segment->behind - segment->first, to + segment->first);
    im2col_pad(job, segment->count - segment->behind, to + segment->behind);
}

static inline size_t im2col_clamp(int64_t value, size_t least, size_t most)
{
    if (value < (int64_t)least)
        return least;
    return value < (int64_t)most ? (size_t)value : most;
}

/* Returns positions [begin, end) of a tap that is a run, as one segment. Columns left and right of
 * the plane are padding, but in this segment they read elements of the rows before and after:
 * im2col_pad_run overwrites them later. */
static inline struct im2col_segment im2col_run(const struct qk_window *window, const uint8_t *plane,
                                               size_t begin, size_t end)
{
    const size_t count = end - begin;
    const int64_t from =
        (int64_t)begin + window->row_first * window->in_columns + window->column_first;
    const size_t first = im2col_clamp(-from, 0, count);
    return (struct im2col_segment){
        .from = (uintptr_t)plane + (uintptr_t)from,
        .stride = 1,
        .first = first,
        .behind = im2col_clamp(window->in_rows * window->in_columns - from, first, count),
        .count = count,
    };
}

/* Returns `count` columns of row `row` as a segment. The row must be inside the plane. */
static inline struct im2col_segment im2col_segment_at(const struct qk_window *window,
                                                      const uint8_t *plane, size_t row,
                                                      size_t column, size_t count)
{
    const int64_t x_row = window->row_first + (int64_t)row * window->row_stride;
    /* Unsigned, because a column that is outside may be any distance away. */
    const uintptr_t from = (uintptr_t)(x_row * window->in_columns) +
                           (uintptr_t)window->column_first +
                           column * (uintptr_t)window->column_stride;
    const size_t first =
        im2col_clamp((int64_t)window->inside_columns.begin - (int64_t)column, 0, count);
    return (struct im2col_segment){
        .from = (uintptr_t)plane + from,
        .stride = window->column_stride,
        .first = first,
        .behind = im2col_clamp((int64_t)window->inside_columns.end - (int64_t)column, first, count),
        .count = count,
    };
}

/* Writes the padding among positions [begin, end) of a tap that is a run: the rows above and below
 * the plane first, then the columns left and right of it. */
static inline void im2col_pad_run(const struct qk_im2col *job, const struct qk_window *window,
                                  size_t begin, size_t end, float *to)
{
    const struct qk_window_range rows = window->inside_rows, columns = window->inside_columns;
    const size_t width = window->columns;
    const size_t top = qk_size_min(qk_size_max(rows.begin * width, begin), end);
    const size_t bottom = qk_size_min(qk_size_max(rows.end * width, top), end);
    im2col_pad(job, top - begin, to);
    im2col_pad(job, end - bottom, to + (bottom - begin));
    const size_t row_begin = top - top % width;
    for (size_t column = 0; column < width; column++) {
        if (column == columns.begin && columns.end > column)
            column = columns.end;
        for (size_t at = row_begin + column; column < width && at < bottom; at += width)
            if (at >= top)
                to[at - begin] = job->fill;
    }
}

/* Writes positions [begin, end) of one plane of y, for one channel and tap. */
__attribute__((always_inline)) static inline void
im2col_write_plane(const struct qk_im2col *job, const struct im2col_tap *tap, const uint8_t *plane,
                   size_t begin, size_t end, im2col_segment_fn *write_segment, float *to)
{
    const struct qk_window *window = &tap->window;
    const size_t width = window->columns;
    if (tap->run) {
        const struct im2col_segment run = im2col_run(window, plane, begin, end);
        write_segment(job, &run, to);
        im2col_pad_run(job, window, begin, end, to);
        return;
    }
    size_t row = begin / width;
    size_t column = begin % width;
    struct im2col_segment segment;
    segment.count = 0;
    for (size_t left = end - begin; left > 0; row++, column = 0) {
        const size_t count = qk_size_min(width - column, left);
        const uintptr_t step = (uintptr_t)window->row_stride * (uintptr_t)window->in_columns;
        if (row < window->inside_rows.begin || row >= window->inside_rows.end) {
            im2col_pad(job, count, to);
            segment.count = 0;
        } else {
            if (segment.count == width && count == width)
                segment.from += step;
            else
                segment = im2col_segment_at(window, plane, row, column, count);
            write_segment(job, &segment, to);
        }
        to += count;
        left -= count;
    }
}

/* Writes the matrix: tap by tap, for each tap plane by plane, and for each plane channel by
 * channel. */
__attribute__((always_inline)) static inline void im2col_all(const struct qk_im2col *job,
                                                             im2col_segment_fn *write_segment)
{
    const struct qk_conv_geometry *geometry = job->geometry;
    const struct qk_conv_axis *axis = geometry->axis;
    const size_t plane = (size_t)axis[QK_AXIS_ROW].out * (size_t)axis[QK_AXIS_COLUMN].out;
    const size_t end = job->position_begin + job->position_count;
    for (size_t i = 0; i < job->k_count && i < job->taps; i++) {
        const struct im2col_tap tap = im2col_tap_at(geometry, (job->k_begin + i) % job->taps);
        size_t next;
        for (size_t at = job->position_begin; at < end; at = next) {
            const size_t first = at / plane * plane;
            const uint8_t *from =
                job->x + (job->k_begin + i) / job->taps * geometry->channel_stride;
            float *to = job->matrix + i * job->row_stride + (at - job->position_begin);
            size_t offset;
            const bool inside = qk_conv_find_plane(geometry, at / plane, tap.outer, &offset);
            next = qk_size_min(first + plane, end);
            for (size_t k = i; k < job->k_count; k += job->taps) {
                if (inside)
                    im2col_write_plane(job, &tap, from + offset, at - first, next - first,
                                       write_segment, to);
                else
                    im2col_pad(job, next - at, to);
                from += geometry->channel_stride;
                to += job->taps * job->row_stride;
            }
        }
    }
}
