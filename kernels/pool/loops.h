/* The kernels of pooling in plain C, which compilers turn into vectors of the tier that includes
 * this file. The tier defines QK_POOL_INIT, the name of its init function, QK_POOL_NAME, and the
 * costs QK_POOL_MAX_CYCLES, QK_POOL_AVERAGE_CYCLES and QK_POOL_SUM_CYCLES. */
#pragma once

/* Nothing here compiles without a tier's file around it. */
#ifdef QK_POOL_INIT

#include <string.h>

#include "kernels/element/round.h"
#include "kernels/pool/kernels.h"
#include "kernels/wrap.h"

#ifndef INLINE
#define INLINE static inline __attribute__((always_inline))
#endif

/* ---- Maxima -------------------------------------------------------------------------------- */

INLINE uint8_t larger(uint8_t a, uint8_t b, bool is_signed)
{
    if (is_signed)
        return (uint8_t)((int8_t)a > (int8_t)b ? (int8_t)a : (int8_t)b);
    return a > b ? a : b;
}

INLINE void max_rows(uint8_t *restrict to, const uint8_t *a, const uint8_t *b, size_t count,
                     bool is_signed)
{
    for (size_t i = 0; i < count; i++)
        to[i] = larger(a[i], b[i], is_signed);
}

INLINE void max_row_into(uint8_t *restrict to, const uint8_t *restrict x, size_t count,
                         bool is_signed)
{
    for (size_t i = 0; i < count; i++)
        to[i] = larger(to[i], x[i], is_signed);
}

/* Returns the maximum of `count` elements, `step` apart, and of `most`. */
INLINE uint8_t max_of(const uint8_t *x, size_t count, size_t step, uint8_t most, bool is_signed)
{
    if (step == 1)
        for (size_t i = 0; i < count; i++)
            most = larger(most, x[i], is_signed);
    else
        for (size_t i = 0; i < count; i++)
            most = larger(most, x[i * step], is_signed);
    return most;
}

/* Does positions [begin, end) one by one. x begins with column `first`; y belongs to position
 * `begin`. */
INLINE void max_positions(const struct qk_pool_segment *segment, const uint8_t *x, size_t first,
                          size_t begin, size_t end, uint8_t *y, bool is_signed)
{
    const struct qk_pool_axis *axis = &segment->axis;
    const size_t step = (size_t)axis->dilation * segment->pitch;
    for (size_t i = begin; i < end; i++, y += segment->inner) {
        const struct qk_pool_taps taps = qk_pool_taps_of(axis, (int64_t)i);
        if (taps.begin == taps.end)
            continue;
        const int64_t column =
            (int64_t)i * axis->stride + taps.begin * axis->dilation - axis->pad - (int64_t)first;
        const uint8_t *from = x + (size_t)column * segment->pitch;
        const size_t count = (size_t)(taps.end - taps.begin);
        if (segment->inner == 1)
            *y = max_of(from, count, step, *y, is_signed);
        else
            for (size_t k = 0; k < count; k++)
                max_row_into(y, from + k * step, segment->inner, is_signed);
    }
}

/* y = every stride-th column of x. */
INLINE void take_columns(const uint8_t *restrict x, size_t count, size_t stride, size_t inner,
                         uint8_t *restrict y)
{
    if (stride == 1)
        memcpy(y, x, count * inner);
    else if (inner > 1)
        for (size_t i = 0; i < count; i++)
            memcpy(y + i * inner, x + i * stride * inner, inner);
    else if (stride == 2)
        for (size_t i = 0; i < count; i++)
            y[i] = x[2 * i];
    else
        for (size_t i = 0; i < count; i++)
            y[i] = x[i * stride];
}

/* Returns `count` rounded up if `offset` and as many elements are within `bytes`, else `count`. */
INLINE size_t round_within(size_t count, size_t offset, size_t bytes)
{
    const size_t rounded = qk_pool_round(count);
    return offset + rounded <= bytes ? rounded : count;
}

/* Does the positions whose taps are all inside x. From the maxima of windows of w taps come those
 * of 2 w taps, and at last those of all taps, from two windows that overlap. With a stride, all
 * columns in between are computed, too. */
