#include "kernels/conv/depthwise.h"

#ifdef __x86_64__

#include <string.h>

#include "kernels/conv/requantize_avx512.h"

/* Rows of the output at a time (or one, where there is no more), and vectors of a strip. */
enum { ROWS = 4, NV = 4, LANES = 16, VIEWS = QK_DEPTHWISE_ROWS_SEEN + ROWS };

/* How a strip sees a row of x: the bytes that `mask` has at `offset` from its plane, xored with
 * `make`, which has the fill where the mask has none. */
struct view {
    uintptr_t offset; /* modulo 2^64: it may begin before the plane */
    __mmask64 mask;
    const __m512i *make;
};

/* A strip over all rows and channels of the unit. It is copied where it is used, for it holds no
 * memory that a store could change: a compiler keeps it in registers. */
struct strip {
    const struct view *views; /* of the rows that are seen, from the first row's tap 0 on */
    const struct view *outside;
    size_t row_stride, row_dilation;
    const size_t *planes;
    size_t plane_count, taps, cells;
    __m512i order, vector_step, cell_step;
    struct qk_requantize_512 to;
    uint64_t positions; /* one bit each */
    bool whole;         /* they are all of a row */
    size_t width;
};

static inline __m512i broadcast_cell(const uint8_t *cell)
{
    int32_t word;
    memcpy(&word, cell, sizeof(word));
    return _mm512_set1_epi32(word);
}

/* A load without lanes touches nothing. */
static inline __m512i load_row(const uint8_t *plane, const struct view *view)
{
    const uintptr_t from = (uintptr_t)plane + view->offset;
    return _mm512_xor_si512(_mm512_maskz_loadu_epi8(view->mask, (const void *)from), *view->make);
}

/* order[v] for vector v of the strip: what lies beyond 64 bytes wraps, for positions that are not
 * there. */
__attribute__((always_inline)) static inline void
fill_order(const struct strip *strip, const size_t vectors, __m512i order[NV])
{
    order[0] = strip->order;
#pragma GCC unroll 4
    for (size_t v = 1; v < vectors; v++)
        order[v] = _mm512_add_epi8(order[v - 1], strip->vector_step);
}

/* sums += products of rows [row, row + height), of which `count` are there, for any kernel. */
__attribute__((always_inline)) static inline void
sum_rows(const struct strip *strip, const uint8_t *channel, size_t row, size_t count,
         const uint8_t *cell, const size_t height, const size_t vectors, __m512i sums[ROWS][NV])
{
    for (size_t p = 0; p < strip->plane_count; p++) {
        const bool there = strip->planes[p] != QK_DEPTHWISE_NO_PLANE;
        const uint8_t *plane = channel + (there ? strip->planes[p] : 0);
        for (size_t tap = 0; tap < strip->taps; tap++) {
            __m512i order[NV];
            __m512i x[ROWS];
            fill_order(strip, vectors, order);
#pragma GCC unroll 4
            for (size_t r = 0; r < height; r++) {
                const size_t at = (row + (r < count ? r : 0)) * strip->row_stride;
                const struct view *view = strip->views + at + tap * strip->row_dilation;
                x[r] = load_row(plane, there ? view : strip->outside);
            }
            for (size_t c = 0; c < strip->cells; c++, cell += QK_DEPTHWISE_TAPS) {
                const __m512i weights = broadcast_cell(cell);
#pragma GCC unroll 4
                for (size_t v = 0; v < vectors; v++) {
#pragma GCC unroll 4
                    for (size_t r = 0; r < height; r++)
                        sums[r][v] = _mm512_dpbusd_epi32(
                            sums[r][v], _mm512_permutexvar_epi8(order[v], x[r]), weights);
                    order[v] = _mm512_add_epi8(order[v], strip->cell_step);
                }
            }
        }
    }
}

/* The same for a plane that is there and a kernel of three rows and one cell each, one apart: every
 * row of x serves up to three of the output. There are views behind the last row. */
