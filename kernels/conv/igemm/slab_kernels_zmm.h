/* Slab kernels (slab_kernels.h) with vectors of 64 bytes, for quads of bytes. Skylake-X has all
 * instructions that they need. Only for slab_kernels_avx512bw.c and slab_kernels_avx512vbmi.c. */
#pragma once

#include "kernels/conv/igemm/slab_kernels.h"

/* Only x86 has this macro, and only files with these suffixes get the flag that sets it. */
#ifdef __AVX512BW__

#include <immintrin.h>

#include "kernels/conv/requantize_avx512.h"
#include "kernels/gemm/igemm.h"
#include "kernels/sizes.h"

/* Returns a mask of the lowest `count` bits. */
static inline uint64_t low_bits(size_t count)
{
    return count >= 64 ? UINT64_MAX : (UINT64_C(1) << count) - 1;
}

/* ---- Fill -------------------------------------------------------------------------------- */

/* A chunk is up to 64 columns of the sources' windows. These are its properties that all rows
 * share. */
struct chunk {
    uintptr_t address[4];   /* for each source, the address of its byte of the first quad; may be
                               outside the plane */
    __mmask64 inside[4][2]; /* which of the 128 bytes from there on are inside the plane */
    size_t stride;
    size_t count;   /* of quads, 1 to 64 */
    uint64_t quads; /* `count` as a mask */
    __m512i order;  /* permutes groups of 4 bytes; unpacking then leaves quads in order */
    __m512i fill, flip;
};

/* Sets the masks of source k from `inside`, the columns inside the plane. `at` is the chunk's first
 * column. A bit stands for a byte of the plane or, for strides above 2, for an element of the
 * chunk. */
static void set_inside(struct chunk *chunk, size_t k, struct qk_window_range inside, size_t at)
{
    const size_t stride = chunk->stride <= 2 ? chunk->stride : 1;
    const size_t end = qk_size_min(inside.end, at + chunk->count);
    const size_t begin = qk_size_max(inside.begin, at);
    chunk->inside[k][0] = chunk->inside[k][1] = 0;
    if (begin >= end)
        return;
    const size_t first = (begin - at) * stride;
    const size_t behind = (end - at - 1) * stride + 1;
    chunk->inside[k][0] = low_bits(behind) & ~low_bits(first);
    if (behind > 64)
        chunk->inside[k][1] = low_bits(behind - 64) & ~low_bits(first > 64 ? first - 64 : 0);
}

/* Loads the elements of a chunk one by one, for strides above 2. */
static inline __m512i load_elements(const struct chunk *chunk, size_t k, uintptr_t row)
{
    uint8_t bytes[64];
    _mm512_storeu_si512(bytes, chunk->fill);
    if (chunk->inside[k][0] == 0)
        return chunk->fill;
    const size_t begin = (size_t)__builtin_ctzll(chunk->inside[k][0]);
    const size_t end = 64 - (size_t)__builtin_clzll(chunk->inside[k][0]);
    const uint8_t *from = (const uint8_t *)(chunk->address[k] + row + begin * chunk->stride);
    for (size_t i = begin; i < end; i++, from += chunk->stride)
        bytes[i] = *from;
    return _mm512_loadu_si512(bytes);
}

/* Loads 64 bytes of source k or, unless `whole`, only the bytes in `mask`. A masked load does not
 * touch bytes outside the plane, where there may be no memory. */
static inline __m512i load_bytes(const struct chunk *chunk, size_t k, __mmask64 mask, uintptr_t at,
                                 const bool whole)
{
    const void *from = (const void *)(chunk->address[k] + at);
    return whole ? _mm512_loadu_si512(from) : _mm512_mask_loadu_epi8(chunk->fill, mask, from);
}

/* Loads 64 elements of a row, `row` bytes after the first row, and orders them by groups of 4 for
 * the unpacking into quads. `stride` is 1, or 0 for strides above 2. */