INLINE void max_whole(const struct qk_pool_segment *segment, const uint8_t *x, size_t x_bytes,
                      uint8_t *buffers, uint8_t *y, bool is_signed)
{
    const size_t inner = segment->inner;
    const size_t stride = (size_t)segment->axis.stride;
    const size_t kernel = (size_t)segment->axis.kernel;
    const size_t step = (size_t)segment->axis.dilation * inner;
    const size_t positions = segment->whole_end - segment->whole_begin;
    const size_t count = ((positions - 1) * stride + 1) * inner;
    const uint8_t *from = x;
    size_t from_bytes = x_bytes;
    uint8_t *to = buffers;
    for (size_t width = 1; width < kernel;) {
        const size_t wider = 2 * width < kernel ? 2 * width : kernel;
        const size_t shift = (wider - width) * step;
        max_rows(to, from, from + shift,
                 round_within(count + (kernel - wider) * step, shift, from_bytes), is_signed);
        from = to;
        from_bytes = QK_POOL_BUFFER_BYTES;
        to = to == buffers ? buffers + QK_POOL_BUFFER_BYTES : buffers;
        width = wider;
    }
    if (stride == 2 && inner == 1 && 2 * qk_pool_round(positions) <= from_bytes) {
        take_columns(from, qk_pool_round(positions), 2, 1, to);
        memcpy(y, to, positions);
    } else {
        take_columns(from, positions, stride, inner, y);
    }
}

INLINE void max_row(const struct qk_pool_segment *segment, const uint8_t *x, size_t first,
                    size_t x_bytes, uint8_t *buffers, uint8_t *y, bool is_signed)
{
    const struct qk_pool_segment *s = segment;
    const int least = is_signed ? 0x80 : 0;
    uint8_t *whole = y + (s->whole_begin - s->begin) * s->inner;
    uint8_t *after = y + (s->whole_end - s->begin) * s->inner;
    memset(y, least, (s->whole_begin - s->begin) * s->inner);
    memset(after, least, (s->end - s->whole_end) * s->inner);
    max_positions(s, x, first, s->begin, s->whole_begin, y, is_signed);
    max_positions(s, x, first, s->whole_end, s->end, after, is_signed);
    if (s->whole_begin == s->whole_end)
        return;
    const int64_t column = (int64_t)s->whole_begin * s->axis.stride - s->axis.pad - (int64_t)first;
    const size_t skipped = (size_t)column * s->inner;
    max_whole(s, x + skipped, x_bytes - skipped, buffers, whole, is_signed);
}

static void max_rows_u8(uint8_t *to, const uint8_t *a, const uint8_t *b, size_t count)
{
    max_rows(to, a, b, count, false);
}

static void max_rows_s8(uint8_t *to, const uint8_t *a, const uint8_t *b, size_t count)
{
    max_rows(to, a, b, count, true);
}

static void max_row_u8(const struct qk_pool_segment *segment, const uint8_t *x, size_t first,
                       size_t x_bytes, uint8_t *buffers, uint8_t *y)
{
    max_row(segment, x, first, x_bytes, buffers, y, false);
}

static void max_row_s8(const struct qk_pool_segment *segment, const uint8_t *x, size_t first,
                       size_t x_bytes, uint8_t *buffers, uint8_t *y)
{
    max_row(segment, x, first, x_bytes, buffers, y, true);
}

static void max_into_u8(const struct qk_pool_segment *segment, const uint8_t *x, uint8_t *y)
{
    max_positions(segment, x, 0, segment->begin, segment->end, y, false);
}

static void max_into_s8(const struct qk_pool_segment *segment, const uint8_t *x, uint8_t *y)
{
    max_positions(segment, x, 0, segment->begin, segment->end, y, true);
}

/* ---- Averages ------------------------------------------------------------------------------ */

INLINE float dequantize(uint8_t byte, uint8_t flip, int32_t zero, float scale)
{
    return scale * (float)((int32_t)(uint8_t)(byte ^ flip) - zero);
}

/* Adds up to three taps, `step` apart, to each of `count` sums, whose elements are `stride` apart.
 */
INLINE void add_taps(const struct qk_pool_average *average, const uint8_t *restrict x,
                     size_t stride, size_t step, size_t taps, size_t count, float *restrict sums)
{
    const uint8_t flip = average->flip;
    const int32_t zero = average->x_zero;
    const float scale = average->x_scale;
    for (size_t i = 0; i < count; i++) {
        float sum = sums[i] + dequantize(x[i * stride], flip, zero, scale);
        if (taps > 1)
            sum += dequantize(x[i * stride + step], flip, zero, scale);
        if (taps > 2)
            sum += dequantize(x[i * stride + 2 * step], flip, zero, scale);
        sums[i] = sum;
    }
}

