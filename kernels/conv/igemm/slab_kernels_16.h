/* The loops of slab kernels (slab_kernels.h) that take 16 elements of a source at a time. Only for
 * slab_kernels_avx2.c and slab_kernels_neon.c, which define these names before they include this
 * file:
 *
 * - CHUNK: 16;
 * - bytes_16: a vector of 16 bytes; load_16, store_16 and splat_16 for it;
 * - range_16: a mask of bytes [begin, end);
 * - select_16: the bytes of `yes` where the mask is set, and the bytes of `no` elsewhere;
 * - evens_16: every second one of 32 bytes in two vectors, beginning with the first;
 * - struct sources: 16 elements of each source, which are the terms of 16 quads;
 * - struct form: what a quad holds, with `terms`, the number of its terms; form_for makes one;
 * - load_halves: loads the two halves of a vector from two addresses;
 * - store_halves: stores the first 8 quads at one address, and the last 8 at another;
 * - store_quads: stores the first `count` of 16 quads. */
#pragma once

#ifdef CHUNK

#include <string.h>

#include "kernels/sizes.h"

/* ---- Fill -------------------------------------------------------------------------------- */

/* A chunk is 16 columns of a source's window. These are its properties that all rows share. */
struct chunk {
    int64_t stride;
    size_t begin, end; /* which of the 16 columns are inside the plane */
    int64_t first;     /* bytes from job->x to its first element, in the first row inside the plane;
                          may be outside x */
    bytes_16 inside;   /* `begin` and `end` as a mask */
    bytes_16 fill;
};

static struct chunk chunk_for(const struct qk_slab_fill *job, size_t k, size_t at)
{
    const struct qk_window *window = job->windows[k];
    const struct qk_window_range inside = window->inside_columns;
    const int64_t row = window->row_first + (int64_t)window->inside_rows.begin * window->row_stride;
    const int64_t column = window->column_first + (int64_t)at * window->column_stride;
    struct chunk chunk = {.stride = window->column_stride,
                          .begin = qk_size_min(qk_size_max(inside.begin, at) - at, CHUNK),
                          .end = qk_size_min(qk_size_max(inside.end, at) - at, CHUNK),
                          .first = job->planes[k] - job->x + row * window->in_columns + column,
                          .fill = splat_16((uint8_t)job->x_zero_point)};
    chunk.inside = range_16(chunk.begin, chunk.end);
    return chunk;
}

/* Loads the elements of a chunk one by one. Used for wide strides, and near the ends of x, because
 * a whole vector would read outside it. `offset` is that of the row from the first row, in bytes.
 */
static bytes_16 load_elements(const struct qk_slab_fill *job, const struct chunk *chunk,
                              int64_t offset)
{
    uint8_t bytes[CHUNK];
    store_16(bytes, chunk->fill);
    for (size_t i = chunk->begin; i < chunk->end; i++)
        bytes[i] = job->x[chunk->first + offset + (int64_t)i * chunk->stride];
    return load_16(bytes);
}

/* Returns how many chunks from column `at` on have all their elements inside the plane, for every
 * source. */
static size_t count_whole(const struct qk_slab_fill *job, size_t terms, size_t at)
{
    size_t count = SIZE_MAX;
    for (size_t k = 0; k < terms; k++) {
        const struct qk_window_range inside = job->windows[k]->inside_columns;
        if (inside.begin > at || inside.end <= at)
            return 0;
        count = qk_size_min(count, (inside.end - at) / CHUNK);
    }
    return count;
}

/* Returns the column at which the chunk for column `at` should begin. If the last chunk is not
 * full, it begins earlier, so that it ends with the columns. This makes some quads twice, which
 * takes less time than making the last few quads by themselves, unless elements are loaded one by
 * one. */
static size_t end_with_columns(const struct qk_slab_fill *job, size_t terms, size_t at)
{
    const size_t columns = job->windows[0]->columns;
    if (columns < CHUNK || columns - at >= CHUNK ||
        (job->windows[0]->column_stride > 2 && count_whole(job, terms, columns - CHUNK) == 0))
        return at;
    return columns - CHUNK;
}

