#include "kernels/conv/depthwise.h"

#ifdef __x86_64__

#include <immintrin.h>

#include "kernels/conv/sizes.h"
#include "kernels/conv/vector.h"

enum { TAPS = QK_DEPTHWISE_TAPS, LANES = QK_DEPTHWISE_LANES, BYTES = QK_DEPTHWISE_BYTES };

/* ---- Vectors ----------------------------------------------------------------------------- */

/* The last byte of a window is no byte of x: it holds what lies outside. */
enum { WINDOW = BYTES - 1, ORDERS_NEAR = 8 };

/* What the lines of one array see of a row of x. */
struct view {
    int64_t column;                   /* tap 0 of a line's first cell; it may be outside */
    size_t taps;                      /* of a cell */
    struct qk_window_range tap[TAPS]; /* the cells that look inside with it */
    struct qk_window_range whole;     /* and with all */
};

/* The vector in the making: cells from `start` on, out of the window at `base`. */
struct finder {
    const struct qk_depthwise_job *job;
    struct view view;
    __m512i plain, order;
    size_t orders, vectors;
    size_t start, base;
    bool begun;
};

/* One bit for each cell to the first of its bytes. */
static inline uint64_t spread(uint64_t cells)
{
    return _pdep_u64(cells, UINT64_C(0x1111111111111111));
}

/* Cells [begin, end) of 16. */
static inline uint64_t cells_between(size_t begin, size_t end)
{
    return begin < end ? (UINT64_C(1) << end) - (UINT64_C(1) << begin) : 0;
}

static struct view see(const struct qk_depthwise_job *job, size_t array)
{
    const struct qk_depthwise_layout *layout = job->layout;
    const struct qk_conv_axis *axis = &job->geometry->axis[QK_AXIS_COLUMN];
    const size_t first = array * layout->taps;
    struct view view = {
        .column = qk_conv_look(axis, job->column, first),
        .taps = qk_size_min(layout->taps, (size_t)axis->kernel - first),
        .whole = {0, layout->pitch},
    };
    for (size_t t = 0; t < view.taps; t++) {
        struct qk_window line = {.in_columns = axis->in,
                                 .row_stride = 1,
                                 .column_first = qk_conv_look(axis, job->column, first + t),
                                 .column_stride = axis->stride,
                                 .columns = layout->pitch};
        qk_window_fit(&line);
        view.tap[t] = line.inside_columns;
        view.whole.begin = qk_size_max(view.whole.begin, view.tap[t].begin);
        view.whole.end = qk_size_min(view.whole.end, view.tap[t].end);
    }
    return view;
}

/* Planes repeat themselves: the order is often one of the last. */
static uint32_t keep_order(struct finder *finder)
{
    const __m512i order = finder->order;
    uint8_t(*orders)[BYTES] = finder->job->work.orders;
    const size_t count = finder->orders;
    for (size_t i = count > ORDERS_NEAR ? count - ORDERS_NEAR : 0; i < count; i++)
        if (_mm512_cmpneq_epi8_mask(order, _mm512_load_si512(orders[i])) == 0)
            return (uint32_t)(i * BYTES);
    _mm512_store_si512(orders[finder->orders++], order);
    return (uint32_t)(count * BYTES);
}

static void end_vector(struct finder *finder)
{
    if (!finder->begun)
        return;
    finder->job->work.vectors[finder->vectors++] = (struct qk_depthwise_vector){
        finder->base, keep_order(finder), (uint32_t)(finder->start * TAPS)};
    finder->begun = false;
}

static void begin_vector(struct finder *finder, size_t start, size_t base)
{
    const size_t channel_size = finder->job->geometry->channel_size;
    finder->start = start;
    finder->base = qk_size_min(base, channel_size > WINDOW ? channel_size - WINDOW : 0);
    finder->order = _mm512_set1_epi8(WINDOW);
    finder->begun = true;
}

/* Bytes of a vector, of cells [cell, cell + count) of a line at lane `lane`, that look inside. */
static inline uint64_t find_inside(const struct view *view, size_t cell, size_t count, size_t lane)
{
    if (cell >= view->whole.begin && cell + count <= view->whole.end)
        return spread(cells_between(lane, lane + count)) * ((1U << view->taps) - 1);
    uint64_t mask = 0;
    for (size_t t = 0; t < view->taps; t++) {
        const size_t begin = qk_size_max(cell, view->tap[t].begin);
        const size_t end = qk_size_min(cell + count, view->tap[t].end);
        if (begin < end)
            mask |= spread(cells_between(begin - cell + lane, end - cell + lane)) << t;
    }
    return mask;
}

/* How many of the line's next `count` cells, the first of which looks at `look`, are in the window;
 * all of a new one are. */
static size_t count_in_window(const struct finder *finder, size_t row, int64_t look, size_t count)
{
    const struct qk_conv_axis *axis = &finder->job->geometry->axis[QK_AXIS_COLUMN];
    const size_t end = finder->base + WINDOW;
    if (row + (look > 0 ? (size_t)look : 0) < finder->base || end <= row)
        return 0;
    if (row + (size_t)axis->in <= end)
        return count;
    const int64_t left =
        (int64_t)(end - row) - 1 - look - (int64_t)(finder->view.taps - 1) * axis->dilation;
    return left < 0 ? 0 : qk_size_min((size_t)(left / axis->stride) + 1, count);
}

