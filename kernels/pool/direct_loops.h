/* Computes the maxima of the commonest windows, 2×2 with a stride of 2 and 3×3 with a stride of 1
 * or 2, straight from x. plane_loops.h takes scratch memory for all other windows. It includes this
 * file, and says what a tier defines before it. */
#pragma once

/* Nothing here compiles without a tier's file around it. */
#ifdef QK_POOL_BYTES

#define APART __attribute__((noinline))

/* ---- Squares ------------------------------------------------------------------------------- */

/* About how many bytes of x a block has. Rows of more than one vector are read in blocks, which
 * stay in the L1 cache until the last vector of their rows is read. */
#define SQUARES_BYTES ((size_t)8192)

/* Returns whether windows of 2×2 elements cut the planes into squares. Rows of y then follow each
 * other over all planes as pairs of rows of x do. */
INLINE bool has_squares(const struct qk_pool_planes *planes)
{
    const struct qk_pool_axis *row = &planes->row;
    const struct qk_pool_axis *column = &planes->column;
    return row->kernel == 2 && row->stride == 2 && row->dilation == 1 && row->pad == 0 &&
           row->in == 2 * row->out && column->kernel == 2 && column->stride == 2 &&
           column->dilation == 1 && column->pad == 0 && column->in >= 2 * column->out;
}

/* Writes the maxima of `rows` rows of squares, vector by vector: down the rows. */
INLINE void max_squares(const uint8_t *x, size_t in, size_t rows, size_t out, uint8_t *y,
                        bool is_signed)
{
    const size_t lanes = QK_POOL_BYTES / 2;
    for (size_t i = 0;; i = next_vector(i, lanes, out)) {
        const uint8_t *from = x + 2 * i;
        uint8_t *to = y + i;
        for (size_t row = 0; row < rows; row++, from += 2 * in, to += out)
            store_pairs(to, max_bytes(load_bytes(from), load_bytes(from + in), is_signed),
                        is_signed);
        if (out - i <= lanes)
            return;
    }
}

/* Computes the rows of squares of a band. Leaves out the last rows if whole vectors of them would
 * reach behind the end of x or y. Returns how many rows it computed. */
INLINE size_t max_band_of_squares(const struct qk_pool_planes *planes,
                                  const struct qk_pool_band *band, bool is_signed)
{
    const size_t lanes = QK_POOL_BYTES / 2;
    const size_t in = (size_t)planes->column.in;
    const size_t out = (size_t)planes->column.out;
    const size_t rows = band->count * (band->end - band->begin);
    const size_t skipped = 2 * band->begin * in;
    const size_t read = in + (out > lanes ? 2 * out : QK_POOL_BYTES); /* by one row of squares */
    const size_t room = band->x_bytes - skipped;
    size_t most = room < read ? 0 : lesser(rows, (room - read) / (2 * in) + 1);
    if (out < lanes)
        most = rows * out < lanes ? 0 : lesser(most, (rows * out - lanes) / out + 1);
    const size_t block = out <= lanes ? most : SQUARES_BYTES / (2 * in) + 1;
    for (size_t i = 0; i < most; i += block)
        max_squares(band->x + skipped + 2 * i * in, in, lesser(block, most - i), out,
                    band->y + i * out, is_signed);
    return most;
}

/* ---- Threes -------------------------------------------------------------------------------- */

/* Returns whether each window has three elements along the axis, of which the middle one is inside
 * x. If another is outside, the middle one stands for it. */
INLINE bool is_three(const struct qk_pool_axis *axis)
{
    return axis->kernel == 3 && axis->dilation == 1 && (axis->stride == 1 || axis->stride == 2) &&
           (axis->pad == 0 || axis->pad == 1) &&
           (axis->out - 1) * axis->stride - axis->pad + 1 < axis->in;
}

INLINE bool has_threes(const struct qk_pool_planes *planes)
{
    return is_three(&planes->row) && is_three(&planes->column) &&
           planes->row.stride == planes->column.stride;
}