/* Fills the first `count` quads of a chunk in `rows` rows. Rows of x are `step` bytes apart, and
 * elements `stride` bytes, which is 1 or 2. All vectors that are read must lie inside x. `first`
 * points at the elements of the first row, for each source. `padded`: some elements are padding.
 * Otherwise all 16 quads are written. */
__attribute__((always_inline)) static inline void
fill_rows(const struct form *form, const struct chunk chunk[4], const uint8_t *const first[4],
          size_t count, size_t rows, int64_t step, uint8_t *to, size_t to_step,
          const int64_t stride, const bool padded)
{
    const struct form mine = *form; /* this copy cannot alias the quads, so it stays in registers */
    const bytes_16 fill = chunk[0].fill;
    const uint8_t *from[4];
    bytes_16 inside[4];
#pragma GCC unroll 4
    for (size_t k = 0; k < form->terms; k++) {
        from[k] = first[k];
        inside[k] = chunk[k].inside;
    }
    for (size_t i = 0; i < rows; i++, to += to_step) {
        struct sources sources;
#pragma GCC unroll 4
        for (size_t k = 0; k < form->terms; k++) {
            const uint8_t *row = from[k] + (int64_t)i * step;
            bytes_16 bytes = load_16(row);
            if (stride == 2)
                bytes = evens_16(bytes, load_16(row + CHUNK));
            sources.bytes[k] = padded ? select_16(inside[k], bytes, fill) : bytes;
        }
        store_quads(&mine, &sources, padded ? count : CHUNK, to);
    }
}

/* Returns the range of a chunk's `rows` rows for which whole vectors lie inside x. With a stride of
 * 2, vectors reach one element beyond the chunk's last one. `plane` is where the slab's planes
 * begin, from those of the first slab on. */
static inline struct qk_window_range find_readable(const struct qk_slab_fill *job, size_t terms,
                                                   const struct chunk chunk[4], size_t plane,
                                                   size_t rows, int64_t step)
{
    int64_t least = chunk[0].first, most = least;
    for (size_t k = 1; k < terms; k++) {
        least = chunk[k].first < least ? chunk[k].first : least;
        most = chunk[k].first > most ? chunk[k].first : most;
    }
    least += (int64_t)plane;
    most += (int64_t)plane + chunk[0].stride * CHUNK - (int64_t)job->x_bytes;
    struct qk_window_range range = {0, rows};
    while (range.begin < range.end && least + (int64_t)range.begin * step < 0)
        range.begin++;
    while (range.begin < range.end && most + (int64_t)(range.end - 1) * step > 0)
        range.end--;
    return range;
}

/* Returns true if `count` columns from column `at` on are inside the plane, for every source. */
static bool look_inside(const struct qk_slab_fill *job, size_t terms, size_t at, size_t count)
{
    for (size_t k = 0; k < terms; k++) {
        const struct qk_window_range inside = job->windows[k]->inside_columns;
        if (inside.begin > at || inside.end < at + count)
            return false;
    }
    return true;
}

/* Fills a chunk in some rows: with whole vectors, or word by word for strides above 2. The words
 * must be inside the plane. */
__attribute__((always_inline)) static inline void
fill_fast(const struct qk_slab_fill *job, const struct form *form, const struct chunk chunk[4],
          const uint8_t *const first[4], size_t count, size_t rows, int64_t step, uint8_t *to,
          size_t to_step, bool padded)
{
    const int64_t stride = chunk[0].stride;
    if (stride > 2)
        for (size_t i = 0; i < rows; i++, to += to_step)
            qk_slab_copy_words(first[0] + (int64_t)i * step, stride, count, job->flip, to);
    else if (stride == 1 && padded)
        fill_rows(form, chunk, first, count, rows, step, to, to_step, 1, true);
    else if (stride == 1)
        fill_rows(form, chunk, first, count, rows, step, to, to_step, 1, false);
    else if (padded)
        fill_rows(form, chunk, first, count, rows, step, to, to_step, 2, true);
    else
        fill_rows(form, chunk, first, count, rows, step, to, to_step, 2, false);
}

