/* Square kernels of 5 and 7, whose rows of taps have two quads, over long rows of x as it is
 * stored. A vector has 16 positions of a row of y. Four rows of y are computed together, because
 * they share most of the rows of x that they read. No quads are laid out: each row of x is loaded
 * and permuted once for all rows of taps that read it. */
#include "kernels/conv/depthwise/depthwise.h"

#ifdef __x86_64__

#include <string.h>

#include "kernels/conv/requantize_avx512.h"
#include "kernels/sizes.h"

enum { ROWS = 4, TAPS = QK_DEPTHWISE_TAPS, LANES = QK_DEPTHWISE_LANES, BYTES = QK_DEPTHWISE_BYTES };

/* The most rows that the kernel has, and how many quads each row of taps has. */
enum { HEIGHT = 7, QUADS = 2 };

/* A tile: up to 16 columns of y. */
struct tile {
    uint8_t order[QUADS][BYTES]; /* permutations that turn a load into quads */
    uint64_t inside[QUADS];      /* bytes of the quads that lie inside x */
    size_t offset;               /* column of x at which the load begins */
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
    return (row->kernel == 5 || row->kernel == HEIGHT) && square && row->stride <= 2 &&
           column->stride <= 2 && qk_taps_may_share(row) && qk_taps_may_share(column) &&
           job->rows >= ROWS && job->columns > LANES / 2 && job->geometry->channel_size > 0 &&
           !job->any_zero_point && bytes <= job->layout->batch * job->layout->buffer_bytes;
}

/* Returns how many of the first channels have no load that ends behind x. */
static size_t count_channels(const struct qk_depthwise_job *job)
{
    const size_t left = (size_t)(job->x_end - job->x);
    return left > BYTES ? qk_size_min((left - BYTES) / job->geometry->channel_size, job->channels)
                        : 0;
}

/* Computes a tile's permutations. Taps behind the kernel's last tap and columns behind y's last
 * column may get any bytes. */