static inline __m512i load_source(const struct chunk *chunk, size_t k, uintptr_t row,
                                  const size_t stride, const bool whole)
{
    const __m512i source = stride == 0 ? load_elements(chunk, k, row)
                                       : load_bytes(chunk, k, chunk->inside[k][0], row, whole);
    return _mm512_permutexvar_epi32(chunk->order, source);
}

/* Loads 32 elements of sources k and k + 1, which are every second byte. Each word of the result
 * has one element of each of the two sources. */
static inline __m512i load_pairs(const struct chunk *chunk, size_t k, size_t half, uintptr_t row,
                                 const bool whole)
{
    const __m512i low = load_bytes(chunk, k, chunk->inside[k][half], row, whole);
    const __m512i high = load_bytes(chunk, k + 1, chunk->inside[k + 1][half], row, whole);
    enum { A_AND_B_OR_C = 0xea };
    return _mm512_ternarylogic_epi32(_mm512_set1_epi16(0xff), low, _mm512_slli_epi16(high, 8),
                                     A_AND_B_OR_C);
}

static inline void store_quads(const struct chunk *chunk, size_t first, __m512i quads, uint8_t *to,
                               const bool whole)
{
    quads = _mm512_xor_si512(quads, chunk->flip);
    if (whole)
        _mm512_storeu_si512(to + first * QK_IGEMM_QUAD_BYTES, quads);
    else if (first < chunk->count)
        _mm512_mask_storeu_epi32(to + first * QK_IGEMM_QUAD_BYTES,
                                 (__mmask16)(chunk->quads >> first), quads);
}

/* Fills 32 quads of one row of the chunk, for a stride of 2. */
__attribute__((always_inline)) static inline void
fill_half(const struct chunk *chunk, size_t half, uintptr_t row, uint8_t *to, const bool whole)
{
    const __m512i first = _mm512_set_epi64(11, 10, 3, 2, 9, 8, 1, 0);
    const __m512i second = _mm512_set_epi64(15, 14, 7, 6, 13, 12, 5, 4);
    const __m512i ab = load_pairs(chunk, 0, half, row + 64 * half, whole);
    const __m512i cd = load_pairs(chunk, 2, half, row + 64 * half, whole);
    const __m512i low = _mm512_unpacklo_epi16(ab, cd);
    const __m512i high = _mm512_unpackhi_epi16(ab, cd);
    store_quads(chunk, 32 * half, _mm512_permutex2var_epi64(low, first, high), to, whole);
    if (whole || chunk->count > 32 * half + 16)
        store_quads(chunk, 32 * half + 16, _mm512_permutex2var_epi64(low, second, high), to, whole);
}

/* Fills one row of the chunk. `whole`: the chunk has all 64 quads, and all their bytes are inside
 * the plane, so no masks are needed. */
__attribute__((always_inline)) static inline void fill_row(const struct chunk *chunk, uintptr_t row,
                                                           uint8_t *to, const size_t stride,
                                                           const bool whole)
{
    if (stride == 2) {
        fill_half(chunk, 0, row, to, whole);
        if (whole || chunk->count > 32)
            fill_half(chunk, 1, row, to, whole);
        return;
    }
    const __m512i a = load_source(chunk, 0, row, stride, whole);
    const __m512i b = load_source(chunk, 1, row, stride, whole);
    const __m512i c = load_source(chunk, 2, row, stride, whole);
    const __m512i d = load_source(chunk, 3, row, stride, whole);
    const __m512i ab = _mm512_unpacklo_epi8(a, b);
    const __m512i cd = _mm512_unpacklo_epi8(c, d);
    store_quads(chunk, 0, _mm512_unpacklo_epi16(ab, cd), to, whole);
    store_quads(chunk, 16, _mm512_unpackhi_epi16(ab, cd), to, whole);
    if (!whole && chunk->count <= 32)
        return;
    const __m512i ab_high = _mm512_unpackhi_epi8(a, b);
    const __m512i cd_high = _mm512_unpackhi_epi8(c, d);
    store_quads(chunk, 32, _mm512_unpacklo_epi16(ab_high, cd_high), to, whole);
    store_quads(chunk, 48, _mm512_unpackhi_epi16(ab_high, cd_high), to, whole);
}