__attribute__((always_inline)) static inline void
sum_three(const struct strip *strip, const uint8_t *channel, size_t row, const uint8_t *cells,
          const size_t vectors, __m512i sums[ROWS][NV])
{
    const uint8_t *plane = channel + strip->planes[0];
    const struct view *view = strip->views + row;
    __m512i order[NV];
    __m512i weights[3];
    fill_order(strip, vectors, order);
#pragma GCC unroll 3
    for (size_t tap = 0; tap < 3; tap++)
        weights[tap] = broadcast_cell(cells + tap * QK_DEPTHWISE_TAPS);
#pragma GCC unroll 6
    for (size_t i = 0; i < ROWS + 2; i++) {
        const __m512i x = load_row(plane, view + i);
#pragma GCC unroll 4
        for (size_t v = 0; v < vectors; v++) {
            const __m512i window = _mm512_permutexvar_epi8(order[v], x);
#pragma GCC unroll 3
            for (size_t tap = 0; tap < 3; tap++)
                if (i >= tap && i - tap < ROWS)
                    sums[i - tap][v] = _mm512_dpbusd_epi32(sums[i - tap][v], window, weights[tap]);
        }
    }
}

/* Rows to bytes: `vectors` of each, so that four vectors are one, two or four rows. A store without
 * lanes touches nothing. */
__attribute__((always_inline)) static inline void
store_rows(const struct strip *strip, size_t count, float multiplier, const size_t height,
           const size_t vectors, __m512i sums[ROWS][NV], uint8_t *first)
{
    const size_t share = vectors > 2 ? 4 : vectors; /* vectors of four that a row has */
#pragma GCC unroll 4
    for (size_t r = 0; r < height; r += 4 / share) {
        __m512i four[4];
#pragma GCC unroll 4
        for (size_t v = 0; v < 4; v++)
            four[v] = v % share < vectors && r + v / share < height ? sums[r + v / share][v % share]
                                                                    : _mm512_setzero_si512();
        if (r >= count)
            break;
        const __m512i bytes = qk_requantize_64(&strip->to, four, multiplier);
        if (strip->whole) { /* whole rows lie together */
            uint64_t keep = 0;
            for (size_t i = 0; i < 4 / share && r + i < count; i++)
                keep |= strip->positions << i * share * LANES;
            qk_store_kept(first + r * strip->width, bytes, keep);
            continue;
        }
        for (size_t i = 0; i < 4 / share; i++) {
            const size_t lane = i * share * LANES;
            const uintptr_t y = (uintptr_t)first + (r + i) * strip->width - lane;
            if (r + i < count)
                _mm512_mask_storeu_epi8((void *)y, strip->positions << lane, bytes);
        }
    }
}

__attribute__((always_inline)) static inline void
sum(const struct strip *strip, const uint8_t *channel, size_t row, size_t count,
    const uint8_t *weights, int32_t start, const bool three, const size_t height,
    const size_t vectors, __m512i sums[ROWS][NV])
{
#pragma GCC unroll 4
    for (size_t r = 0; r < height; r++)
#pragma GCC unroll 4
        for (size_t v = 0; v < vectors; v++)
            sums[r][v] = _mm512_set1_epi32(start);
    if (three)
        sum_three(strip, channel, row, weights, vectors, sums);
    else
        sum_rows(strip, channel, row, count, weights, height, vectors, sums);
}

/* One output channel. Inlined with constants, so that sums lie in registers. */
__attribute__((always_inline)) static inline void
run_rows(const struct strip *strip, const struct qk_depthwise_job *job, const uint8_t *channel,
         size_t m, size_t column, const bool three, const size_t height, const size_t vectors)
{
    const uint8_t *weights =
        job->weights + m * strip->plane_count * strip->taps * strip->cells * QK_DEPTHWISE_TAPS;
    const int32_t bias = job->bias[m];
    const int32_t w_zero_point = job->w_zero_point[m];
    const float multiplier = job->multiplier[m];
    const size_t rows = job->rows;
    uint8_t *y = job->y + m * job->y_stride + column;
    for (size_t row = 0; row < rows; row += height, y += height * strip->width) {
        const size_t count = rows - row < height ? rows - row : height;
        __m512i sums[ROWS][NV];
        sum(strip, channel, row, count, weights, bias, three, height, vectors, sums);
        if (w_zero_point != 0) {
            const __m512i zero_point = _mm512_set1_epi32(w_zero_point);
            __m512i of_x[ROWS][NV];
            sum(strip, channel, row, count, job->ones, 0, three, height, vectors, of_x);
#pragma GCC unroll 4
            for (size_t r = 0; r < height; r++)
#pragma GCC unroll 4
                for (size_t v = 0; v < vectors; v++)
                    sums[r][v] =
                        _mm512_sub_epi32(sums[r][v], _mm512_mullo_epi32(of_x[r][v], zero_point));
        }
        store_rows(strip, count, multiplier, height, vectors, sums, y);
    }
}