static void find_tile(const struct qk_depthwise_job *job, struct tile *tile)
{
    const struct qk_conv_axis *axis = &job->geometry->axis[QK_AXIS_COLUMN];
    const int64_t first = qk_conv_input_index(axis, job->column + tile->column, 0);
    tile->offset = first > 0 ? (size_t)qk_size_min((size_t)first, (size_t)axis->in - 1) : 0;
    for (size_t c = 0; c < QUADS; c++) {
        tile->inside[c] = 0;
        for (size_t i = 0; i < BYTES; i++) {
            const size_t step = i / TAPS * (size_t)axis->stride + c * TAPS + i % TAPS;
            const int64_t at = first + (int64_t)step;
            tile->order[c][i] = (uint8_t)(at - (int64_t)tile->offset);
            if (at >= 0 && at < axis->in)
                tile->inside[c] |= UINT64_C(1) << i;
        }
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

/* The shape of the kernel, and whether the sign bits of x are flipped. The functions that take a
 * form are inlined with constants. */
struct form {
    size_t height, stride;
    bool flipped;
};

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
    struct tile *tiles = (void *)job->work.buffers;
    struct view view = {
        .tiles = tiles,
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
    for (size_t t = 0; t < view.tile_count; t++) {
        tiles[t].column = t * LANES;
        tiles[t].columns = qk_size_min(job->columns - t * LANES, LANES);
        find_tile(job, &tiles[t]);
    }
    return view;
}

static inline __m512i load_weights(const uint8_t *from, const size_t count)
{
    uint32_t word = 0;
    memcpy(&word, from, sizeof(word));
    return _mm512_set1_epi32((int32_t)(word & UINT32_MAX >> 8 * (TAPS - count)));
}

/* Adds the products of all taps to the sums of four rows of a tile. `input_index` is the row of x
 * that the first tap of the first of these rows reads; it may be before row 0. `from` is the
 * address of the load in row 0. */
__attribute__((always_inline)) static inline void
add_rows(const struct view *view, const uint8_t *from, int64_t input_index,
         const __m512i orders[QUADS], const __mmask64 inside[QUADS], __m512i weights[HEIGHT][QUADS],
         const struct form form, __m512i sums[ROWS])
{
    /* Each quad has sums of its own, because a product has to wait for the product before it that
     * adds to the same sum. */
    __m512i of_quad[QUADS][ROWS];
#pragma GCC unroll 4
    for (size_t row = 0; row < ROWS; row++) {
        of_quad[0][row] = sums[row];
        of_quad[1][row] = _mm512_setzero_si512();
    }
#pragma GCC unroll 16
    for (size_t i = 0; i < (ROWS - 1) * form.stride + form.height; i++) {
        const bool there = (uint64_t)(input_index + (int64_t)i) < view->height;
        const uint8_t *x_row =
            there ? from + (input_index + (int64_t)i) * view->width : view->x_row;
        __m512i loaded = _mm512_loadu_si512(x_row);
        if (form.flipped)
            loaded = _mm512_xor_si512(loaded, _mm512_set1_epi8((char)0x80));
        __m512i seen[QUADS];
#pragma GCC unroll 2
        for (size_t c = 0; c < QUADS; c++)
            seen[c] = _mm512_mask_permutexvar_epi8(view->fill, inside[c], orders[c], loaded);
#pragma GCC unroll 2
        for (size_t c = 0; c < QUADS; c++)
#pragma GCC unroll 4
            for (size_t row = 0; row < ROWS; row++)
                if (i >= row * form.stride && i - row * form.stride < form.height)
                    of_quad[c][row] = _mm512_dpbusd_epi32(of_quad[c][row], seen[c],
                                                          weights[i - row * form.stride][c]);
    }
#pragma GCC unroll 4
    for (size_t row = 0; row < ROWS; row++)
        sums[row] = _mm512_add_epi32(of_quad[0][row], of_quad[1][row]);
}

__attribute__((always_inline)) static inline void store_rows(const struct view *view, uint8_t *y,
                                                             size_t columns, __m512i bytes)
{
    const size_t stride = view->y_step;
    if (stride <= LANES) {
        _mm512_mask_storeu_epi8(y, UINT64_MAX >> (BYTES - ROWS * stride), bytes);
        return;
    }
    const __mmask16 there = (__mmask16)((1U << columns) - 1);
    _mm_mask_storeu_epi8(y, there, _mm512_extracti32x4_epi32(bytes, 0));
    _mm_mask_storeu_epi8(y + stride, there, _mm512_extracti32x4_epi32(bytes, 1));
    _mm_mask_storeu_epi8(y + 2 * stride, there, _mm512_extracti32x4_epi32(bytes, 2));
    _mm_mask_storeu_epi8(y + 3 * stride, there, _mm512_extracti32x4_epi32(bytes, 3));
}

__attribute__((always_inline)) static inline void
run_output(const struct view *view, const struct output *output, const struct form form)
{
    __m512i weights[HEIGHT][QUADS];
#pragma GCC unroll 7
    for (size_t r = 0; r < form.height; r++)
#pragma GCC unroll 2
        for (size_t c = 0; c < QUADS; c++)
            weights[r][c] = load_weights(output->weights + r * form.height + c * TAPS,
                                         c + 1 < QUADS ? TAPS : form.height - c * TAPS);
    for (const struct tile *tile = view->tiles; tile < view->tiles + view->tile_count; tile++) {
        __m512i orders[QUADS];
        __mmask64 inside[QUADS];
#pragma GCC unroll 2
        for (size_t c = 0; c < QUADS; c++) {
            orders[c] = _mm512_loadu_si512(tile->order[c]);
            inside[c] = tile->inside[c];
        }
        const uint8_t *x = output->x + tile->offset;
        uint8_t *to = output->y + tile->column;
        const size_t columns = tile->columns;
        for (size_t done = 0; done < view->rows; done += ROWS) {
            const size_t row = qk_size_min(done, view->rows - ROWS);
            const int64_t input_index = view->input_index + (int64_t)(row * form.stride);
            __m512i sums[ROWS];
#pragma GCC unroll 4
            for (size_t i = 0; i < ROWS; i++)
                sums[i] = _mm512_set1_epi32(output->bias);
            add_rows(view, x, input_index, orders, inside, weights, form, sums);
            const __m512i bytes = qk_requantize_pack(&view->to, sums, ROWS, output->multiplier);
            store_rows(view, to + row * view->y_step, columns,
                       _mm512_permutexvar_epi8(view->order, bytes));
        }
    }
}

__attribute__((always_inline)) static inline void run_form(const struct qk_depthwise_job *job,
                                                           size_t channels, const struct form form)
{
    const struct view view = find_view(job);
    for (size_t m = 0; m < channels * job->multiplicity; m++) {
        const struct output output = {
            .x = job->x + m / job->multiplicity * job->geometry->channel_size + view.plane,
            .weights = job->weights + m * job->depth,
            .bias = job->bias[m],
            .multiplier = job->multiplier[m],
            .y = job->y + m * job->y_stride,
        };
        run_output(&view, &output, form);
    }
}

__attribute__((always_inline)) static inline void run_kernel(const struct qk_depthwise_job *job,
                                                             size_t channels, const size_t height)
{
    const bool strided = job->geometry->axis[QK_AXIS_ROW].stride == 2;
    if (strided && job->flip != 0)
        run_form(job, channels, (struct form){height, 2, true});
    else if (strided)
        run_form(job, channels, (struct form){height, 2, false});
    else if (job->flip != 0)
        run_form(job, channels, (struct form){height, 1, true});
    else
        run_form(job, channels, (struct form){height, 1, false});
}

size_t qk_depthwise_run_rows(const struct qk_depthwise_job *job)
{
    const size_t channels = has_rows(job) ? count_channels(job) : 0;
    if (channels == 0)
        return 0;
    if (job->geometry->axis[QK_AXIS_ROW].kernel == 5)
        run_kernel(job, channels, 5);
    else
        run_kernel(job, channels, HEIGHT);
    return channels;
}

#endif