/* The rows and slabs in which a chunk is filled. */
struct repeats {
    size_t slabs, rows;
    uintptr_t slab_step, row_step; /* between two slabs and between two rows, in bytes of x */
    size_t to_slab_step, to_row_step;
};

__attribute__((always_inline)) static inline void fill_rows(const struct chunk *chunk,
                                                            const struct repeats *repeats,
                                                            uint8_t *to, const size_t stride,
                                                            const bool whole)
{
    /* These copies cannot alias the quads, so they stay in registers. */
    const struct chunk mine = *chunk;
    const struct repeats at = *repeats;
    uintptr_t slab = 0;
    for (size_t s = 0; s < at.slabs; s++, slab += at.slab_step, to += at.to_slab_step) {
        uintptr_t row = slab;
        uint8_t *row_to = to;
        for (size_t i = 0; i < at.rows; i++, row += at.row_step, row_to += at.to_row_step)
            fill_row(&mine, row, row_to, stride, whole);
    }
}

/* Returns how many quads from column `at` on can be filled in the same way (SIZE_MAX: all of them).
 * Sets *words to true if they are words of x that lie inside the plane, which can be copied. Sets
 * it to false if some of their elements are padding. */
static size_t count_alike(const struct qk_slab_fill *job, size_t at, bool *words)
{
    size_t begin = 0, end = SIZE_MAX;
    for (size_t k = 0; k < 4; k++) {
        begin = qk_size_max(begin, job->windows[k]->inside_columns.begin);
        end = qk_size_min(end, job->windows[k]->inside_columns.end);
    }
    *words = at >= begin && at < end;
    return *words ? end - at : at < begin ? begin - at : SIZE_MAX;
}

/* Like fill_rows, for a chunk in which every quad is a word of x. */
static void copy_rows(const struct qk_slab_fill *job, const struct chunk *chunk,
                      const struct repeats *at, uint8_t *to)
{
    uintptr_t slab = chunk->address[0];
    for (size_t s = 0; s < at->slabs; s++, slab += at->slab_step, to += at->to_slab_step)
        for (size_t i = 0; i < at->rows; i++)
            qk_slab_copy_words((const uint8_t *)(slab + i * at->row_step), (int64_t)chunk->stride,
                               chunk->count, job->flip, to + i * at->to_row_step);
}

/* Returns how many chunks from column `at` on may be loaded without masks. */
static inline size_t count_whole(const struct qk_slab_fill *job, size_t at, const size_t stride)
{
    size_t count = SIZE_MAX;
    for (size_t k = 0; k < 4; k++) {
        const struct qk_window_range inside = job->windows[k]->inside_columns;
        if (stride == 0 || inside.begin > at || inside.end < at + 64 + (stride > 1))
            return 0;
        count = qk_size_min(count, (inside.end - at - (stride > 1)) / 64);
    }
    return count;
}

/* Fills the rows that are inside the plane, chunk by chunk, each chunk in all rows. If there is
 * only one row, its chunks that need no masks are filled in one call of fill_rows, as if each were
 * a row of a single chunk. `stride` is 1 or 2; 0 stands for all other strides. */