/* Fills a chunk in the given rows, element by element, because whole vectors would read outside x.
 */
__attribute__((always_inline)) static inline void
fill_slowly(const struct qk_slab_fill *job, const struct form *form, const struct chunk chunk[4],
            size_t plane, size_t count, int64_t step, struct qk_window_range rows, uint8_t *to,
            size_t to_step)
{
    to += rows.begin * to_step;
    for (size_t i = rows.begin; i < rows.end; i++, to += to_step) {
        struct sources sources;
        for (size_t k = 0; k < form->terms; k++)
            sources.bytes[k] = load_elements(job, &chunk[k], (int64_t)plane + (int64_t)i * step);
        store_quads(form, &sources, count, to);
    }
}

/* Returns true if there is a single row, all of it inside the plane, that fill_line can fill. */
static bool is_line(const struct qk_slab_fill *job, size_t terms)
{
    const struct qk_window *window = job->windows[0];
    return window->inside_rows.end - window->inside_rows.begin == 1 && window->column_stride == 1 &&
           window->columns >= CHUNK / 2 && look_inside(job, terms, 0, window->columns);
}

/* Fills such a row in all slabs. The last vector begins earlier if it would not be full, and then
 * makes some quads twice. If the row is shorter than a vector, the halves of the vector do that.
 * Slabs of short rows take less than half of the time that fill_inside takes for them. */
__attribute__((always_inline)) static inline void fill_line(const struct qk_slab_fill *job,
                                                            const struct form *form)
{
    const struct form mine = *form; /* this copy cannot alias the quads, so it stays in registers */
    const struct qk_window *window = job->windows[0];
    const size_t line = window->inside_rows.begin, columns = window->columns;
    const int64_t row = window->row_first + (int64_t)line * window->row_stride;
    const size_t slabs = job->slabs, slab_bytes = job->slab_bytes, plane_step = job->plane_step;
    const size_t last = columns < CHUNK ? 0 : columns - CHUNK, half = columns - CHUNK / 2;
    uint8_t *to = job->quads + line * window->pitch * QK_IGEMM_QUAD_BYTES;
    const uint8_t *from[4];
#pragma GCC unroll 4
    for (size_t k = 0; k < form->terms; k++)
        from[k] = job->planes[k] + row * window->in_columns + job->windows[k]->column_first;
    for (size_t s = 0; s < slabs; s++, to += slab_bytes) {
        struct sources sources;
        if (columns < CHUNK) {
#pragma GCC unroll 4
            for (size_t k = 0; k < form->terms; k++)
                sources.bytes[k] = load_halves(from[k], from[k] + half);
            store_halves(&mine, &sources, to, to + half * QK_IGEMM_QUAD_BYTES);
        }
        for (size_t at = 0; columns >= CHUNK; at = qk_size_min(at + CHUNK, last)) {
#pragma GCC unroll 4
            for (size_t k = 0; k < form->terms; k++)
                sources.bytes[k] = load_16(from[k] + at);
            store_quads(&mine, &sources, CHUNK, to + at * QK_IGEMM_QUAD_BYTES);
            if (at == last)
                break;
        }
#pragma GCC unroll 4
        for (size_t k = 0; k < form->terms; k++)
            from[k] += plane_step;
    }
}

/* Fills the rows that are inside the plane, chunk by chunk, each chunk in all rows. If there is
 * only one row, its chunks that lie completely inside the plane are filled in one call, as if each
 * were a row of a single chunk. */
