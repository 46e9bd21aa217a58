/* Square kernels of 3, 5 and 7 over rows of x as it is stored. A vector has 16 positions of a row
 * of y. Four rows of y, or two or three if there are few, are computed together, because they share
 * most of the rows of x that they read. No quads are laid out: each row of x is loaded and permuted
 * once for all rows of taps that read it. If fewer than four rows are computed together, rows of x
 * that are padding are multiplied once for all columns. */
#include "kernels/conv/depthwise/depthwise.h"

#ifdef __x86_64__

#include <string.h>

#include "kernels/conv/requantize_avx512.h"
#include "kernels/sizes.h"

enum { ROWS = 4, TAPS = QK_DEPTHWISE_TAPS, LANES = QK_DEPTHWISE_LANES, BYTES = QK_DEPTHWISE_BYTES };

/* The most rows that the kernel has, and how many quads each row of taps has at most. */
enum { HEIGHT = 7, QUADS = 2 };

/* A tile: up to 16 columns of y. */
struct tile {
    uint8_t order[QUADS][BYTES]; /* permutations that turn a load into quads */
    uint64_t inside[QUADS];      /* bytes of the quads that lie inside x */
    int64_t offset;              /* column of x at which the load begins; it may be before x */
    size_t column, columns;
};

static size_t count_tiles(const struct qk_depthwise_job *job)
{
    return qk_divide_up(job->columns, LANES);
}

static bool has_rows(const struct qk_depthwise_job *job)
{
    const struct qk_conv_axis *row = &job->geometry->axis[QK_AXIS_ROW];
    const struct qk_conv_axis *column = &job->geometry->axis[QK_AXIS_COLUMN];
    const bool square = row->kernel == column->kernel && row->dilation == 1 &&
                        column->dilation == 1 &&
                        (int64_t)job->depth == row->kernel * column->kernel;
    const size_t bytes = count_tiles(job) * sizeof(struct tile);
    return (row->kernel == 3 || row->kernel == 5 || row->kernel == HEIGHT) && square &&
           row->stride <= 2 && column->stride <= 2 && qk_taps_may_share(row) &&
           qk_taps_may_share(column) && job->rows >= 2 && job->columns > LANES / 2 &&
           job->geometry->channel_size >= BYTES && !job->any_zero_point &&
           bytes <= job->layout->batch * job->layout->buffer_bytes;
}

/* Returns how many of the first channels have no load that ends behind x. At most one is left. */
static size_t count_channels(const struct qk_depthwise_job *job)
{
    const size_t left = (size_t)(job->x_end - job->x);
    return left > BYTES ? qk_size_min((left - BYTES) / job->geometry->channel_size, job->channels)
                        : 0;
}

/* Returns `at`, but at least 0 and at most 127, in all bytes. */
static __m512i splat_bound(int64_t at)
{
    return _mm512_set1_epi8((char)(at < 0 ? 0 : at > INT8_MAX ? INT8_MAX : at));
}

/* Computes a tile's permutations. `ends_inside`: no load ends behind its row of x, so loads may
 * begin before it. Taps behind the kernel's last tap and columns behind y's last column may get any
 * bytes. */
static void find_tile(const struct qk_depthwise_job *job, bool ends_inside, struct tile *tile)
{
    const struct qk_conv_axis *axis = &job->geometry->axis[QK_AXIS_COLUMN];
    const int64_t first = qk_conv_input_index(axis, job->column + tile->column, 0);
    tile->offset = first > 0 ? (int64_t)qk_size_min((size_t)first, (size_t)axis->in - 1) : 0;
    if (ends_inside && tile->offset + BYTES > axis->in)
        tile->offset = axis->in - BYTES;
    for (size_t c = 0; c < QUADS; c++) {
        const __m512i steps = _mm512_add_epi8(_mm512_loadu_si512(job->layout->order),
                                              _mm512_set1_epi8((char)(c * TAPS)));
        tile->inside[c] = _mm512_cmpge_epu8_mask(steps, splat_bound(-first)) &
                          _mm512_cmplt_epu8_mask(steps, splat_bound(axis->in - first));
        _mm512_storeu_si512(
            tile->order[c],
            _mm512_add_epi8(steps, _mm512_set1_epi8((char)(uint8_t)(first - tile->offset))));
    }
}

