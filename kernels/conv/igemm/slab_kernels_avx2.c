/* Slab kernels on vectors of 32 bytes, for both kinds of cells: words and bytes. */
#include "kernels/conv/igemm/slab_kernels.h"

#ifdef __x86_64__

#include <immintrin.h>
#include <string.h>

#include "kernels/conv/requantize_avx2.h"
#include "kernels/conv/sizes.h"
#include "kernels/gemm/igemm.h"

/* ---- Fill -------------------------------------------------------------------------------- */

enum { CHUNK = 16 };

/* What a cell holds: two words, which are x less its zero point, or four unsigned bytes. Bytes of
 * an INT8 x have their top bit flipped first, which adds 128, so one loop serves both types. */
struct form {
    size_t terms;
    __m128i flip;
    __m256i zero_point;
};

/* 16 elements of each source of the cells; a cell of words has only two sources. */
struct sources {
    __m128i bytes[4];
};

/* Sixteen cells. */
struct cells {
    __m256i low, high;
};

static inline __m256i widen(const struct form *form, __m128i bytes)
{
    bytes = _mm_xor_si128(bytes, form->flip);
    return _mm256_sub_epi16(_mm256_cvtepu8_epi16(bytes), form->zero_point);
}

static inline struct cells word_cells(const struct form *form, const struct sources *from)
{
    const __m256i a = widen(form, from->bytes[0]);
    const __m256i b = widen(form, from->bytes[1]);
    const __m256i low = _mm256_unpacklo_epi16(a, b); /* positions 0..3 and 8..11 */
    const __m256i high = _mm256_unpackhi_epi16(a, b);
    return (struct cells){_mm256_permute2x128_si256(low, high, 0x20),
                          _mm256_permute2x128_si256(low, high, 0x31)};
}

static inline struct cells byte_cells(const struct form *form, const struct sources *from)
{
    const __m256i flip = _mm256_set_m128i(form->flip, form->flip);
    const __m128i ab_low = _mm_unpacklo_epi8(from->bytes[0], from->bytes[1]);
    const __m128i ab_high = _mm_unpackhi_epi8(from->bytes[0], from->bytes[1]);
    const __m128i cd_low = _mm_unpacklo_epi8(from->bytes[2], from->bytes[3]);
    const __m128i cd_high = _mm_unpackhi_epi8(from->bytes[2], from->bytes[3]);
    const __m256i low =
        _mm256_set_m128i(_mm_unpackhi_epi16(ab_low, cd_low), _mm_unpacklo_epi16(ab_low, cd_low));
    const __m256i high = _mm256_set_m128i(_mm_unpackhi_epi16(ab_high, cd_high),
                                          _mm_unpacklo_epi16(ab_high, cd_high));
    return (struct cells){_mm256_xor_si256(low, flip), _mm256_xor_si256(high, flip)};
}

/* Stores the first `count` of 16 cells. */
static inline void store_cells(const struct form *form, const struct sources *from, size_t count,
                               uint8_t *to)
{
    const struct cells cells = form->terms == 2 ? word_cells(form, from) : byte_cells(form, from);
    if (count >= CHUNK) {
        _mm256_storeu_si256((void *)to, cells.low);
        _mm256_storeu_si256((void *)(to + 32), cells.high);
        return;
    }
    const __m256i left = _mm256_set1_epi32((int)count);
    const __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i next = _mm256_add_epi32(index, _mm256_set1_epi32(8));
    _mm256_maskstore_epi32((void *)to, _mm256_cmpgt_epi32(left, index), cells.low);
    _mm256_maskstore_epi32((void *)(to + 32), _mm256_cmpgt_epi32(left, next), cells.high);
}

/* A chunk is 16 columns of a source's window: this is what all its rows have in common. */
struct chunk {
    const struct qk_window *window;
    const uint8_t *plane;
    size_t begin, end; /* which of the 16 look inside the plane */
    int64_t column;    /* the column of the plane that the first one looks at */
    __m128i inside;    /* the same as a mask */
    __m128i fill;
};

static struct chunk chunk_for(const struct qk_slab_fill *job, size_t k, size_t at)
{
    const struct qk_window *window = job->windows[k];
    const struct qk_window_range inside = window->inside_columns;
    const __m128i index = _mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    struct chunk chunk = {.window = window,
                          .plane = job->planes[k],
                          .begin = qk_size_min(qk_size_max(inside.begin, at) - at, CHUNK),
                          .end = qk_size_min(qk_size_max(inside.end, at) - at, CHUNK),
                          .column = window->column_first + (int64_t)at * window->column_stride,
                          .fill = _mm_set1_epi8((char)job->x_zero_point)};
    chunk.inside = _mm_andnot_si128(_mm_cmpgt_epi8(_mm_set1_epi8((char)chunk.begin), index),
                                    _mm_cmpgt_epi8(_mm_set1_epi8((char)chunk.end), index));
    return chunk;
}