__attribute__((always_inline)) static inline void
fill_inside(const struct qk_slab_fill *job, struct chunk *chunk, const size_t stride)
{
    const struct qk_window *window = job->windows[0];
    const struct qk_window_range inside = window->inside_rows;
    const struct repeats rows = {
        .slabs = job->slabs,
        .rows = inside.end - inside.begin,
        .slab_step = job->plane_step,
        .row_step = (uintptr_t)window->row_stride * (uintptr_t)window->in_columns,
        .to_slab_step = job->slab_bytes,
        .to_row_step = window->pitch * QK_IGEMM_QUAD_BYTES,
    };
    const uintptr_t row =
        (uintptr_t)(window->row_first + (int64_t)inside.begin * window->row_stride);
    uint8_t *first = job->quads + inside.begin * rows.to_row_step;
    const bool may_copy = stride == 0 && qk_slab_sees_words(job);
    size_t done;
    for (size_t at = 0; at < window->columns; at += done) {
        uint8_t *to = first + at * QK_IGEMM_QUAD_BYTES;
        for (size_t k = 0; k < 4; k++)
            chunk->address[k] = (uintptr_t)job->planes[k] + row * (uintptr_t)window->in_columns +
                                (uintptr_t)job->windows[k]->column_first + at * chunk->stride;
        bool words = false;
        const size_t alike = may_copy ? count_alike(job, at, &words) : SIZE_MAX;
        done = chunk->count = qk_size_min(qk_size_min(window->columns - at, 64), alike);
        const size_t whole = count_whole(job, at, stride);
        if (whole > 1 && rows.rows == 1) {
            struct repeats chunks = rows;
            chunks.rows = whole;
            chunks.row_step = 64 * stride;
            chunks.to_row_step = 64 * QK_IGEMM_QUAD_BYTES;
            fill_rows(chunk, &chunks, to, stride, true);
            done = 64 * whole;
            continue;
        }
        chunk->quads = low_bits(chunk->count);
        if (words) {
            copy_rows(job, chunk, &rows, to);
            continue;
        }
        for (size_t k = 0; k < 4; k++)
            set_inside(chunk, k, job->windows[k]->inside_columns, at);
        fill_rows(chunk, &rows, to, stride, false);
    }
}

/* Fills `count` quads of every slab with padding, from quad `first` on. */
static void fill_padding(const struct qk_slab_fill *job, size_t first, size_t count,
                         __m512i padding)
{
    uint8_t *to = job->quads + first * QK_IGEMM_QUAD_BYTES;
    for (size_t s = 0; s < job->slabs; s++, to += job->slab_bytes)
        for (size_t i = 0; i < count; i += 16)
            _mm512_mask_storeu_epi32(to + i * QK_IGEMM_QUAD_BYTES, (__mmask16)low_bits(count - i),
                                     padding);
}

static void fill(const struct qk_slab_fill *job)
{
    const struct qk_window *window = job->windows[0];
    const struct qk_window_range inside = window->inside_rows;
    const size_t count = (window->rows - 1) * window->pitch + window->columns;
    struct chunk chunk = {
        .stride = (size_t)window->column_stride,
        .order = _mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0),
        .fill = _mm512_set1_epi8((char)job->x_zero_point),
        .flip = _mm512_set1_epi8((char)job->flip),
    };
    const __m512i padding = _mm512_xor_si512(chunk.fill, chunk.flip);
    if (!job->planes[0] || inside.begin >= inside.end) {
        fill_padding(job, 0, count, padding);
        return;
    }
    const size_t behind = (inside.end - 1) * window->pitch + window->columns;
    fill_padding(job, 0, inside.begin * window->pitch, padding);
    fill_padding(job, behind, count - behind, padding);
    if (window->column_stride == 1)
        fill_inside(job, &chunk, 1);
    else if (window->column_stride == 2)
        fill_inside(job, &chunk, 2);
    else
        fill_inside(job, &chunk, 0);
}

/* ---- Requantize -------------------------------------------------------------------------- */

/* Requantizes a tile whose sums lie row by row. `vectors` is the number of vectors of 16 sums that
 * are read of each row: 1 if the tile has up to 16 positions, otherwise 4. */
