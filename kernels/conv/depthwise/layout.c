/* Chooses the rows and columns of a unit of a depthwise convolution, and the layout of a channel
 * buffer, such that the quads of a channel stay in the L1 cache. */
#include "kernels/conv/depthwise/depthwise.h"

#include "kernels/sizes.h"

/* The most quads that a unit has of one channel, and the most bytes that the channel buffers of a
 * batch have. Both stay in a core's L1 cache. Quads of words take twice as many bytes, so some of
 * them may be in the L2 cache. */
#define BUFFER_QUADS 6144
#define BATCH_BYTES ((size_t)8 << 10)
/* A part of a row has a multiple of this number of columns. */
#define PARTIAL_ROW_COLUMNS 32

size_t qk_depthwise_count_taps(int64_t kernel, int64_t stride, int64_t dilation, size_t load_bytes)
{
    const int64_t left = (int64_t)load_bytes - 1;
    const int64_t steps = (int64_t)load_bytes / QK_DEPTHWISE_TAPS - 1;
    if (stride > left / steps)
        return 0;
    const int64_t most = (left - stride * steps) / dilation + 1;
    return qk_size_min(qk_size_min((size_t)most, QK_DEPTHWISE_TAPS), (size_t)kernel);
}

struct qk_tap_range qk_depthwise_taps_inside(const struct qk_conv_axis *axis, size_t row)
{
    struct qk_tap_range taps = {0, (size_t)axis->kernel};
    while (taps.begin < taps.end && qk_conv_input_index(axis, row, taps.begin) < 0)
        taps.begin++;
    while (taps.end > taps.begin && qk_conv_input_index(axis, row, taps.end - 1) >= axis->in)
        taps.end--;
    return taps;
}

/* Returns the pitch of rows of quads. Short rows begin where a vector or half of one begins, if
 * that costs few lanes. Otherwise rows have no gaps. */
static size_t find_pitch(const struct qk_depthwise_layout *layout, size_t width)
{
    if (layout->load_bytes < QK_DEPTHWISE_BYTES)
        return width;
    for (size_t pitch = QK_DEPTHWISE_LANES / 2; pitch <= QK_DEPTHWISE_LANES; pitch *= 2)
        if (width <= pitch && pitch - width <= pitch / 8)
            return pitch;
    return width;
}

/* Lays out several whole rows. Each of the row_quads has an array of rows of quads of its own.
 * Returns false if not even two rows fit. */
static bool fit_rows(struct qk_depthwise_layout *layout, const struct qk_conv_axis *row,
                     size_t width)
{
    const size_t height = (size_t)row->out;
    const size_t pitch = find_pitch(layout, width);
    const size_t quad_rows = BUFFER_QUADS / layout->row_quads / layout->planes / pitch;
    const struct qk_stride_phases alone = qk_stride_phases_of(row, (size_t)row->kernel, false);
    const struct qk_stride_phases shared =
        qk_stride_phases_of(row, (size_t)row->kernel, qk_taps_may_share(row));
    const size_t most = quad_rows / alone.phases;
    const size_t most_shared =
        quad_rows / shared.phases > shared.span ? quad_rows / shared.phases - shared.span : 0;
    layout->row = most_shared >= qk_size_min(most, height) ? shared : alone;
    const size_t rows = qk_size_min(qk_size_max(most, most_shared), height);
    if (rows < 2)
        return false;
    layout->rows = qk_even_part(height, rows);
    layout->columns = layout->width = width;
    layout->pitch = pitch;
    layout->arrays = layout->row_quads;
    return true;
}

/* Returns how many quads further on each of the row_quads reads than the one before, if they share
 * rows of quads. */
static size_t find_shift(const struct qk_depthwise_layout *layout,
                         const struct qk_conv_axis *column)
{
    return layout->taps * (size_t)column->dilation / (size_t)column->stride;
}

/* Returns how many quads longer a row of quads becomes if all row_quads share it. Returns
 * BUFFER_QUADS, which leaves no room for positions, if they cannot share it. */