static void find_tiles(const struct qk_depthwise_job *job, bool ends_inside)
{
    struct tile *tiles = (void *)job->work.buffers;
    for (size_t t = 0; t < count_tiles(job); t++) {
        tiles[t].column = t * LANES;
        tiles[t].columns = qk_size_min(job->columns - t * LANES, LANES);
        find_tile(job, ends_inside, &tiles[t]);
    }
}

/* ---- An output channel ------------------------------------------------------------------- */

struct output {
    const uint8_t *x;
    const uint8_t *weights; /* dense, as they are packed */
    int32_t bias;
    float multiplier;
    uint8_t *y;
};

/* The shape of the kernel, how many rows of y are computed together, and whether the
 * sign bits of x are flipped. The functions that take a form are inlined with constants. */
struct form {
    size_t height, stride, rows;
    bool flipped;
};

/* Returns how many quads a row of taps has. */
__attribute__((always_inline)) static inline size_t quads_of(const struct form form)
{
    return form.height > TAPS ? QUADS : 1;
}

/* Returns whether rows of x that are padding are multiplied once for all columns. Otherwise they
 * are multiplied like others. Planes of few rows have much padding around them. */
__attribute__((always_inline)) static inline bool skips(const struct form form)
{
    return form.rows < ROWS;
}

/* What all output channels have in common. */
struct view {
    const struct tile *tiles;
    size_t tile_count;
    size_t plane;  /* element of a channel at which the plane begins */
    int64_t width; /* columns of x */
    uint64_t height;
    int64_t input_index; /* row of x that the first tap of the first row of y reads */
    size_t rows;         /* rows of y, which are y_step bytes apart */
    size_t y_step;
    uint8_t x_row[BYTES]; /* padding, read instead of rows outside x */
    __m512i fill;
    __m512i order; /* puts packed bytes in order: short rows without gaps, otherwise 16 bytes of
                      each row */
    struct qk_requantize_512 to;
};

static struct view find_view(const struct qk_depthwise_job *job)
{
    const struct qk_conv_axis *row = &job->geometry->axis[QK_AXIS_ROW];
    const size_t y_step = (size_t)job->geometry->axis[QK_AXIS_COLUMN].out;
    struct view view = {
        .tiles = (void *)job->work.buffers,
        .tile_count = count_tiles(job),
        .width = job->geometry->axis[QK_AXIS_COLUMN].in,
        .height = (uint64_t)row->in,
        .input_index = qk_conv_input_index(row, job->row, 0),
        .rows = job->rows,
        .y_step = y_step,
        .fill = _mm512_set1_epi8((char)(job->fill ^ job->flip)),
        .order = qk_requantize_order(qk_size_min(y_step, LANES), LANES),
        .to = qk_requantize_512_from(&job->epilogue->requantize),
    };
    if (!qk_conv_find_plane(job->geometry, job->outer, 0, &view.plane))
        view.height = 0;
    memset(view.x_row, job->fill, sizeof(view.x_row));
    return view;
}

static inline __m512i load_weights(const uint8_t *from, const size_t count)
{
    uint32_t word = 0;
    memcpy(&word, from, sizeof(word));
    return _mm512_set1_epi32((int32_t)(word & UINT32_MAX >> 8 * (TAPS - count)));
}

/* Returns whether row `i` of x is inside x, counted from the first that a tap of the first of some
 * rows of y reads. That one has number `input_index`, which may be negative. */
static inline bool is_inside(const struct view *view, int64_t input_index, size_t i)
{
    return (uint64_t)(input_index + (int64_t)i) < view->height;
}

/* Adds the products of the quads `seen`, which are those of row `i` of x, to the sums of all rows
 * of y that read it. */
__attribute__((always_inline)) static inline void add_row(size_t i, size_t c, __m512i seen,
                                                          __m512i weights[HEIGHT][QUADS],
                                                          const struct form form,
                                                          __m512i sums[ROWS])
{
#pragma GCC unroll 4
    for (size_t row = 0; row < form.rows; row++)
        if (i >= row * form.stride && i - row * form.stride < form.height)
            sums[row] = _mm512_dpbusd_epi32(sums[row], seen, weights[i - row * form.stride][c]);
}