__attribute__((always_inline)) static inline void
requantize_rows(const struct qk_epilogue_tile *tile, const size_t vectors)
{
    const struct qk_requantize_512 to = qk_requantize_512_from(&tile->epilogue->requantize);
    const struct qk_tile_segment first = tile->segments[0];
    uint8_t *y = tile->y;
    for (size_t row = 0; row < tile->rows; row++, y += tile->y_stride) {
        const int32_t *from = tile->sums + row * QK_IGEMM_NR;
        __m512i sums[4] = {_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512(),
                           _mm512_setzero_si512()};
#pragma GCC unroll 4
        for (size_t v = 0; v < vectors; v++)
            sums[v] = _mm512_add_epi32(_mm512_loadu_si512(from + 16 * v),
                                       _mm512_set1_epi32(tile->bias[row]));
        if (tile->w_zero_point && tile->w_zero_point[row] != 0) {
            const __m512i zero_point = _mm512_set1_epi32(tile->w_zero_point[row]);
#pragma GCC unroll 4
            for (size_t v = 0; v < vectors; v++)
                sums[v] = _mm512_sub_epi32(
                    sums[v],
                    _mm512_mullo_epi32(_mm512_loadu_si512(tile->column_sums + 16 * v), zero_point));
        }
        const __m512i bytes = qk_requantize_64(&to, sums, tile->multiplier[row]);
        qk_store_kept(y + first.offset, bytes, first.keep);
        for (size_t i = 1; i < tile->segment_count; i++)
            qk_store_kept(y + tile->segments[i].offset, bytes, tile->segments[i].keep);
    }
}

/* Loads the sums of up to 16 rows at one position of a tile whose sums lie row by row. Loading them
 * one by one takes less time than a gather on CPUs whose microcode makes gathers slow. No CPU could
 * forward several small stores to a large load, so they do not go through memory. */
static __m512i load_column(const struct qk_epilogue_tile *tile, size_t row, size_t position)
{
    const int32_t *from = tile->sums + row * QK_IGEMM_NR + position;
    __m512i sums = _mm512_setzero_si512();
    for (size_t i = 0; i < qk_size_min(tile->rows - row, 16); i++)
        sums = _mm512_mask_set1_epi32(sums, (__mmask16)(1U << i), from[i * QK_IGEMM_NR]);
    return sums;
}

/* Requantizes up to 16 rows of one segment if planes have a single position. Output channels are
 * then neighbours in y, so the lanes are rows of the tile instead of positions. */
static void requantize_elements(const struct qk_epilogue_tile *tile, size_t row,
                                const struct qk_tile_segment *segment)
{
    const __mmask16 there = (__mmask16)low_bits(tile->rows - row);
    const size_t position = (size_t)__builtin_ctzll(segment->keep);
    __m512i sums =
        tile->row_count > 0
            ? _mm512_maskz_loadu_epi32(there, tile->sums + position * tile->row_count + row)
            : load_column(tile, row, position);
    sums = _mm512_add_epi32(sums, _mm512_maskz_loadu_epi32(there, tile->bias + row));
    if (tile->w_zero_point)
        sums = _mm512_sub_epi32(
            sums, _mm512_mullo_epi32(_mm512_maskz_loadu_epi32(there, tile->w_zero_point + row),
                                     _mm512_set1_epi32(tile->column_sums[position])));
    const __m512i scaled =
        qk_requantize_scale(sums, _mm512_maskz_loadu_ps(there, tile->multiplier + row),
                            _mm512_set1_ps(tile->epilogue->requantize.high));
    const __m256i words =
        _mm256_adds_epi16(_mm512_cvtsepi32_epi16(scaled),
                          _mm256_set1_epi16((int16_t)tile->epilogue->requantize.zero_point));
    uint8_t *y = tile->y + row + segment->offset;
    const __m128i bytes =
        tile->epilogue->requantize.is_signed
            ? _mm256_cvtsepi16_epi8(words)
            : _mm256_cvtusepi16_epi8(_mm256_max_epi16(words, _mm256_setzero_si256()));
    _mm_mask_storeu_epi8(y, there, bytes);
}

/* The constants of 16 rows of a tile whose sums lie position by position. Each row has a lane. */
struct lanes {
    const int32_t *sums;
    __m512i bias, w_zero_point, y_zero_point;
    __m512 multiplier, high;
    bool saturate; /* as qk_requantize_saturates, for all lanes */
};