/* Returns the bytes that a limit leaves. Without a sign, an AND does it, for which more ports of a
 * core serve than for a minimum. */
INLINE byte_vector limit_bytes(byte_vector a, byte_vector limit, bool is_signed)
{
    return is_signed ? min_bytes(a, limit, true) : and_bytes(a, limit);
}

/* Returns the maxima of each byte at `x` and of its neighbours in the row. The limits are the least
 * number where a neighbour is outside x, and elsewhere the largest one. */
INLINE byte_vector max_of_three(const uint8_t *x, byte_vector left, byte_vector right,
                                bool is_signed)
{
    const byte_vector before = limit_bytes(load_bytes(x - 1), left, is_signed);
    const byte_vector behind = limit_bytes(load_bytes(x + 1), right, is_signed);
    return max_bytes(max_bytes(before, load_bytes(x), is_signed), behind, is_signed);
}

/* Returns the limits of neighbours: the largest number for the first `count` bytes, or for all
 * others, and the least number elsewhere. */
INLINE byte_vector limit_first(size_t count, byte_vector least)
{
    return xor_bytes(mask_first(count), least);
}

INLINE byte_vector limit_others(size_t count, byte_vector least)
{
    return xor_bytes(limit_first(count, least), splat_bytes(0xFF));
}

/* A strip of the planes, one vector wide. */
struct strip {
    size_t in, out; /* columns of x and y */
    size_t rows;    /* of y whose windows have all rows below the middle one */
    bool has_above; /* the first window has a row above the middle one */
    bool is_cut;    /* behind `rows`, y has a row whose window has nothing below */
    byte_vector left, right;
};

/* Writes a strip of one plane, down the rows. The maxima along a row of x stay in registers for all
 * windows that have the row. */
INLINE void max_strip(const struct strip *strip, const uint8_t *x, uint8_t *y, size_t stride,
                      bool is_signed)
{
    const size_t in = strip->in;
    const size_t out = strip->out;
    const size_t rows = strip->rows;
    const byte_vector left = strip->left;
    const byte_vector right = strip->right;
    byte_vector centre = max_of_three(x, left, right, is_signed);
    byte_vector before = strip->has_above ? max_of_three(x - in, left, right, is_signed) : centre;
    size_t row = 0;
    for (; stride == 1 && row + 2 <= rows; row += 2, x += 2 * in, y += 2 * out) {
        const byte_vector next = max_of_three(x + in, left, right, is_signed);
        const byte_vector last = max_of_three(x + 2 * in, left, right, is_signed);
        const byte_vector both = max_bytes(centre, next, is_signed);
        store_bytes(y, max_bytes(before, both, is_signed));
        store_bytes(y + out, max_bytes(both, last, is_signed));
        before = next;
        centre = last;
    }
    for (; row < rows; row++, x += stride * in, y += out) {
        const byte_vector next = max_of_three(x + in, left, right, is_signed);
        if (stride > 1)
            centre = max_of_three(x, left, right, is_signed);
        store_strided(y, max_bytes(max_bytes(before, centre, is_signed), next, is_signed), stride,
                      QK_POOL_BYTES / stride);
        before = stride > 1 ? next : centre;
        centre = next;
    }
    if (strip->is_cut && stride > 1)
        centre = max_of_three(x, left, right, is_signed);
    if (strip->is_cut)
        store_strided(y, max_bytes(before, centre, is_signed), stride, QK_POOL_BYTES / stride);
}