__attribute__((always_inline)) static inline void
run_channels(const struct strip *given, const struct qk_depthwise_job *job, size_t column,
             const bool three, const size_t height, const size_t vectors)
{
    const struct strip strip = *given;
    const uint8_t *channel = job->x;
    const size_t multiplicity = job->multiplicity;
    for (size_t m = 0; m < job->channels * multiplicity; channel += job->channel_size)
        for (size_t i = 0; i < multiplicity; i++, m++)
            run_rows(&strip, job, channel, m, column, three, height, vectors);
}

__attribute__((always_inline)) static inline void run_vectors(const struct strip *strip,
                                                              const struct qk_depthwise_job *job,
                                                              size_t column, const bool three,
                                                              const size_t height, size_t vectors)
{
    if (vectors == 1)
        run_channels(strip, job, column, three, height, 1);
    else if (vectors == 2)
        run_channels(strip, job, column, three, height, 2);
    else if (vectors == 3)
        run_channels(strip, job, column, three, height, 3);
    else
        run_channels(strip, job, column, three, height, 4);
}

/* Bits [begin, end) of 64, cut to what is there. */
static uint64_t bits_between(int64_t begin, int64_t end)
{
    const uint64_t below = end >= 64 ? UINT64_MAX : end <= 0 ? 0 : (UINT64_C(1) << end) - 1;
    return begin >= 64 ? 0 : begin <= 0 ? below : below & (UINT64_MAX << begin);
}

/* The rows that the unit sees in a strip that begins at column `first` of x, and some behind them
 * that look outside. */
static void fill_views(const struct qk_depthwise_job *job, int64_t first, __mmask64 columns,
                       const __m512i make[2], struct view views[VIEWS])
{
    const struct qk_conv_axis *axis = job->row_axis;
    const int64_t row = qk_conv_look(axis, job->row, 0);
    const size_t seen = qk_depthwise_rows_seen(axis, job->rows);
    for (size_t i = 0; i < seen + ROWS; i++) {
        const bool inside = i < seen && row + (int64_t)i >= 0 && row + (int64_t)i < axis->in;
        const uintptr_t at = inside ? (uintptr_t)(row + (int64_t)i) : 0;
        views[i] = (struct view){
            at * (uintptr_t)job->column_axis->in + (uintptr_t)first,
            inside ? columns : 0,
            &make[inside],
        };
    }
}

void qk_depthwise_vnni(const struct qk_depthwise_job *job)
{
    const struct qk_conv_axis *rows = job->row_axis;
    const struct qk_conv_axis *columns = job->column_axis;
    const size_t cell_step = QK_DEPTHWISE_TAPS * (size_t)columns->dilation;
    const bool three = job->rows > 1 && job->plane_count == 1 &&
                       job->planes[0] != QK_DEPTHWISE_NO_PLANE && job->cells == 1 &&
                       rows->kernel == 3 && rows->stride == 1 && rows->dilation == 1;
    struct view views[VIEWS];
    __m512i make[2] = {_mm512_set1_epi8((char)(job->fill ^ job->flip))};
    const struct view outside = {0, 0, &make[0]};
    struct strip strip = {
        .views = views,
        .outside = &outside,
        .row_stride = (size_t)rows->stride,
        .row_dilation = (size_t)rows->dilation,
        .planes = job->planes,
        .plane_count = job->plane_count,
        .taps = (size_t)rows->kernel,
        .cells = job->cells,
        .order = _mm512_loadu_si512(job->order),
        .vector_step = _mm512_set1_epi8((char)(uint8_t)(LANES * (size_t)columns->stride)),
        .cell_step = _mm512_set1_epi8((char)(uint8_t)cell_step),
        .to = qk_requantize_512_from(job->requantize, job->y_signed),
        .width = (size_t)columns->out,
    };
    const size_t end = job->column + job->columns;
    for (size_t column = job->column; column < end; column += job->strip) {
        const size_t left = end - column;
        const size_t count = left < job->strip ? left : job->strip;
        const int64_t first = qk_conv_look(columns, column, 0);
        const __mmask64 inside = bits_between(-first, columns->in - first);
        make[1] = _mm512_mask_set1_epi8(make[0], inside, (char)job->flip);
        fill_views(job, first, inside, make, views);
        strip.positions = bits_between(0, (int64_t)count);
        strip.whole = count == strip.width;
        if (three)
            run_vectors(&strip, job, column, true, ROWS, (count - 1) / LANES + 1);
        else if (job->rows > 1)
            run_vectors(&strip, job, column, false, ROWS, (count - 1) / LANES + 1);
        else
            run_vectors(&strip, job, column, false, 1, (count - 1) / LANES + 1);
    }
}

#endif