/* Loads the elements of a chunk one by one: for wide strides, and near the ends of the plane, where
 * a whole vector would read outside of it. */
static __m128i load_elements(const struct chunk *chunk, const uint8_t *plane, int64_t line)
{
    uint8_t bytes[CHUNK];
    _mm_storeu_si128((void *)bytes, chunk->fill);
    for (size_t i = chunk->begin; i < chunk->end; i++)
        bytes[i] = plane[line + chunk->column + (int64_t)i * chunk->window->column_stride];
    return _mm_loadu_si128((const void *)bytes);
}

/* Loads the chunk's 16 elements of the row that begins at `line` in the plane; a whole vector at a
 * time where the plane has it. */
static inline __m128i load_chunk(const struct chunk *chunk, const uint8_t *plane, int64_t line)
{
    const struct qk_window *window = chunk->window;
    const int64_t first = line + chunk->column;
    const int64_t stride = window->column_stride;
    if (stride > 2 || first < 0 || first + stride * CHUNK > window->in_rows * window->in_columns)
        return load_elements(chunk, plane, line);
    __m128i bytes = _mm_loadu_si128((const void *)(plane + first));
    if (stride == 2) {
        const __m128i byte = _mm_set1_epi16(0xff);
        const __m128i high = _mm_loadu_si128((const void *)(plane + first + CHUNK));
        bytes = _mm_packus_epi16(_mm_and_si128(bytes, byte), _mm_and_si128(high, byte));
    }
    return _mm_blendv_epi8(chunk->fill, bytes, chunk->inside);
}

/* How many chunks from column `at` on look inside with all their elements, in every source. */
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

/* Fills a chunk in some rows, `step` bytes apart in x, where its elements are neighbours and all
 * inside. `first`: those of the first row, for each source. */
__attribute__((always_inline)) static inline void fill_whole(const struct form *form,
                                                             const uint8_t *const first[4],
                                                             size_t rows, int64_t step, uint8_t *to,
                                                             size_t to_step)
{
    const struct form mine = *form; /* a copy, which cells cannot overlap: it stays in registers */
    const uint8_t *from[4];
#pragma GCC unroll 4
    for (size_t k = 0; k < form->terms; k++)
        from[k] = first[k];
    for (size_t i = 0; i < rows; i++, to += to_step) {
        struct sources sources;
#pragma GCC unroll 4
        for (size_t k = 0; k < form->terms; k++)
            sources.bytes[k] = _mm_loadu_si128((const void *)(from[k] + (int64_t)i * step));
        store_cells(&mine, &sources, CHUNK, to);
    }
}

/* Fills the rows that look inside the plane, chunk by chunk, each in all rows. Where there is but
 * one row, the whole chunks of it are treated like rows. */
__attribute__((always_inline)) static inline void fill_inside(const struct qk_slab_fill *job,
                                                              const struct form *form)
{
    const struct qk_window *window = job->windows[0];
    const struct qk_window_range inside = window->inside_rows;
    const int64_t row = window->row_first + (int64_t)inside.begin * window->row_stride;
    size_t chunks;
    for (size_t at = 0; at < window->columns; at += chunks * CHUNK) {
        struct chunk chunk[4];
        for (size_t k = 0; k < form->terms; k++)
            chunk[k] = chunk_for(job, k, at);
        const size_t count = qk_size_min(window->columns - at, CHUNK);
        const bool single = inside.end - inside.begin == 1;
        const size_t whole = count_whole(job, form->terms, at);
        chunks = single ? qk_size_max(whole, 1) : 1;
        const size_t rows = single ? chunks : inside.end - inside.begin;
        const size_t to_step = single ? CHUNK : window->pitch;
        int64_t step =
            0; /* stays 0 for a single row, whose stride may be so large as to overflow */
        if (rows > 1)
            step = single ? CHUNK * window->column_stride : window->row_stride * window->in_columns;
        for (size_t s = 0; s < job->slabs; s++) {
            uint8_t *to = job->cells + s * job->slab_bytes +
                          (inside.begin * window->pitch + at) * QK_IGEMM_CELL_BYTES;
            if (whole > 0 && window->column_stride == 1) {
                const uint8_t *first[4];
                for (size_t k = 0; k < form->terms; k++)
                    first[k] = chunk[k].plane + s * job->plane_step + row * window->in_columns +
                               chunk[k].column;
                fill_whole(form, first, rows, step, to, to_step * QK_IGEMM_CELL_BYTES);
                continue;
            }
            for (size_t i = 0; i < rows; i++, to += to_step * QK_IGEMM_CELL_BYTES) {
                const int64_t line = row * window->in_columns + (int64_t)i * step;
                struct sources sources;
                for (size_t k = 0; k < form->terms; k++)
                    sources.bytes[k] =
                        load_chunk(&chunk[k], chunk[k].plane + s * job->plane_step, line);
                store_cells(form, &sources, count, to);
            }
        }
    }
}