/* Returns in `sums` what is the same for all columns of some rows of y: the bias, and the products
 * of rows of x that are padding. */
__attribute__((always_inline)) static inline void
begin_rows(const struct view *view, int32_t bias, int64_t input_index,
           __m512i weights[HEIGHT][QUADS], const struct form form, __m512i sums[ROWS])
{
#pragma GCC unroll 4
    for (size_t row = 0; row < form.rows; row++)
        sums[row] = _mm512_set1_epi32(bias);
    if (!skips(form))
        return;
#pragma GCC unroll 16
    for (size_t i = 0; i < (form.rows - 1) * form.stride + form.height; i++) {
        if (is_inside(view, input_index, i))
            continue;
#pragma GCC unroll 2
        for (size_t c = 0; c < quads_of(form); c++)
            add_row(i, c, view->fill, weights, form, sums);
    }
}

/* Adds the products of all other rows of x to the sums of a tile. `from` is the address of the load
 * in row 0. */
__attribute__((always_inline)) static inline void
add_rows(const struct view *view, const uint8_t *from, int64_t input_index,
         const __m512i orders[QUADS], const __mmask64 inside[QUADS], __m512i weights[HEIGHT][QUADS],
         const struct form form, __m512i sums[ROWS])
{
    const __m512i fill = view->fill;
    /* Each quad has sums of its own, because a product has to wait for the product before it that
     * adds to the same sum. */
    __m512i others[ROWS];
#pragma GCC unroll 4
    for (size_t row = 0; row < form.rows; row++)
        others[row] = _mm512_setzero_si512();
    uintptr_t at = (uintptr_t)from + (uintptr_t)input_index * (uintptr_t)view->width;
#pragma GCC unroll 16
    for (size_t i = 0; i < (form.rows - 1) * form.stride + form.height; i++) {
        const bool there = is_inside(view, input_index, i);
        const uint8_t *x_row = there ? (const void *)at : view->x_row;
        at += (uintptr_t)view->width;
        if (skips(form) && !there)
            continue;
        __m512i loaded = _mm512_loadu_si512(x_row);
        if (form.flipped)
            loaded = _mm512_xor_si512(loaded, _mm512_set1_epi8((char)0x80));
#pragma GCC unroll 2
        for (size_t c = 0; c < quads_of(form); c++)
            add_row(i, c, _mm512_mask_permutexvar_epi8(fill, inside[c], orders[c], loaded), weights,
                    form, c == 0 ? sums : others);
    }
    if (quads_of(form) == 1)
        return;
#pragma GCC unroll 4
    for (size_t row = 0; row < form.rows; row++)
        sums[row] = _mm512_add_epi32(sums[row], others[row]);
}

__attribute__((always_inline)) static inline void store_rows(const struct view *view, uint8_t *y,
                                                             size_t columns, __m512i bytes,
                                                             const struct form form)
{
    const size_t stride = view->y_step;
    if (stride <= LANES) {
        _mm512_mask_storeu_epi8(y, UINT64_MAX >> (BYTES - form.rows * stride), bytes);
        return;
    }
    const __mmask16 there = (__mmask16)((1U << columns) - 1);
    _mm_mask_storeu_epi8(y, there, _mm512_extracti32x4_epi32(bytes, 0));
    _mm_mask_storeu_epi8(y + stride, there, _mm512_extracti32x4_epi32(bytes, 1));
    if (form.rows > 2)
        _mm_mask_storeu_epi8(y + 2 * stride, there, _mm512_extracti32x4_epi32(bytes, 2));
    if (form.rows > 3)
        _mm_mask_storeu_epi8(y + 3 * stride, there, _mm512_extracti32x4_epi32(bytes, 3));
}