static size_t count_more(const struct qk_depthwise_layout *layout,
                         const struct qk_conv_axis *column)
{
    const size_t shift = find_shift(layout, column);
    const bool share = layout->taps * (size_t)column->dilation % (size_t)column->stride == 0;
    return share && shift < BUFFER_QUADS ? (layout->row_quads - 1) * shift : BUFFER_QUADS;
}

/* Lays out parts of several rows. A unit and the next one both make the rows of quads that they
 * have in common, so a unit has at least as many rows as it shares. Returns false if y has only one
 * row, or if the parts would be too narrow. */
static bool fit_partial_rows(struct qk_depthwise_layout *layout, const struct qk_conv_axis *row,
                             const struct qk_conv_axis *column)
{
    const size_t height = (size_t)row->out, width = (size_t)column->out;
    const size_t more = count_more(layout, column);
    const struct qk_stride_phases axis =
        qk_stride_phases_of(row, (size_t)row->kernel, qk_taps_may_share(row));
    const size_t quads = BUFFER_QUADS / layout->planes / axis.phases;
    /* The most quads that a row of quads can have, and the most positions that these serve. */
    const size_t row_most = quads / (axis.span + qk_size_max(qk_size_min(height, axis.span), 2));
    const size_t most = row_most > more ? row_most - more : 0;
    const size_t columns = most < width ? most / PARTIAL_ROW_COLUMNS * PARTIAL_ROW_COLUMNS : width;
    if (height < 2 || columns == 0)
        return false;
    layout->columns = qk_even_part(width, columns);
    if (layout->columns < width)
        layout->columns = qk_divide_up(layout->columns, PARTIAL_ROW_COLUMNS) * PARTIAL_ROW_COLUMNS;
    layout->width = layout->pitch = layout->columns + more;
    const size_t rows = qk_size_min(quads / layout->pitch - axis.span, height);
    layout->rows = qk_even_part(height, rows);
    layout->row = axis;
    layout->partial_rows = true;
    layout->arrays = 1;
    layout->shift = find_shift(layout, column);
    return true;
}

/* Lays out one row, or a part of one. */
static void fit_columns(struct qk_depthwise_layout *layout, const struct qk_conv_axis *row,
                        const struct qk_conv_axis *column)
{
    const size_t width = (size_t)column->out;
    const size_t quads = BUFFER_QUADS / layout->planes / (size_t)row->kernel;
    const size_t more = count_more(layout, column);
    const size_t alone = qk_size_min(quads / layout->row_quads, width);
    const size_t shared = quads > more ? qk_size_min(quads - more, width) : 0;
    const bool share =
        shared > alone || (shared == alone && shared + more <= shared * layout->row_quads);
    const size_t columns = share ? shared : alone;
    layout->row = qk_stride_phases_of(row, (size_t)row->kernel, false);
    layout->rows = 1;
    layout->columns = qk_even_part(width, columns);
    if (layout->columns < width)
        layout->columns = qk_divide_up(layout->columns, QK_DEPTHWISE_LANES) * QK_DEPTHWISE_LANES;
    layout->arrays = share ? 1 : layout->row_quads;
    layout->shift = share ? find_shift(layout, column) : 0;
    layout->width = layout->pitch = layout->columns + (share ? more : 0);
}

/* Returns how many vectors of quads a unit with all rows takes for a channel: those that it makes,
 * and those that it multiplies. */
static double count_vectors(const struct qk_depthwise_layout *layout,
                            const struct qk_conv_axis *row, size_t lanes)
{
    const size_t rows = (size_t)row->out, columns = layout->columns;
    const size_t made = qk_depthwise_quad_rows(layout) * qk_divide_up(layout->pitch, lanes);
    size_t taken = 0;
    if (!layout->partial_rows)
        taken = (size_t)row->kernel * qk_divide_up(rows * columns, lanes);
    for (size_t i = 0; layout->partial_rows && i < rows; i++) {
        const struct qk_tap_range taps = qk_depthwise_taps_inside(row, i);
        taken += (taps.end - taps.begin) * qk_divide_up(columns, lanes);
    }
    return (double)made + (double)(taken * layout->row_quads * layout->planes);
}