/* Fills `count` cells of every slab, from cell `first` on, with padding. */
static void fill_padding(const struct qk_slab_fill *job, size_t first, size_t count,
                         const struct form *form)
{
    const __m128i fill = _mm_set1_epi8((char)job->x_zero_point);
    const struct sources sources = {{fill, fill, fill, fill}};
    uint8_t *to = job->cells + first * QK_IGEMM_CELL_BYTES;
    for (size_t s = 0; s < job->slabs; s++, to += job->slab_bytes)
        for (size_t i = 0; i < count; i += CHUNK)
            store_cells(form, &sources, count - i, to + i * QK_IGEMM_CELL_BYTES);
}

__attribute__((always_inline)) static inline void fill(const struct qk_slab_fill *job,
                                                       const size_t terms)
{
    const struct form form = {terms, _mm_set1_epi8((char)job->flip),
                              _mm256_set1_epi16((int16_t)(job->x_zero_point + job->flip))};
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
    fill_inside(job, &form);
}

static void fill_words(const struct qk_slab_fill *job)
{
    fill(job, 2);
}

static void fill_bytes(const struct qk_slab_fill *job)
{
    fill(job, 4);
}

/* ---- Requantize -------------------------------------------------------------------------- */

/* Loads 8 sums of a row from position `first` on, less what the zero point of the row's weights
 * adds to them. */
static inline __m256i load_sums(const struct qk_epilogue_tile *tile, size_t row, size_t first)
{
    const __m256i sums = _mm256_loadu_si256((const void *)(tile->sums + row * QK_IGEMM_NR + first));
    if (!tile->w_zero_point || tile->w_zero_point[row] == 0)
        return sums;
    const __m256i zero_point = _mm256_set1_epi32(tile->w_zero_point[row]);
    const __m256i column_sums = _mm256_loadu_si256((const void *)(tile->column_sums + first));
    return _mm256_sub_epi32(sums, _mm256_mullo_epi32(column_sums, zero_point));
}

/* Requantizes 32 positions of a row from `first` on. */
static inline __m256i requantize_32(const struct qk_epilogue_tile *tile,
                                    const struct qk_requantize *to, size_t row, size_t first)
{
    const __m256i bias = _mm256_set1_epi32(tile->bias[row]);
    __m256i sums[4];
    for (size_t i = 0; i < 4; i++)
        sums[i] = _mm256_add_epi32(load_sums(tile, row, first + 8 * i), bias);
    return qk_requantize_32(to, sums, tile->multiplier[row]);
}

/* Stores those bytes whose bit is set in `keep`, without gaps: each run of set bits is copied at
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

static void requantize(const struct qk_epilogue_tile *tile)
{
    const struct qk_requantize to = tile->epilogue->requantize; /* no store to y changes this */
    uint8_t bytes[QK_IGEMM_NR];
    for (size_t row = 0; row < tile->rows; row++) {
        for (size_t i = 0; i < QK_IGEMM_NR; i += 32)
            _mm256_storeu_si256((void *)(bytes + i), requantize_32(tile, &to, row, i));
        for (size_t i = 0; i < tile->stretch_count; i++)
            store_kept(bytes, tile->stretches[i].keep,
                       tile->y + row * tile->y_stride + tile->stretches[i].offset);
    }
}

const struct qk_slab_kernels qk_slab_kernels_s16x2__avx2 = {
    .fill = fill_words,
    .epilogues = {[QK_EPILOGUE_BYTES] = requantize},
};
const struct qk_slab_kernels qk_slab_kernels_u8x4__avx2 = {
    .fill = fill_bytes,
    .epilogues = {[QK_EPILOGUE_BYTES] = requantize},
};

#endif
