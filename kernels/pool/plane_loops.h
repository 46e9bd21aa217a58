/* The kernels of planes, of each tier with vectors. The tier defines these before it includes
 * loops.h, which includes this file:
 *
 * - QK_POOL_BYTES, the bytes of a vector, and the type `byte_vector` with load_bytes, store_bytes,
 *   splat_bytes, max_bytes, min_bytes, and_bytes, xor_bytes, store_even (every other byte),
 *   store_pairs (the maxima of pairs of bytes)
 * - `sum_vector`, sums of a vector's bytes, with zero_sums, add_bytes, store_sums (of 4 planes)
 * - QK_POOL_FLOATS, the floats of a vector, at most as many as bytes, and the type `float_vector`
 * with load_floats, store_floats, splat_floats, widen (bytes to floats), widen_pairs
 *   (to those of the even and of the odd bytes), fused (a * b + c),
 *   negative_fused (c - a * b), max_floats, min_floats, store_low (the lowest byte of each float)
 *
 * direct_loops.h has the commonest maxima. For the others, the maximum of a window is that of its
 * columns' maxima. A kernel therefore writes the maxima of rows into scratch memory, padded with
 * the least number, and then reads it once for each tap along the row. Averages keep the order of
 * their additions. Only rows of x become floats once. */
#pragma once

/* Nothing here compiles without a tier's file around it. */
#ifdef QK_POOL_BYTES

#include <string.h>

#include "kernels/pool/kernels.h"
#include "kernels/wrap.h"

/* ---- What both have in common --------------------------------------------------------------- */

/* Marks a count of taps or a stride that is not known when this is compiled. */
#define ANY 0