INLINE void add_all_taps(const struct qk_pool_average *average, const uint8_t *x, size_t stride,
                         size_t step, size_t taps, size_t count, float *sums)
{
    for (; taps > 3; taps -= 3, x += 3 * step)
        add_taps(average, x, stride, step, 3, count, sums);
    if (taps == 3)
        add_taps(average, x, stride, step, 3, count, sums);
    else if (taps == 2)
        add_taps(average, x, stride, step, 2, count, sums);
    else if (taps == 1)
        add_taps(average, x, stride, step, 1, count, sums);
}

static void add_spaced(const struct qk_pool_average *average, const uint8_t *x, size_t stride,
                       size_t step, size_t taps, size_t count, float *sums)
{
    if (stride == 1)
        add_all_taps(average, x, 1, step, taps, count, sums);
    else if (stride == 2)
        add_all_taps(average, x, 2, step, taps, count, sums);
    else
        add_all_taps(average, x, stride, step, taps, count, sums);
}

static void add_positions(const struct qk_pool_segment *segment,
                          const struct qk_pool_average *average, const uint8_t *x, size_t begin,
                          size_t end, float *sums)
{
    const struct qk_pool_axis *axis = &segment->axis;
    const size_t step = (size_t)axis->dilation * segment->pitch;
    for (size_t i = begin; i < end; i++, sums += segment->inner) {
        const struct qk_pool_taps taps = qk_pool_taps_of(axis, (int64_t)i);
        if (taps.begin == taps.end)
            continue;
        const int64_t column = (int64_t)i * axis->stride + taps.begin * axis->dilation - axis->pad;
        const uint8_t *from = x + (size_t)column * segment->pitch;
        const size_t count = (size_t)(taps.end - taps.begin);
        if (segment->inner > 1)
            add_spaced(average, from, 1, step, count, segment->inner, sums);
        else
            for (size_t k = 0; k < count; k++)
                *sums +=
                    dequantize(from[k * step], average->flip, average->x_zero, average->x_scale);
    }
}

static void add_row(const struct qk_pool_segment *segment, const struct qk_pool_average *average,
                    const uint8_t *x, size_t x_bytes, float *sums)
{
    const struct qk_pool_segment *s = segment;
    const size_t stride = (size_t)s->axis.stride;
    const size_t step = (size_t)s->axis.dilation * s->inner;
    const size_t kernel = (size_t)s->axis.kernel;
    const size_t count = (s->whole_end - s->whole_begin) * s->inner;
    float *whole = sums + (s->whole_begin - s->begin) * s->inner;
    add_positions(s, average, x, s->begin, s->whole_begin, sums);
    add_positions(s, average, x, s->whole_end, s->end, sums + qk_pool_sums_after(s));
    if (s->pitch != s->inner || (stride > 1 && s->inner > 1)) {
        add_positions(s, average, x, s->whole_begin, s->whole_end, whole);
        return;
    }
    if (count == 0)
        return;
    const size_t column = s->whole_begin * stride - (size_t)s->axis.pad;
    const size_t end =
        column * s->inner + (kernel - 1) * step + (qk_pool_round(count) - 1) * stride + 1;
    add_spaced(average, x + column * s->inner, stride, step, kernel,
               end <= x_bytes ? qk_pool_round(count) : count, whole);
}

INLINE float clamp(float value, float least, float most)
{
    value = value > least ? value : least; /* also if it is NaN */
    return value < most ? value : most;
}

INLINE void finish_all(const struct qk_pool_average *average, const float *restrict sums,
                       float divisor, size_t count, uint8_t *restrict y)
{
    const float scale = average->y_scale;
    const float zero = average->y_zero;
    const float least = average->y_min;
    const float most = average->y_max;
    for (size_t i = 0; i < count; i++) {
        const float value = sums[i] / divisor / scale + zero;
        const float near = value < 0x1p31F ? value : least;
        y[i] = (uint8_t)qk_round_even_small(clamp(near, least, most));
    }
}

static void finish(const struct qk_pool_average *average, const float *sums, float divisor,
                   size_t count, uint8_t *y)
{
    uint8_t bytes[QK_POOL_ROUND];
    const size_t most = count % QK_POOL_ROUND;
    const size_t done = most < QK_POOL_ROUND / 8 ? count : count - most;
    finish_all(average, sums, divisor, done, y);
    if (done == count)
        return;
    finish_all(average, sums + done, divisor, QK_POOL_ROUND, bytes);
    memcpy(y + done, bytes, most);
}

/* ---- Global averages ----------------------------------------------------------------------- */

