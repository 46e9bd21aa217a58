/* The kernels of planes in plain C: the reference of the other tiers. */
#pragma once

/* Nothing here compiles without a tier's file around it. */
#ifdef QK_POOL_INIT

#include "kernels/pool/kernels.h"

/* A window of a plane. */
struct window {
    struct qk_pool_taps rows, columns;
    const uint8_t *x; /* the element that the first taps read */
    size_t row_step, column_step;
};

static struct window find_window(const struct qk_pool_planes *planes, const uint8_t *x,
                                 int64_t line, int64_t position)
{
    const struct qk_pool_axis *row = &planes->row;
    const struct qk_pool_axis *column = &planes->column;
    struct window window = {
        .rows = qk_pool_taps_of(row, line),
        .columns = qk_pool_taps_of(column, position),
        .row_step = (size_t)row->dilation * (size_t)column->in,
        .column_step = (size_t)column->dilation,
    };
    const int64_t first = line * row->stride - row->pad + window.rows.begin * row->dilation;
    const int64_t start =
        position * column->stride - column->pad + window.columns.begin * column->dilation;
    if (window.rows.begin < window.rows.end && window.columns.begin < window.columns.end)
        window.x = x + (size_t)first * (size_t)column->in + (size_t)start;
    else
        window.rows.begin = window.rows.end;
    return window;
}

static uint8_t max_of_window(const struct window *window, bool is_signed)
{
    uint8_t most = is_signed ? 0x80 : 0;
    const uint8_t *x = window->x;
    for (int64_t i = window->rows.begin; i < window->rows.end; i++, x += window->row_step)
        most = max_of(x, (size_t)(window->columns.end - window->columns.begin), window->column_step,
                      most, is_signed);
    return most;
}

static uint8_t average_of_window(const struct window *window, float divisor,
                                 const struct qk_pool_average *average)
{
    const int64_t columns = window->columns.end - window->columns.begin;
    const uint8_t *x = window->x;
    float sum = 0;
    uint8_t y;
    for (int64_t i = window->rows.begin; i < window->rows.end; i++, x += window->row_step)
        for (int64_t k = 0; k < columns; k++)
            sum += dequantize(x[(size_t)k * window->column_step], average->flip, average->x_zero,
                              average->x_scale);
    if (divisor == 0)
        divisor = (float)((window->rows.end - window->rows.begin) * columns);
    finish_all(average, &sum, divisor, 1, &y);
    return y;
}

INLINE void do_planes(const struct qk_pool_planes *planes, const struct qk_pool_average *average,
                      const struct qk_pool_band *band, bool is_signed)
{
    const uint8_t *x = band->x;
    uint8_t *y = band->y;
    for (size_t i = 0; i < band->count; i++, x += planes->row.in * planes->column.in)
        for (size_t line = band->begin; line < band->end; line++)
            for (int64_t k = 0; k < planes->column.out; k++) {
                const struct window window = find_window(planes, x, (int64_t)line, k);
                *y++ = average ? average_of_window(&window, planes->divisor, average)
                               : max_of_window(&window, is_signed);
            }
}

static void max_planes_u8(const struct qk_pool_planes *planes, const struct qk_pool_band *band,
                          uint8_t *scratch)
{
    (void)scratch;
    do_planes(planes, NULL, band, false);
}

static void max_planes_s8(const struct qk_pool_planes *planes, const struct qk_pool_band *band,
                          uint8_t *scratch)
{
    (void)scratch;
    do_planes(planes, NULL, band, true);
}

static void average_planes(const struct qk_pool_planes *planes,
                           const struct qk_pool_average *average, const struct qk_pool_band *band,
                           float *scratch)
{
    (void)scratch;
    do_planes(planes, average, band, false);
}

static void sum_planes(const uint8_t *x, size_t x_bytes, size_t count, size_t size, uint8_t flip,
                       uint32_t *totals)
{
    (void)x_bytes;
    for (size_t i = 0; i < count; i++)
        totals[i] = sum(x + i * size, size, flip);
}

#endif