/* Lays out whole rows of positions, but such that the lanes of each row are computed by themselves.
 * This is faster if several quads of a row of taps can share rows of quads, or if many rows of taps
 * read only padding. Returns false if this would not save a tenth, or if rows are so short that
 * they leave N tiles partly empty. */
static bool fit_rows_alone(struct qk_depthwise_layout *layout, const struct qk_conv_axis *row,
                           const struct qk_conv_axis *column)
{
    const size_t lanes = layout->load_bytes / QK_DEPTHWISE_TAPS * 2;
    struct qk_depthwise_layout alone = *layout;
    if (layout->load_bytes == QK_DEPTHWISE_BYTES || layout->columns < PARTIAL_ROW_COLUMNS ||
        layout->rows < (size_t)row->out || !fit_partial_rows(&alone, row, column) ||
        alone.rows < layout->rows || alone.columns < layout->columns)
        return false;
    alone.quad_rows = alone.rows + alone.row.span;
    layout->quad_rows = layout->rows + layout->row.span;
    if (count_vectors(&alone, row, lanes) > 0.9 * count_vectors(layout, row, lanes))
        return false;
    *layout = alone;
    return true;
}

/* Lays out quads of whole rows. If too few rows fit, tries parts of several rows. If neither fits,
 * lays out one row or a part of one. */
static void fit_quads(struct qk_depthwise_layout *layout, const struct qk_conv_axis *row,
                      const struct qk_conv_axis *column)
{
    const bool whole = fit_rows(layout, row, (size_t)column->out);
    const bool few = !whole || layout->rows < qk_size_min(3 * layout->row.span, (size_t)row->out);
    if (!(whole && fit_rows_alone(layout, row, column)) &&
        !(few && fit_partial_rows(layout, row, column)) && !whole)
        fit_columns(layout, row, column);
    layout->quad_rows = layout->rows + layout->row.span;
    /* The last vector may write fill behind the last quad. The room for it keeps this fill out of
     * the next channel buffer. */
    const size_t quads = qk_depthwise_quad_rows(layout) * layout->pitch + QK_DEPTHWISE_LANES - 1;
    layout->buffer_bytes =
        qk_divide_up(quads, QK_DEPTHWISE_LANES) * QK_DEPTHWISE_BYTES * layout->halves;
    for (size_t i = 0; i < QK_DEPTHWISE_BYTES; i++)
        layout->order[i] = (uint8_t)(i / QK_DEPTHWISE_TAPS * (size_t)column->stride +
                                     i % QK_DEPTHWISE_TAPS * (size_t)column->dilation);
}

void qk_depthwise_lay_out(struct qk_depthwise_layout *layout,
                          const struct qk_conv_geometry *geometry, size_t depth, size_t load_bytes)
{
    const struct qk_conv_axis *row = &geometry->axis[QK_AXIS_ROW];
    const struct qk_conv_axis *column = &geometry->axis[QK_AXIS_COLUMN];
    layout->load_bytes = load_bytes;
    layout->halves = load_bytes < QK_DEPTHWISE_BYTES ? 2 : 1;
    layout->taps =
        qk_depthwise_count_taps(column->kernel, column->stride, column->dilation, load_bytes);
    layout->row_quads = qk_divide_up((size_t)column->kernel, layout->taps);
    layout->planes = depth / (size_t)(row->kernel * column->kernel);
    fit_quads(layout, row, column);
    layout->batch = qk_size_max(BATCH_BYTES / layout->buffer_bytes, 1);
}

size_t qk_depthwise_quad(const struct qk_depthwise_layout *layout, size_t plane, size_t row,
                         size_t column)
{
    const size_t array = layout->arrays > 1 ? column : 0;
    const size_t phase =
        (array * layout->planes + plane) * layout->row.phases + row % layout->row.phases;
    const size_t quad_row =
        phase * layout->quad_rows + row / layout->row.phases * layout->row.shift;
    const size_t quad =
        quad_row * layout->pitch + (layout->arrays > 1 ? 0 : column) * layout->shift;
    return quad * QK_DEPTHWISE_TAPS;
}