QK_WRAPS static uint32_t sum(const uint8_t *x, size_t count, uint8_t flip)
{
    uint32_t total = 0;
    for (size_t i = 0; i < count; i++)
        total += (uint8_t)(x[i] ^ flip);
    return total;
}

/* Columns that are summed together in words of 16 bits, and the most rows of bytes that do not
 * leave such a word. */
#define SUM_COLUMNS ((size_t)64)
#define SUM_COLUMNS_FEW ((size_t)16)
#define SUM_ROWS ((size_t)256)

/* Adds up to SUM_ROWS rows of `columns` columns to the sums. Four rows are added before the words
 * are stored, because a store and its load take longer than all additions. Inlined with a constant
 * number of columns. */
__attribute__((always_inline)) QK_WRAPS static inline void
add_rows(const uint8_t *restrict x, size_t rows, size_t pitch, uint8_t flip, const size_t columns,
         uint32_t *restrict sums)
{
    uint16_t words[SUM_COLUMNS] = {0};
    size_t row = 0;
    for (; row + 4 <= rows; row += 4, x += 4 * pitch)
        for (size_t i = 0; i < columns; i++)
            words[i] =
                (uint16_t)(words[i] + (uint8_t)(x[i] ^ flip) + (uint8_t)(x[pitch + i] ^ flip) +
                           (uint8_t)(x[2 * pitch + i] ^ flip) + (uint8_t)(x[3 * pitch + i] ^ flip));
    for (; row < rows; row++, x += pitch)
        for (size_t i = 0; i < columns; i++)
            words[i] = (uint16_t)(words[i] + (uint8_t)(x[i] ^ flip));
    for (size_t i = 0; i < columns; i++)
        sums[i] += words[i];
}

QK_WRAPS static void sum_rows(const uint8_t *restrict x, size_t rows, size_t pitch, uint8_t flip,
                              size_t count, uint32_t *restrict sums)
{
    memset(sums, 0, count * sizeof(*sums));
    for (size_t row = 0; row < rows; row += SUM_ROWS) {
        const uint8_t *from = x + row * pitch;
        const size_t some = rows - row < SUM_ROWS ? rows - row : SUM_ROWS;
        size_t i = 0;
        for (; i + SUM_COLUMNS <= count; i += SUM_COLUMNS)
            add_rows(from + i, some, pitch, flip, SUM_COLUMNS, sums + i);
        for (; i + SUM_COLUMNS_FEW <= count; i += SUM_COLUMNS_FEW)
            add_rows(from + i, some, pitch, flip, SUM_COLUMNS_FEW, sums + i);
        for (size_t k = 0; k < some && i < count; k++)
            for (size_t j = i; j < count; j++)
                sums[j] += (uint8_t)(from[k * pitch + j] ^ flip);
    }
}

QK_WRAPS static void requantize(const struct qk_pool_average *average,
                                const uint32_t *restrict sums, size_t count, uint8_t *restrict y)
{
    const float multiplier = average->multiplier;
    const float zero = average->y_zero;
    const float least = average->y_min - zero;
    const float most = average->y_max - zero;
    const uint32_t zeros = average->sum_of_zeros;
    for (size_t i = 0; i < count; i++) {
        const float value = (float)(int32_t)(sums[i] - zeros) * multiplier;
        y[i] = (uint8_t)(qk_round_even_small(clamp(value, least, most)) + (int32_t)zero);
    }
}

#ifdef QK_POOL_BYTES
#include "kernels/pool/plane_loops.h"
#define HAS_PLANES true
#else
#include "kernels/pool/plane_reference_loops.h"
#define HAS_PLANES false
#endif

void QK_POOL_INIT(struct qk_pool_kernels *kernels)
{
    *kernels = (struct qk_pool_kernels){
        .name = QK_POOL_NAME,
        .max_cycles = QK_POOL_MAX_CYCLES,
        .average_cycles = QK_POOL_AVERAGE_CYCLES,
        .sum_cycles = QK_POOL_SUM_CYCLES,
        .has_planes = HAS_PLANES,
        .max_rows = {max_rows_u8, max_rows_s8},
        .max_row = {max_row_u8, max_row_s8},
        .max_into = {max_into_u8, max_into_s8},
        .add_row = add_row,
        .finish = finish,
        .max_planes = {max_planes_u8, max_planes_s8},
        .average_planes = average_planes,
        .sum_planes = sum_planes,
        .sum_rows = sum_rows,
        .requantize = requantize,
    };
}

#endif