__attribute__((always_inline)) static inline void fill_inside(const struct qk_slab_fill *job,
                                                              const struct form *form)
{
    const struct qk_window *window = job->windows[0];
    const struct qk_window_range inside = window->inside_rows;
    const bool words = form->terms == 4 && qk_slab_sees_words(job);
    size_t chunks;
    for (size_t at = 0; at < window->columns; at += chunks * CHUNK) {
        at = end_with_columns(job, form->terms, at);
        struct chunk chunk[4];
        for (size_t k = 0; k < form->terms; k++)
            chunk[k] = chunk_for(job, k, at);
        const size_t count = qk_size_min(window->columns - at, CHUNK);
        const bool single = inside.end - inside.begin == 1;
        const size_t whole = count_whole(job, form->terms, at);
        chunks = single ? qk_size_max(whole, 1) : 1;
        const size_t rows = single ? chunks : inside.end - inside.begin;
        const size_t to_step = (single ? CHUNK : window->pitch) * QK_IGEMM_QUAD_BYTES;
        int64_t step = 0; /* stays 0 for a single row, because the product below could overflow */
        if (rows > 1)
            step = single ? CHUNK * window->column_stride : window->row_stride * window->in_columns;
        struct qk_window_range fast = {0, rows};
        if (window->column_stride > 2 && (!words || !look_inside(job, form->terms, at, count)))
            fast.end = 0;
        for (size_t s = 0; s < job->slabs; s++) {
            const size_t plane = s * job->plane_step;
            uint8_t *to = job->quads + s * job->slab_bytes +
                          (inside.begin * window->pitch + at) * QK_IGEMM_QUAD_BYTES;
            if (window->column_stride <= 2)
                fast = find_readable(job, form->terms, chunk, plane, rows, step);
            fill_slowly(job, form, chunk, plane, count, step,
                        (struct qk_window_range){0, fast.begin}, to, to_step);
            if (fast.begin < fast.end) {
                const uint8_t *first[4];
                for (size_t k = 0; k < form->terms; k++)
                    first[k] =
                        job->x + chunk[k].first + (int64_t)plane + (int64_t)fast.begin * step;
                fill_fast(job, form, chunk, first, count, fast.end - fast.begin, step,
                          to + fast.begin * to_step, to_step, whole == 0);
            }
            fill_slowly(job, form, chunk, plane, count, step,
                        (struct qk_window_range){fast.end, rows}, to, to_step);
        }
    }
}

/* Fills `count` quads of every slab with padding, from quad `first` on. */
static void fill_padding(const struct qk_slab_fill *job, size_t first, size_t count,
                         const struct form *form)
{
    const bytes_16 fill = splat_16((uint8_t)job->x_zero_point);
    const struct sources sources = {{fill, fill, fill, fill}};
    uint8_t *to = job->quads + first * QK_IGEMM_QUAD_BYTES;
    for (size_t s = 0; s < job->slabs; s++, to += job->slab_bytes)
        for (size_t i = 0; i < count; i += CHUNK)
            store_quads(form, &sources, count - i, to + i * QK_IGEMM_QUAD_BYTES);
}

__attribute__((always_inline)) static inline void fill(const struct qk_slab_fill *job,
                                                       const size_t terms)
{
    const struct form form = form_for(job, terms);
    const struct qk_window *window = job->windows[0];
    const struct qk_window_range inside = window->inside_rows;
    const size_t count = (window->rows - 1) * window->pitch + window->columns;
    if (!job->planes[0] || inside.begin >= inside.end) {
        fill_padding(job, 0, count, &form);
        return;
    }
    const size_t behind = (inside.end - 1) * window->pitch + window->columns;
    fill_padding(job, 0, inside.begin * window->pitch, &form);
    fill_padding(job, behind, count - behind, &form);
    if (is_line(job, terms))
        fill_line(job, &form);
    else
        fill_inside(job, &form);
}

/* ---- Store ------------------------------------------------------------------------------- */

/* Stores the bytes whose bit is set in `keep`, without gaps. Each run of set bits is copied at
 * once. */
static void store_kept(const uint8_t bytes[QK_IGEMM_NR], uint64_t keep, uint8_t *y)
{
    for (size_t at = 0; keep != 0;) {
        const size_t skipped = (size_t)__builtin_ctzll(keep);
        const uint64_t run = ~(keep >> skipped);
        const size_t count = run == 0 ? QK_IGEMM_NR : (size_t)__builtin_ctzll(run);
        at += skipped;
        memcpy(y, bytes + at, count);
        y += count;
        at += count;
        keep = at < QK_IGEMM_NR ? keep >> skipped >> (count % QK_IGEMM_NR) : 0;
    }
}

#endif