/* Writes the rows of the band of planes [first, end), strip by strip. */
INLINE void max_threes(const struct qk_pool_planes *planes, const struct qk_pool_band *band,
                       size_t first, size_t end, size_t stride, bool is_signed)
{
    const struct qk_pool_axis *row = &planes->row;
    const size_t in = (size_t)planes->column.in;
    const size_t out = (size_t)planes->column.out;
    const size_t lanes = QK_POOL_BYTES / stride;
    const size_t top = band->begin * stride + (row->pad == 0);
    const size_t bottom = (band->end - 1) * stride + (row->pad == 0);
    const size_t x_step = (size_t)row->in * in;
    const size_t y_step = (band->end - band->begin) * out;
    const byte_vector least = splat_bytes(is_signed ? 0x80 : 0);
    struct strip strip = {.in = in, .out = out, .has_above = top > 0};
    strip.is_cut = bottom + 1 == (size_t)row->in;
    strip.rows = band->end - band->begin - strip.is_cut;
    for (size_t i = 0;; i = next_vector(i, lanes, out)) {
        const size_t middle = i * stride + (planes->column.pad == 0);
        const uint8_t *x = band->x + first * x_step + top * in + middle;
        uint8_t *y = band->y + first * y_step + i;
        strip.left = limit_others(middle == 0, least);
        strip.right = limit_first(lesser(in - 1 - middle, QK_POOL_BYTES), least);
        for (size_t plane = first; plane < end; plane++, x += x_step, y += y_step)
            max_strip(&strip, x, y, stride, is_signed);
        if (out - i <= lanes)
            return;
    }
}

/* Returns whether whole vectors of a plane may be read and written. */
INLINE bool is_roomy(const struct qk_pool_planes *planes, const struct qk_pool_band *band,
                     size_t plane)
{
    const struct qk_pool_axis *row = &planes->row;
    const struct qk_pool_axis *column = &planes->column;
    const size_t stride = (size_t)column->stride;
    const size_t out = (size_t)column->out;
    const size_t lanes = QK_POOL_BYTES / stride;
    const size_t bottom = (band->end - 1) * stride + (row->pad == 0);
    const size_t last = lesser(bottom + 1, (size_t)row->in - 1);
    const size_t middle = (out > lanes ? (out - lanes) * stride : 0) + (column->pad == 0);
    const size_t read = last * (size_t)column->in + middle + 1 + QK_POOL_BYTES;
    const size_t skipped = plane * (size_t)row->in * (size_t)column->in;
    const size_t behind = (band->count - plane) * (band->end - band->begin) * out;
    const size_t written = (band->end - band->begin - 1) * out + lanes;
    return skipped + band->x_before >= (size_t)column->pad && skipped + read <= band->x_bytes &&
           written <= behind + (out > lanes ? lanes : 0);
}

/* A function for each kind of window. In one function they would have too many variables for the
 * registers of a CPU. */
#define QK_POOL_THREES(name, stride, is_signed)                                                    \
    static APART void max_threes_##name(const struct qk_pool_planes *planes,                       \
                                        const struct qk_pool_band *band, size_t first, size_t end) \
    {                                                                                              \
        max_threes(planes, band, first, end, stride, is_signed);                                   \
    }

QK_POOL_THREES(1_u8, 1, false)
QK_POOL_THREES(1_s8, 1, true)
QK_POOL_THREES(2_u8, 2, false)
QK_POOL_THREES(2_s8, 2, true)

/* Finds planes [*first, *end) of a band, of which whole vectors may be read and written, and
 * computes them. Narrow planes go together. Wide planes go one by one, so that they are read from
 * a near cache. */
INLINE void max_band_of_threes(const struct qk_pool_planes *planes, const struct qk_pool_band *band,
                               size_t *first, size_t *end, bool is_signed)
{
    const bool is_dense = planes->column.stride == 1;
    *first = is_roomy(planes, band, 0) ? 0 : 1;
    *end = band->count;
    while (*end > *first && !is_roomy(planes, band, *end - 1))
        (*end)--;
    const bool is_narrow =
        (size_t)planes->column.out * (size_t)planes->column.stride <= QK_POOL_BYTES;
    for (size_t i = *first, next; i < *end; i = next) {
        next = is_narrow ? *end : i + 1;
        if (is_signed)
            (is_dense ? max_threes_1_s8 : max_threes_2_s8)(planes, band, i, next);
        else
            (is_dense ? max_threes_1_u8 : max_threes_2_u8)(planes, band, i, next);
    }
}

#endif