/* A line of which x has the row that begins at `row` in a channel. */
static void add_line(struct finder *finder, size_t line, size_t row)
{
    const int64_t stride = finder->job->geometry->axis[QK_AXIS_COLUMN].stride;
    const size_t pitch = finder->job->layout->pitch;
    for (size_t cell = 0; cell < pitch;) {
        const size_t at = line * pitch + cell;
        const int64_t look = finder->view.column + (int64_t)cell * stride;
        if (finder->begun && at - finder->start >= LANES)
            end_vector(finder);
        size_t lane = finder->begun ? at - finder->start : 0;
        size_t count = qk_size_min(LANES - lane, pitch - cell);
        const bool inside = find_inside(&finder->view, cell, count, lane) != 0;
        if (inside && finder->begun) {
            const size_t fit = count_in_window(finder, row, look, count);
            if (fit == 0) {
                end_vector(finder);
                continue;
            }
            count = fit;
        } else if (inside) {
            begin_vector(finder, at, row + (look > 0 ? (size_t)look : 0));
        }
        const uintptr_t shift = row + (uintptr_t)look - finder->base - lane * (size_t)stride;
        finder->order =
            _mm512_mask_add_epi8(finder->order, find_inside(&finder->view, cell, count, lane),
                                 finder->plain, _mm512_set1_epi8((char)(uint8_t)shift));
        cell += count;
    }
}

static void add_cluster(struct finder *finder, size_t line, size_t plane, size_t cluster)
{
    const struct qk_depthwise_job *job = finder->job;
    const struct qk_conv_axis *axis = &job->geometry->axis[QK_AXIS_ROW];
    const size_t seen = job->rows + job->layout->row.span;
    for (size_t i = 0; i < seen; i++) {
        const int64_t row = qk_conv_look(axis, job->row + i, cluster);
        if (row >= 0 && row < axis->in)
            add_line(finder, line + i,
                     plane + (size_t)row * (size_t)job->geometry->axis[QK_AXIS_COLUMN].in);
    }
}

size_t qk_depthwise_find_vectors(const struct qk_depthwise_job *job)
{
    const struct qk_depthwise_layout *layout = job->layout;
    struct finder finder = {
        .job = job,
        .plain = _mm512_loadu_si512(layout->order),
    };
    size_t line = 0;
    for (size_t a = 0; a < layout->arrays; a++) {
        finder.view = see(job, a);
        for (size_t p = 0; p < layout->planes; p++) {
            size_t plane;
            const bool there = qk_conv_find_plane(job->geometry, job->outer, p, &plane);
            for (size_t c = 0; c < layout->row.clusters; c++, line += layout->lines)
                if (there)
                    add_cluster(&finder, line, plane, c);
        }
    }
    end_vector(&finder);
    const __m512i fill = _mm512_set1_epi8((char)(job->fill ^ job->flip));
    const size_t slots = qk_size_min(layout->batch, job->channels);
    for (size_t at = 0; at < slots * layout->slot_bytes; at += BYTES)
        _mm512_store_si512(job->work.slots + at, fill);
    return finder.vectors;
}

/* ---- Cells ------------------------------------------------------------------------------- */

/* `near_end`: not all windows of the channel end before x does. */
__attribute__((always_inline)) static inline void
make_slot(const struct qk_depthwise_workspace *work, size_t count, const uint8_t *x,
          const uint8_t *x_end, uint8_t fill, uint8_t *slot, const bool flipped,
          const bool near_end)
{
    const uint8_t *orders = work->orders[0];
    const struct qk_depthwise_vector *end = work->vectors + count;
    for (const struct qk_depthwise_vector *vector = work->vectors; vector < end; vector++) {
        const uint8_t *from = x + vector->offset;
        uint64_t mask = UINT64_MAX >> 1;
        if (near_end && x_end - from < WINDOW)
            mask = (UINT64_C(1) << (x_end - from)) - 1;
        __m512i bytes = _mm512_mask_loadu_epi8(_mm512_set1_epi8((char)fill), mask, from);
        if (flipped)
            bytes = _mm512_xor_si512(bytes, _mm512_set1_epi8((char)0x80));
        const __m512i order = _mm512_load_si512(orders + vector->order);
        _mm512_storeu_si512(slot + vector->to, _mm512_permutexvar_epi8(order, bytes));
    }
}

void qk_depthwise_make_cells(const struct qk_depthwise_job *job, size_t vectors, size_t begin,
                             size_t end)
{
    const struct qk_depthwise_workspace work = job->work;
    const size_t channel_size = job->geometry->channel_size;
    const size_t slot_bytes = job->layout->slot_bytes;
    const bool flipped = job->flip != 0;
    const uint8_t fill = job->fill;
    const uint8_t *x_end = job->x_end;
    const uint8_t *x = job->x + begin * channel_size;
    uint8_t *slot = work.slots;
    for (size_t c = begin; c < end; c++, x += channel_size, slot += slot_bytes)
        if (x_end - x < (ptrdiff_t)qk_size_max(channel_size, WINDOW))
            make_slot(&work, vectors, x, x_end, fill, slot, flipped, true);
        else if (flipped)
            make_slot(&work, vectors, x, x_end, fill, slot, true, false);
        else
            make_slot(&work, vectors, x, x_end, fill, slot, false, false);
}

#endif