static inline struct lanes load_lanes(const struct qk_epilogue_tile *tile, size_t row)
{
    const __mmask16 there = (__mmask16)low_bits(tile->rows - row);
    struct lanes lanes = {
        .sums = tile->sums + row,
        .bias = _mm512_maskz_loadu_epi32(there, tile->bias + row),
        .w_zero_point = _mm512_setzero_si512(),
        .y_zero_point = _mm512_set1_epi16((int16_t)tile->epilogue->requantize.zero_point),
        .multiplier = _mm512_maskz_loadu_ps(there, tile->multiplier + row),
        .high = _mm512_set1_ps(tile->epilogue->requantize.high),
    };
    const __m512i size =
        _mm512_and_si512(_mm512_castps_si512(lanes.multiplier), _mm512_set1_epi32(INT32_MAX));
    lanes.saturate = _mm512_cmpge_epi32_mask(size, _mm512_castps_si512(_mm512_set1_ps(1))) == 0;
    if (tile->w_zero_point)
        lanes.w_zero_point = _mm512_maskz_loadu_epi32(there, tile->w_zero_point + row);
    return lanes;
}

/* Scales the sums of one position and rounds them to integers. Adding the zero point and saturating
 * to a byte then gives y. `plain`: the sums need no clamp and no correction for a zero point of
 * weights. */
__attribute__((always_inline)) static inline __m512i
requantize_position(const struct qk_epilogue_tile *tile, const struct lanes *lanes, size_t position,
                    const bool plain)
{
    __m512i sums =
        _mm512_add_epi32(lanes->bias, _mm512_loadu_si512(lanes->sums + position * tile->row_count));
    if (plain)
        return _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_cvtepi32_ps(sums), lanes->multiplier));
    if (tile->w_zero_point)
        sums = _mm512_sub_epi32(sums,
                                _mm512_mullo_epi32(lanes->w_zero_point,
                                                   _mm512_set1_epi32(tile->column_sums[position])));
    return qk_requantize_scale(sums, lanes->multiplier, lanes->high);
}

/* Computes the bytes of 16 rows at four positions from `first` on. Group r of 4 bytes of the result
 * belongs to row r. */
__attribute__((always_inline)) static inline __m512i
requantize_four(const struct qk_epilogue_tile *tile, const struct lanes *lanes, size_t first,
                const bool plain)
{
    const __m512i order = _mm512_set4_epi32(0x0f0b0703, 0x0e0a0602, 0x0d090501, 0x0c080400);
    __m512i y[4];
#pragma GCC unroll 4
    for (size_t i = 0; i < 4; i++)
        y[i] = requantize_position(tile, lanes, first + i, plain);
    const __m512i low = _mm512_adds_epi16(_mm512_packs_epi32(y[0], y[1]), lanes->y_zero_point);
    const __m512i high = _mm512_adds_epi16(_mm512_packs_epi32(y[2], y[3]), lanes->y_zero_point);
    return _mm512_shuffle_epi8(tile->epilogue->requantize.is_signed
                                   ? _mm512_packs_epi16(low, high)
                                   : _mm512_packus_epi16(low, high),
                               order);
}

/* Computes the bytes of 16 rows by up to 16 positions, four positions at a time. The bytes of row r
 * are in bytes[r % 4][r / 4]. */
__attribute__((always_inline)) static inline void
requantize_lanes(const struct qk_epilogue_tile *tile, const struct lanes *lanes,
                 uint8_t bytes[4][4][16], const bool plain)
{
    __m512i fours[4];
#pragma GCC unroll 4
    for (size_t i = 0; i < 4; i++)
        fours[i] = 4 * i < tile->positions ? requantize_four(tile, lanes, 4 * i, plain)
                                           : _mm512_setzero_si512();
    const __m512i low_01 = _mm512_unpacklo_epi32(fours[0], fours[1]);
    const __m512i high_01 = _mm512_unpackhi_epi32(fours[0], fours[1]);
    const __m512i low_23 = _mm512_unpacklo_epi32(fours[2], fours[3]);
    const __m512i high_23 = _mm512_unpackhi_epi32(fours[2], fours[3]);
    _mm512_storeu_si512(bytes[0], _mm512_unpacklo_epi64(low_01, low_23));
    _mm512_storeu_si512(bytes[1], _mm512_unpackhi_epi64(low_01, low_23));
    _mm512_storeu_si512(bytes[2], _mm512_unpacklo_epi64(high_01, high_23));
    _mm512_storeu_si512(bytes[3], _mm512_unpackhi_epi64(high_01, high_23));
}