INLINE size_t lesser(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Returns where a vector of `lanes` begins that follows the one at `i`. The last vector of a row
 * ends where the row ends, and overlaps the one before. */
INLINE size_t next_vector(size_t i, size_t lanes, size_t count)
{
    return lesser(i + lanes, count - lanes);
}

/* Returns how many of `rows` rows, `pitch` apart, may be read or written for `reach` elements each
 * if `room` elements follow where the first one begins. */
INLINE size_t rows_within(size_t rows, size_t pitch, size_t reach, size_t room)
{
    if (room >= (rows - 1) * pitch + reach)
        return rows;
    return room < reach ? 0 : (room - reach) / pitch + 1;
}

/* The first `count` of QK_POOL_BYTES bytes are 0xFF, and the others 0, from this address on:
 * first_bytes + QK_POOL_BYTES - count. */
static const uint8_t first_bytes[2 * QK_POOL_BYTES] = {
#define FF8 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF
    FF8,
    FF8,
#if QK_POOL_BYTES > 16
    FF8,
    FF8,
#endif
};

INLINE byte_vector mask_first(size_t count)
{
    return load_bytes(first_bytes + QK_POOL_BYTES - count);
}

/* The rows of y, of those of a band, whose taps are all inside x. */
struct whole_rows {
    size_t begin, end;
};

static struct whole_rows find_whole_rows(const struct qk_pool_axis *axis,
                                         const struct qk_pool_band *band)
{
    struct whole_rows rows = {band->begin, band->end};
    while (rows.begin < rows.end) {
        const struct qk_pool_taps taps = qk_pool_taps_of(axis, (int64_t)rows.begin);
        if (taps.end - taps.begin == axis->kernel)
            break;
        rows.begin++;
    }
    while (rows.begin < rows.end) {
        const struct qk_pool_taps taps = qk_pool_taps_of(axis, (int64_t)rows.end - 1);
        if (taps.end - taps.begin == axis->kernel)
            break;
        rows.end--;
    }
    return rows;
}

/* ---- Maxima -------------------------------------------------------------------------------- */

struct max_job {
    const struct qk_pool_planes *planes;
    const struct qk_pool_band *band;
    struct whole_rows whole;
    size_t count;             /* planes that lie in scratch memory at once */
    const uint8_t *x, *x_end; /* their first, and the end of all that may be read */
    uint8_t *y, *y_end;       /* their part of y, and the end of all of y */
    uint8_t *scratch;
    byte_vector limit; /* the largest number in the elements of a short row, then the least one */
};

/* Returns the maxima of rows shorter than a vector, behind which nothing may be read. */
static byte_vector max_of_copies(const uint8_t *x, size_t columns, size_t taps, size_t pitch,
                                 bool is_signed)
{
    uint8_t copy[QK_POOL_BYTES] = {0};
    byte_vector most = splat_bytes(is_signed ? 0x80 : 0);
    for (size_t k = 0; k < taps; k++) {
        memcpy(copy, x + k * pitch, columns);
        most = max_bytes(most, load_bytes(copy), is_signed);
    }
    return most;
}

/* Writes the maxima of `taps` rows of x for each of `rows` rows, vector by vector: down the rows,
 * where the loop has the least to do. Windows that step by one row keep three rows in registers.
 * Short rows, which may be read as vectors, get padding behind them. */
INLINE void max_down(const struct max_job *job, const uint8_t *x, size_t taps, size_t rows,
                     uint8_t *to, bool is_short, bool is_signed)
{
    const size_t columns = (size_t)job->planes->column.in;
    const size_t tap_pitch = (size_t)job->planes->row.dilation * columns;
    const size_t x_pitch = (size_t)job->planes->row.stride * columns;
    const size_t pitch = job->planes->pitch;
    const byte_vector limit = job->limit;
    for (size_t i = 0;; i = next_vector(i, QK_POOL_BYTES, columns)) {
        const uint8_t *from = x + i;
        uint8_t *at = to + i;
        byte_vector before = load_bytes(from);
        byte_vector last = load_bytes(taps == 3 ? from + tap_pitch : from);
        if (taps == 3 && tap_pitch == x_pitch)
            for (size_t row = 0; row < rows; row++, from += x_pitch, at += pitch) {
                const byte_vector next = load_bytes(from + 2 * tap_pitch);
                const byte_vector most =
                    max_bytes(max_bytes(before, last, is_signed), next, is_signed);
                store_bytes(at, is_short ? min_bytes(most, limit, is_signed) : most);
                before = last;
                last = next;
            }
        else
            for (size_t row = 0; row < rows; row++, from += x_pitch, at += pitch) {
                byte_vector most = load_bytes(from);
                for (size_t k = 1; k < taps; k++)
                    most = max_bytes(most, load_bytes(from + k * tap_pitch), is_signed);
                store_bytes(at, is_short ? min_bytes(most, limit, is_signed) : most);
            }
        if (columns - i <= QK_POOL_BYTES)
            return;
    }
}

/* Does the same for rows of which some may be shorter than a vector and at the end of x. */
INLINE void max_down_safely(const struct max_job *job, const uint8_t *x, size_t taps, size_t rows,
                            uint8_t *to, bool is_signed)
{
    const size_t columns = (size_t)job->planes->column.in;
    const size_t tap_pitch = (size_t)job->planes->row.dilation * columns;
    const size_t x_pitch = (size_t)job->planes->row.stride * columns;
    const size_t most = rows_within(rows, x_pitch, (taps - 1) * tap_pitch + QK_POOL_BYTES,
                                    (size_t)(job->x_end - x));
    if (columns >= QK_POOL_BYTES)
        max_down(job, x, taps, rows, to, false, is_signed);
    else if (most > 0)
        max_down(job, x, taps, most, to, true, is_signed);
    for (size_t row = most; row < rows; row++) {
        const byte_vector found =
            max_of_copies(x + row * x_pitch, columns, taps, tap_pitch, is_signed);
        store_bytes(to + row * job->planes->pitch, min_bytes(found, job->limit, is_signed));
    }
}

/* Writes the maxima of row `number` of y, which has some taps outside its plane x. */
static void max_edge_down(const struct max_job *job, const uint8_t *x, size_t number, uint8_t *to,
                          bool is_signed)
{
    const struct qk_pool_axis *axis = &job->planes->row;
    const size_t columns = (size_t)job->planes->column.in;
    const struct qk_pool_taps taps = qk_pool_taps_of(axis, (int64_t)number);
    const int64_t row = (int64_t)number * axis->stride - axis->pad + taps.begin * axis->dilation;
    if (taps.begin < taps.end)
        max_down_safely(job, x + (size_t)row * columns, (size_t)(taps.end - taps.begin), 1, to,
                        is_signed);
    else
        memset(to, is_signed ? 0x80 : 0, columns);
}

/* Writes the maxima of each row of the band into scratch memory. Of several planes, rows between
 * the first and the last whole one are computed in one loop, as if the planes were one. Then come
 * the rows with taps outside their plane, once more. */
INLINE void max_rows_down(const struct max_job *job, size_t kernel, bool is_signed)
{
    const struct qk_pool_axis *axis = &job->planes->row;
    const size_t columns = (size_t)job->planes->column.in;
    const size_t in = (size_t)axis->in * columns;
    const size_t pitch = job->planes->pitch;
    const struct qk_pool_band *band = job->band;
    const size_t begin = job->whole.begin;
    const size_t end = job->whole.end;
    uint8_t *to = job->scratch + job->planes->lead;
    if (begin < end) {
        const int64_t row = (int64_t)begin * axis->stride - axis->pad;
        const size_t rows = (job->count - 1) * (size_t)axis->out + end - begin;
        max_down_safely(job, job->x + (size_t)row * columns,
                        kernel == ANY ? (size_t)axis->kernel : kernel, rows,
                        to + (begin - band->begin) * pitch, is_signed);
    }
    for (size_t plane = 0; plane < job->count; plane++, to += (band->end - band->begin) * pitch) {
        const uint8_t *x = job->x + plane * in;
        for (size_t i = band->begin; i < begin; i++)
            max_edge_down(job, x, i, to + (i - band->begin) * pitch, is_signed);
        for (size_t i = end; i < band->end; i++)
            max_edge_down(job, x, i, to + (i - band->begin) * pitch, is_signed);
    }
}

/* Writes every stride-th byte of `most` to y: `lanes` of them. */
INLINE void store_strided(uint8_t *y, byte_vector most, size_t stride, size_t lanes)
{
    uint8_t all[QK_POOL_BYTES];
    if (stride == 1) {
        store_bytes(y, most);
    } else if (stride == 2) {
        store_even(y, most);
    } else {
        store_bytes(all, most);
        for (size_t i = 0; i < lanes; i++)
            y[i] = all[i * stride];
    }
}

/* Writes the maxima along `rows` rows in scratch memory to y, whole vectors of `lanes` elements.
 * What is written behind a shorter row is written again, with the next row. */
INLINE void max_across(const struct qk_pool_planes *planes, const uint8_t *scratch, size_t rows,
                       size_t kernel, size_t stride, size_t lanes, uint8_t *y, bool is_signed)
{
    const struct qk_pool_axis *axis = &planes->column;
    const size_t taps = kernel == ANY ? (size_t)axis->kernel : kernel;
    const size_t columns = (size_t)axis->out;
    const size_t step = (size_t)axis->dilation;
    const size_t pitch = planes->pitch;
    for (size_t i = 0;; i = next_vector(i, lanes, columns)) {
        const uint8_t *from = scratch + i * stride;
        uint8_t *to = y + i;
        for (size_t row = 0; row < rows; row++, from += pitch, to += columns) {
            byte_vector most = load_bytes(from);
            for (size_t k = 1; k < taps; k++)
                most = max_bytes(most, load_bytes(from + k * step), is_signed);
            store_strided(to, most, stride, lanes);
        }
        if (columns - i <= lanes)
            return;
    }
}

/* Writes the maxima along all rows in scratch memory to y. */
INLINE void max_rows_across(const struct max_job *job, size_t kernel, size_t known_stride,
                            bool is_signed)
{
    const struct qk_pool_planes *planes = job->planes;
    const struct qk_pool_axis *axis = &planes->column;
    const size_t stride = known_stride == ANY ? (size_t)axis->stride : known_stride;
    const size_t lanes = (QK_POOL_BYTES - 1) / stride + 1;
    const size_t columns = (size_t)axis->out;
    const uint8_t *from = job->scratch + (axis->pad < 0 ? (size_t)-axis->pad : 0);
    const size_t rows = job->count * (job->band->end - job->band->begin);
    const size_t most = rows_within(rows, columns, lanes, (size_t)(job->y_end - job->y));
    if (most > 0)
        max_across(planes, from, most, kernel, stride, lanes, job->y, is_signed);
    for (size_t i = most; i < rows; i++) {
        uint8_t all[QK_POOL_BYTES];
        max_across(planes, from + i * planes->pitch, 1, kernel, stride, lanes, all, is_signed);
        memcpy(job->y + i * columns, all, columns);
    }
}

INLINE void max_all_down(const struct max_job *job, bool is_signed)
{
    if (job->planes->row.kernel == 2)
        max_rows_down(job, 2, is_signed);
    else if (job->planes->row.kernel == 3)
        max_rows_down(job, 3, is_signed);
    else
        max_rows_down(job, ANY, is_signed);
}

INLINE void max_across_by(const struct max_job *job, size_t stride, bool is_signed)
{
    if (job->planes->column.kernel == 2)
        max_rows_across(job, 2, stride, is_signed);
    else if (job->planes->column.kernel == 3)
        max_rows_across(job, 3, stride, is_signed);
    else
        max_rows_across(job, ANY, stride, is_signed);
}

INLINE void max_all_across(const struct max_job *job, bool is_signed)
{
    if (job->planes->column.stride == 1)
        max_across_by(job, 1, is_signed);
    else if (job->planes->column.stride == 2)
        max_across_by(job, 2, is_signed);
    else
        max_across_by(job, ANY, is_signed);
}

#include "kernels/pool/direct_loops.h"

/* Returns how many planes may lie in scratch memory at once. Only planes of which each has as many
 * rows as its windows step over may be computed as one. */
INLINE size_t planes_at_once(const struct qk_pool_planes *planes, const struct qk_pool_band *band,
                             const struct whole_rows *whole)
{
    const struct qk_pool_axis *axis = &planes->row;
    const bool adjoin = axis->in == axis->out * axis->stride && whole->begin < whole->end;
    return band->count > 1 && adjoin ? lesser(planes->rows / (size_t)axis->out, band->count) : 1;
}

/* Computes planes [first, end) of the band. */
INLINE void max_by_scratch(const struct qk_pool_planes *planes, const struct qk_pool_band *band,
                           size_t first, size_t end, uint8_t *scratch, bool is_signed)
{
    const size_t columns = (size_t)planes->column.in;
    const size_t in = (size_t)planes->row.in * columns;
    const size_t rows = band->end - band->begin;
    const size_t out = rows * (size_t)planes->column.out;
    const byte_vector least = splat_bytes(is_signed ? 0x80 : 0);
    struct max_job job = {
        .planes = planes,
        .band = band,
        .whole = find_whole_rows(&planes->row, band),
        .x = band->x + first * in,
        .x_end = band->x + band->x_bytes,
        .y = band->y + first * out,
        .y_end = band->y + end * out,
        .scratch = scratch,
        /* 0x7F or 0xFF, then 0x80 or 0 */
        .limit = xor_bytes(mask_first(lesser(columns, QK_POOL_BYTES)), least),
    };
    const size_t most = planes_at_once(planes, band, &job.whole);
    memset(scratch, is_signed ? 0x80 : 0, most * rows * planes->pitch);
    for (size_t i = first; i < end; i += job.count) {
        job.count = lesser(most, end - i);
        max_all_down(&job, is_signed);
        max_all_across(&job, is_signed);
        job.x += job.count * in;
        job.y += job.count * out;
    }
}

static APART void max_by_scratch_u8(const struct qk_pool_planes *planes,
                                    const struct qk_pool_band *band, size_t first, size_t end,
                                    uint8_t *scratch)
{
    max_by_scratch(planes, band, first, end, scratch, false);
}

static APART void max_by_scratch_s8(const struct qk_pool_planes *planes,
                                    const struct qk_pool_band *band, size_t first, size_t end,
                                    uint8_t *scratch)
{
    max_by_scratch(planes, band, first, end, scratch, true);
}

/* The direct kernels may leave the last rows of a plane. Scratch memory then computes the whole
 * plane once more. */
INLINE void max_planes(const struct qk_pool_planes *planes, const struct qk_pool_band *band,
                       uint8_t *scratch, bool is_signed)
{
    size_t first = 0;
    size_t end = 0; /* planes [first, end) are done */
    if (has_threes(planes))
        max_band_of_threes(planes, band, &first, &end, is_signed);
    else if (has_squares(planes))
        end = max_band_of_squares(planes, band, is_signed) / (band->end - band->begin);
    if (first > 0)
        (is_signed ? max_by_scratch_s8 : max_by_scratch_u8)(planes, band, 0,
                                                            lesser(first, band->count), scratch);
    if (end < band->count)
        (is_signed ? max_by_scratch_s8 : max_by_scratch_u8)(planes, band, end, band->count,
                                                            scratch);
}

static void max_planes_u8(const struct qk_pool_planes *planes, const struct qk_pool_band *band,
                          uint8_t *scratch)
{
    max_planes(planes, band, scratch, false);
}

static void max_planes_s8(const struct qk_pool_planes *planes, const struct qk_pool_band *band,
                          uint8_t *scratch)
{
    max_planes(planes, band, scratch, true);
}

/* ---- Averages ------------------------------------------------------------------------------ */

struct average_job {
    const struct qk_pool_planes *planes;
    const struct qk_pool_average *average;
    const struct qk_pool_band *band;
    struct whole_rows whole;
    const uint8_t *x, *x_end;
    uint8_t *y, *y_end;
    const float *counts; /* of each position: the number of columns inside x; or the divisor */
    float *rows;         /* the rows of x as floats, with zeros around */
    size_t first;        /* the row of x that lies there first */
    size_t taps[QK_POOL_KERNEL_MAX]; /* where each tap of the first position lies in a row */
    float factor; /* 1 / the number of elements of each window, if that is exact; else 0 */
};

/* x_scale * (x - x_zero) of a vector's elements. */
INLINE float_vector dequantize_vector(const struct qk_pool_average *average, const uint8_t *x)
{
    return splat_floats(average->x_scale) * widen(x, average->flip, average->x_zero);
}

INLINE void dequantize_some(const struct qk_pool_average *average, const uint8_t *x, size_t stride,
                            size_t count, float *to)
{
    for (size_t i = 0; i < count; i++)
        to[i] = dequantize(x[i * stride], average->flip, average->x_zero, average->x_scale);
}

/* Turns a row of x into floats. A short row is read as a vector, and zeros are written behind it.
 */
INLINE void dequantize_row(const struct average_job *job, const uint8_t *x, float *to)
{
    const size_t columns = (size_t)job->planes->column.in;
    uint8_t copy[QK_POOL_FLOATS];
    to += job->planes->lead;
    if (columns < QK_POOL_FLOATS) {
        if ((size_t)(job->x_end - x) < QK_POOL_FLOATS)
            x = memcpy(copy, x, columns);
        store_floats(to, dequantize_vector(job->average, x));
        store_floats(to + columns, splat_floats(0));
        return;
    }
    for (size_t i = 0;; i = next_vector(i, QK_POOL_FLOATS, columns)) {
        store_floats(to + i, dequantize_vector(job->average, x + i));
        if (columns - i <= QK_POOL_FLOATS)
            return;
    }
}

/* The same of windows with a stride of 2: a phase for every other column. */
INLINE void dequantize_pairs(const struct average_job *job, const uint8_t *x, float *to)
{
    const struct qk_pool_planes *planes = job->planes;
    const size_t columns = (size_t)planes->column.in;
    const size_t pairs = columns / 2;
    const size_t lead = planes->lead;
    float *even = to + lead % 2 * planes->phase + lead / 2;
    float *odd = to + (lead + 1) % 2 * planes->phase + (lead + 1) / 2;
    if (pairs < QK_POOL_FLOATS) {
        dequantize_some(job->average, x, 2, columns - pairs, even);
        dequantize_some(job->average, x + 1, 2, pairs, odd);
        return;
    }
    if (columns % 2 != 0)
        dequantize_some(job->average, x + columns - 1, 1, 1, even + pairs);
    const float_vector scale = splat_floats(job->average->x_scale);
    for (size_t i = 0;; i = next_vector(i, QK_POOL_FLOATS, pairs)) {
        float_vector a;
        float_vector b;
        widen_pairs(x + 2 * i, job->average->flip, job->average->x_zero, &a, &b);
        store_floats(even + i, scale * a);
        store_floats(odd + i, scale * b);
        if (pairs - i <= QK_POOL_FLOATS)
            return;
    }
}

/* The same with any stride: neighbours in a phase are `stride` columns of x apart. */
static void dequantize_phases(const struct average_job *job, const uint8_t *x, float *to)
{
    const size_t columns = (size_t)job->planes->column.in;
    const size_t stride = (size_t)job->planes->column.stride;
    const size_t lead = job->planes->lead;
    for (size_t phase = 0; phase < stride; phase++, to += job->planes->phase) {
        const size_t skipped = phase < lead ? (lead - phase - 1) / stride + 1 : 0;
        const size_t column = skipped * stride + phase - lead;
        if (column < columns)
            dequantize_some(job->average, x + column, stride, (columns - column - 1) / stride + 1,
                            to + skipped);
    }
}

/* Turns all rows of x that the band reads into floats. */
static void dequantize_rows(struct average_job *job)
{
    const struct qk_pool_axis *axis = &job->planes->row;
    const size_t columns = (size_t)job->planes->column.in;
    int64_t row = (int64_t)job->band->begin * axis->stride - axis->pad;
    int64_t end = (int64_t)(job->band->end - 1) * axis->stride - axis->pad +
                  (axis->kernel - 1) * axis->dilation + 1;
    row = row < 0 ? 0 : row;
    end = end < axis->in ? end : axis->in;
    job->first = (size_t)row;
    float *to = job->rows;
    for (; row < end; row++, to += job->planes->pitch)
        if (job->planes->column.stride == 1)
            dequantize_row(job, job->x + (size_t)row * columns, to);
        else if (job->planes->column.stride == 2)
            dequantize_pairs(job, job->x + (size_t)row * columns, to);
        else
            dequantize_phases(job, job->x + (size_t)row * columns, to);
}

/* Returns a / b, rounded once, from 1 / b, rounded once. The second quotient is within one unit in
 * its last place, so its remainder is exact and the third quotient is right (Markstein's theorem).
 * This takes less time than a division. */
INLINE float_vector divide(float_vector a, float_vector b, float_vector reciprocal)
{
    float_vector q = a * reciprocal;
    q = fused(negative_fused(b, q, a), reciprocal, q);
    return fused(negative_fused(b, q, a), reciprocal, q);
}

/* What all elements of a vector of averages have in common. */
struct finish {
    float_vector scale, reciprocal, zero, least, most;
    float_vector counts; /* the number of elements of each window, if `factor` is 0 */
    float_vector factor;
    bool multiplies; /* by `factor` */
};

INLINE struct finish make_finish(const struct average_job *job, size_t i, size_t rows)
{
    const struct qk_pool_average *average = job->average;
    return (struct finish){
        .scale = splat_floats(average->y_scale),
        .reciprocal = splat_floats(average->y_reciprocal),
        .zero = splat_floats(average->y_zero),
        .least = splat_floats(average->y_min),
        .most = splat_floats(average->y_max),
        .counts = load_floats(job->counts + i) *
                  splat_floats(job->planes->divisor > 0 ? 1.0F : (float)rows),
        .factor = splat_floats(job->factor),
        .multiplies = job->factor > 0,
    };
}

/* Writes y from sums. Adding 1.5 * 2^23 leaves the integer in the lowest bits. */
INLINE void finish_vector(const struct finish *finish, float_vector sum, uint8_t *y)
{
    const float_vector mean = finish->multiplies ? sum * finish->factor : sum / finish->counts;
    float_vector value = divide(mean, finish->scale, finish->reciprocal) + finish->zero;
    value = min_floats(max_floats(value, finish->least), finish->most);
    store_low(y, value + splat_floats(0x1.8p23F));
}

/* Writes `rows` rows of y, vector by vector: down the rows. Their windows have `row_taps` rows
 * inside x. */
INLINE void average_down(const struct average_job *job, const float *x, size_t rows,
                         size_t row_taps, size_t known_taps, uint8_t *y)
{
    const struct qk_pool_planes *planes = job->planes;
    const size_t taps = known_taps == ANY ? (size_t)planes->column.kernel : known_taps;
    const size_t columns = (size_t)planes->column.out;
    const size_t tap_pitch = planes->pitch * (size_t)planes->row.dilation;
    const size_t pitch = planes->pitch * (size_t)planes->row.stride;
    size_t at[QK_POOL_KERNEL_MAX];
    memcpy(at, job->taps, taps * sizeof(at[0]));
    for (size_t i = 0;; i = next_vector(i, QK_POOL_FLOATS, columns)) {
        const struct finish finish = make_finish(job, i, row_taps);
        const float *from = x + i;
        uint8_t *to = y + i;
        for (size_t row = 0; row < rows; row++, from += pitch, to += columns) {
            float_vector sum = splat_floats(0);
            for (size_t j = 0; j < row_taps; j++)
                for (size_t k = 0; k < taps; k++)
                    sum += load_floats(from + j * tap_pitch + at[k]);
            finish_vector(&finish, sum, to);
        }
        if (columns - i <= QK_POOL_FLOATS)
            return;
    }
}

/* Does the same where y may have no room for whole vectors. */
INLINE void average_down_safely(const struct average_job *job, const float *x, size_t rows,
                                size_t row_taps, size_t known_taps, uint8_t *y)
{
    const size_t columns = (size_t)job->planes->column.out;
    const size_t most = rows_within(rows, columns, QK_POOL_FLOATS, (size_t)(job->y_end - y));
    if (most > 0)
        average_down(job, x, most, row_taps, known_taps, y);
    const size_t pitch = job->planes->pitch * (size_t)job->planes->row.stride;
    for (size_t i = most; i < rows; i++) {
        uint8_t all[QK_POOL_FLOATS];
        average_down(job, x + i * pitch, 1, row_taps, known_taps, all);
        memcpy(y + i * columns, all, columns);
    }
}

/* Writes a row of y whose windows have some taps outside x. */
static void average_edge(const struct average_job *job, size_t number, uint8_t *y)
{
    const struct qk_pool_axis *axis = &job->planes->row;
    const struct qk_pool_taps taps = qk_pool_taps_of(axis, (int64_t)number);
    const int64_t row = (int64_t)number * axis->stride - axis->pad + taps.begin * axis->dilation;
    const size_t at = taps.begin < taps.end ? (size_t)row - job->first : 0;
    average_down_safely(job, job->rows + at * job->planes->pitch, 1,
                        (size_t)(taps.end - taps.begin), ANY, y);
}

INLINE void average_rows(const struct average_job *job, size_t known_rows, size_t known_taps)
{
    const struct qk_pool_axis *axis = &job->planes->row;
    const struct whole_rows *whole = &job->whole;
    const size_t columns = (size_t)job->planes->column.out;
    uint8_t *y = job->y;
    for (size_t i = job->band->begin; i < whole->begin; i++, y += columns)
        average_edge(job, i, y);
    const size_t row = whole->begin * (size_t)axis->stride - (size_t)axis->pad - job->first;
    const size_t rows = whole->end - whole->begin;
    if (rows > 0)
        average_down_safely(job, job->rows + row * job->planes->pitch, rows,
                            known_rows == ANY ? (size_t)axis->kernel : known_rows, known_taps, y);
    y += rows * columns;
    for (size_t i = whole->end; i < job->band->end; i++, y += columns)
        average_edge(job, i, y);
}

/* Fills what does not depend on the plane. `counts` lies before the rows. */
static void start_averages(struct average_job *job, float *scratch)
{
    const struct qk_pool_planes *planes = job->planes;
    const struct qk_pool_axis *axis = &planes->column;
    const size_t columns = (size_t)axis->out;
    const size_t rows = planes->scratch / sizeof(float) - qk_pool_round(columns) - QK_POOL_ROUND;
    float *counts = scratch;
    bool same = planes->divisor > 0 ||
                job->whole.end - job->whole.begin == job->band->end - job->band->begin;
    for (size_t i = 0; i < columns; i++) {
        const struct qk_pool_taps taps = qk_pool_taps_of(axis, (int64_t)i);
        counts[i] = planes->divisor > 0 ? planes->divisor : (float)(taps.end - taps.begin);
        same = same && counts[i] == counts[0];
    }
    for (size_t i = columns; i < columns + QK_POOL_FLOATS; i++)
        counts[i] = 1;
    const float count = counts[0] * (planes->divisor > 0 ? 1.0F : (float)planes->row.kernel);
    const float factor = 1 / count;
    uint32_t bits;
    memcpy(&bits, &factor, sizeof(bits));
    job->factor = same && (bits & 0x7FFFFF) == 0 && factor <= 1 ? factor : 0;
    job->counts = counts;
    job->rows = scratch + qk_pool_round(columns) + QK_POOL_ROUND;
    memset(job->rows, 0, rows * sizeof(float));
    for (size_t k = 0; k < (size_t)axis->kernel; k++) {
        const size_t at = (axis->pad < 0 ? (size_t)-axis->pad : 0) + k * (size_t)axis->dilation;
        const size_t stride = (size_t)axis->stride;
        job->taps[k] = at % stride * planes->phase + at / stride;
    }
}

static void average_planes(const struct qk_pool_planes *planes,
                           const struct qk_pool_average *average, const struct qk_pool_band *band,
                           float *scratch)
{
    const size_t in = (size_t)planes->row.in * (size_t)planes->column.in;
    const size_t out = (band->end - band->begin) * (size_t)planes->column.out;
    struct average_job job = {
        .planes = planes,
        .average = average,
        .band = band,
        .whole = find_whole_rows(&planes->row, band),
        .x = band->x,
        .x_end = band->x + band->x_bytes,
        .y = band->y,
        .y_end = band->y + band->count * out,
    };
    start_averages(&job, scratch);
    const int64_t rows = planes->row.kernel;
    const int64_t taps = planes->column.kernel;
    for (size_t i = 0; i < band->count; i++, job.x += in, job.y += out) {
        dequantize_rows(&job);
        if (rows == 2 && taps == 2)
            average_rows(&job, 2, 2);
        else if (rows == 3 && taps == 3)
            average_rows(&job, 3, 3);
        else
            average_rows(&job, ANY, ANY);
    }
}

/* ---- Global averages ----------------------------------------------------------------------- */

#ifndef QK_POOL_HAS_SUM_FOURS
/* Adds the bytes of one plane, whose last `rest` bytes fill no vector. A plane shorter than a
 * vector is read as one. */
INLINE sum_vector sum_plane(const uint8_t *x, size_t size, size_t rest, byte_vector mask,
                            uint8_t flip)
{
    sum_vector total = zero_sums();
    const byte_vector flips = splat_bytes(flip);
    for (size_t i = 0; i + QK_POOL_BYTES <= size; i += QK_POOL_BYTES)
        total = add_bytes(total, flip ? xor_bytes(load_bytes(x + i), flips) : load_bytes(x + i));
    if (rest == 0)
        return total;
    const uint8_t *last = size < QK_POOL_BYTES ? x : x + size - QK_POOL_BYTES;
    const byte_vector ends = flip ? xor_bytes(load_bytes(last), flips) : load_bytes(last);
    return add_bytes(total, and_bytes(ends, mask));
}

/* Does `count` planes, and returns how many it did: planes in fours, where vectors may be read. */
INLINE size_t sum_fours(const uint8_t *x, size_t x_bytes, size_t count, size_t size, uint8_t flip,
                        uint32_t *totals)
{
    const size_t rest = size % QK_POOL_BYTES;
    const byte_vector first = mask_first(size < QK_POOL_BYTES ? rest : QK_POOL_BYTES - rest);
    const byte_vector mask = size < QK_POOL_BYTES ? first : xor_bytes(first, splat_bytes(0xFF));
    const size_t beyond = size < QK_POOL_BYTES ? QK_POOL_BYTES - size : 0;
    size_t i = 0;
    for (; i + 4 <= count && (i + 4) * size + beyond <= x_bytes; i += 4, x += 4 * size)
        store_sums(totals + i, sum_plane(x, size, rest, mask, flip),
                   sum_plane(x + size, size, rest, mask, flip),
                   sum_plane(x + 2 * size, size, rest, mask, flip),
                   sum_plane(x + 3 * size, size, rest, mask, flip));
    return i;
}
#endif

static void sum_planes(const uint8_t *x, size_t x_bytes, size_t count, size_t size, uint8_t flip,
                       uint32_t *totals)
{
    size_t i = flip ? sum_fours(x, x_bytes, count, size, 0x80, totals)
                    : sum_fours(x, x_bytes, count, size, 0, totals);
    for (; i < count; i++)
        totals[i] = sum(x + i * size, size, flip);
}

#endif