/* Computes rows [begin, end) of y in one tile. */
__attribute__((always_inline)) static inline void
run_tile(const struct view *view, const struct output *output, const struct tile *tile,
         size_t begin, size_t end, __m512i begun[ROWS], __m512i weights[HEIGHT][QUADS],
         const struct form form)
{
    __m512i orders[QUADS];
    __mmask64 inside[QUADS];
#pragma GCC unroll 2
    for (size_t c = 0; c < quads_of(form); c++) {
        orders[c] = _mm512_loadu_si512(tile->order[c]);
        inside[c] = tile->inside[c];
    }
    const uint8_t *x = output->x + tile->offset;
    uint8_t *to = output->y + tile->column;
    const size_t columns = tile->columns;
    for (size_t done = begin; done < end; done += form.rows) {
        const size_t row = qk_size_min(done, view->rows - form.rows);
        __m512i sums[ROWS];
#pragma GCC unroll 4
        for (size_t i = 0; i < form.rows; i++)
            sums[i] = begun[i];
        add_rows(view, x, view->input_index + (int64_t)(row * form.stride), orders, inside, weights,
                 form, sums);
        const __m512i bytes = qk_requantize_pack(&view->to, sums, form.rows, output->multiplier);
        store_rows(view, to + row * view->y_step, columns,
                   _mm512_permutexvar_epi8(view->order, bytes), form);
    }
}

__attribute__((always_inline)) static inline void
run_output(const struct view *view, const struct output *output, const struct form form)
{
    const size_t step = skips(form) ? form.rows : view->rows;
    __m512i weights[HEIGHT][QUADS];
#pragma GCC unroll 7
    for (size_t r = 0; r < form.height; r++)
#pragma GCC unroll 2
        for (size_t c = 0; c < quads_of(form); c++)
            weights[r][c] = load_weights(output->weights + r * form.height + c * TAPS,
                                         c + 1 < quads_of(form) ? TAPS : form.height - c * TAPS);
    for (size_t begin = 0; begin < view->rows; begin += step) {
        __m512i begun[ROWS];
        const size_t row = qk_size_min(begin, view->rows - form.rows);
        begin_rows(view, output->bias, view->input_index + (int64_t)(row * form.stride), weights,
                   form, begun);
        for (const struct tile *tile = view->tiles; tile < view->tiles + view->tile_count; tile++)
            run_tile(view, output, tile, begin, begin + step, begun, weights, form);
    }
}

__attribute__((always_inline)) static inline void run_form(const struct qk_depthwise_job *job,
                                                           const struct form form)
{
    const size_t whole = count_channels(job) * job->multiplicity;
    const struct view view = find_view(job);
    find_tiles(job, false);
    for (size_t m = 0; m < job->channels * job->multiplicity; m++) {
        const struct output output = {
            .x = job->x + m / job->multiplicity * job->geometry->channel_size + view.plane,
            .weights = job->weights + m * job->depth,
            .bias = job->bias[m],
            .multiplier = job->multiplier[m],
            .y = job->y + m * job->y_stride,
        };
        if (m == whole)
            find_tiles(job, true);
        run_output(&view, &output, form);
    }
}

__attribute__((always_inline)) static inline void run_flips(const struct qk_depthwise_job *job,
                                                            const size_t height,
                                                            const size_t stride, const size_t rows)
{
    if (job->flip != 0)
        run_form(job, (struct form){height, stride, rows, true});
    else
        run_form(job, (struct form){height, stride, rows, false});
}

__attribute__((always_inline)) static inline void run_rows(const struct qk_depthwise_job *job,
                                                           const size_t height, const size_t stride)
{
    if (job->rows == 2)
        run_flips(job, height, stride, 2);
    else if (job->rows == 3 || job->rows == 5 || job->rows == 6)
        run_flips(job, height, stride, 3); /* fours would compute 3 of 5 rows twice, or 2 of 6 */
    else
        run_flips(job, height, stride, ROWS);
}

bool qk_depthwise_run_rows(const struct qk_depthwise_job *job)
{
    const struct qk_conv_axis *row = &job->geometry->axis[QK_AXIS_ROW];
    /* Loads in the last channel may begin in the one before. */
    if (!has_rows(job) || count_channels(job) == 0)
        return false;
    if (row->kernel == 3 && row->stride == 2)
        run_rows(job, 3, 2);
    else if (row->kernel == 3)
        run_rows(job, 3, 1);
    else if (row->kernel == 5 && row->stride == 2)
        run_rows(job, 5, 2);
    else if (row->kernel == 5)
        run_rows(job, 5, 1);
    else if (row->stride == 2)
        run_rows(job, HEIGHT, 2);
    else
        run_rows(job, HEIGHT, 1);
    return true;
}

#endif