static inline void store_lanes(uint8_t bytes[4][4][16], size_t rows,
                               const struct qk_tile_segment *segment, uint8_t *y, size_t y_stride)
{
    const __mmask16 keep = (__mmask16)segment->keep;
    const __mmask16 dense = (__mmask16)low_bits((size_t)_mm_popcnt_u32(keep));
    y += segment->offset;
    if (keep != dense || rows < 16) {
        for (size_t r = 0; r < rows; r++, y += y_stride) {
            const __m128i row = _mm_loadu_si128((const void *)bytes[r % 4][r / 4]);
            qk_store_kept(y, _mm512_castsi128_si512(row), keep);
        }
        return;
    }
#pragma GCC unroll 4
    for (size_t i = 0; i < 4; i++)
#pragma GCC unroll 4
        for (size_t k = 0; k < 4; k++, y += y_stride)
            _mm_mask_storeu_epi8(y, dense, _mm_loadu_si128((const void *)bytes[k][i]));
}

/* Stores the bytes of up to 64 positions. Whole cache lines are stored at once, because
 * neighbouring rows may lie in the same set of the L1 cache. */
static inline void store_chunks(uint8_t bytes[4][4][4][16], size_t rows,
                                const struct qk_tile_segment *segment, uint8_t *y, size_t y_stride)
{
    const __mmask64 dense = low_bits((size_t)__builtin_popcountll(segment->keep));
    y += segment->offset;
    for (size_t r = 0; r < rows; r++, y += y_stride) {
        __m512i row = _mm512_castsi128_si512(_mm_loadu_si128((const void *)bytes[0][r % 4][r / 4]));
        row = _mm512_inserti32x4(row, _mm_loadu_si128((const void *)bytes[1][r % 4][r / 4]), 1);
        row = _mm512_inserti32x4(row, _mm_loadu_si128((const void *)bytes[2][r % 4][r / 4]), 2);
        row = _mm512_inserti32x4(row, _mm_loadu_si128((const void *)bytes[3][r % 4][r / 4]), 3);
        if (segment->keep == dense)
            _mm512_mask_storeu_epi8(y, dense, row);
        else
            qk_store_kept(y, row, segment->keep);
    }
}

/* Requantizes a tile whose sums lie position by position. */
static void requantize_positions(const struct qk_epilogue_tile *tile)
{
    struct qk_epilogue_tile chunk = *tile;
    const bool one = tile->positions <= 16;
    for (size_t row = 0; row < tile->rows; row += 16) {
        const size_t rows = qk_size_min(tile->rows - row, 16);
        struct lanes lanes = load_lanes(tile, row);
        uint8_t bytes[4][4][4][16];
        for (size_t first = 0; first < tile->positions; first += 16) {
            chunk.positions = tile->positions - first;
            chunk.column_sums = tile->column_sums + first;
            if (lanes.saturate && !tile->w_zero_point)
                requantize_lanes(&chunk, &lanes, bytes[first / 16], true);
            else
                requantize_lanes(&chunk, &lanes, bytes[first / 16], false);
            lanes.sums += 16 * tile->row_count;
        }
        for (size_t i = 0; i < tile->segment_count; i++)
            if (one)
                store_lanes(bytes[0], rows, &tile->segments[i], tile->y + row * tile->y_stride,
                            tile->y_stride);
            else
                store_chunks(bytes, rows, &tile->segments[i], tile->y + row * tile->y_stride,
                             tile->y_stride);
    }
}

static void requantize(const struct qk_epilogue_tile *tile)
{
    if (tile->y_stride == 1)
        for (size_t row = 0; row < tile->rows; row += 16)
            for (size_t i = 0; i < tile->segment_count; i++)
                requantize_elements(tile, row, &tile->segments[i]);
    else if (tile->row_count > 0)
        requantize_positions(tile);
    else if (tile->positions <= QK_IGEMM_VECTOR)
        requantize_rows(tile, 1);
    else
        requantize_rows(tile, 4);
}

#endif
