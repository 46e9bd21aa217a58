/* Slab kernels with vectors of 32 bytes, for both kinds of quads: words and bytes. */
#include "kernels/conv/igemm/slab_kernels.h"

#ifdef __x86_64__

#include <immintrin.h>
#include <math.h>

#include "kernels/conv/requantize_avx2.h"
#include "kernels/gemm/igemm.h"

/* ---- Fill -------------------------------------------------------------------------------- */

#define CHUNK 16

typedef __m128i bytes_16;

static inline bytes_16 load_16(const uint8_t *from)
{
    return _mm_loadu_si128((const void *)from);
}

static inline void store_16(uint8_t *to, bytes_16 bytes)
{
    _mm_storeu_si128((void *)to, bytes);
}

static inline bytes_16 load_halves(const uint8_t *low, const uint8_t *high)
{
    return _mm_unpacklo_epi64(_mm_loadl_epi64((const void *)low),
                              _mm_loadl_epi64((const void *)high));
}

static inline bytes_16 splat_16(uint8_t byte)
{
    return _mm_set1_epi8((char)byte);
}

static inline bytes_16 range_16(size_t begin, size_t end)
{
    const __m128i index = _mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return _mm_andnot_si128(_mm_cmpgt_epi8(_mm_set1_epi8((char)begin), index),
                            _mm_cmpgt_epi8(_mm_set1_epi8((char)end), index));
}

static inline bytes_16 select_16(bytes_16 mask, bytes_16 yes, bytes_16 no)
{
    return _mm_blendv_epi8(no, yes, mask);
}

static inline bytes_16 evens_16(bytes_16 low, bytes_16 high)
{
    const __m128i byte = _mm_set1_epi16(0xff);
    return _mm_packus_epi16(_mm_and_si128(low, byte), _mm_and_si128(high, byte));
}

static inline bytes_16 xor_16(bytes_16 a, bytes_16 b)
{
    return _mm_xor_si128(a, b);
}

static inline bytes_16 zip_low_16(bytes_16 a, bytes_16 b)
{
    return _mm_unpacklo_epi8(a, b);
}

static inline bytes_16 zip_high_16(bytes_16 a, bytes_16 b)
{
    return _mm_unpackhi_epi8(a, b);
}

static inline bytes_16 zip_low_quads(bytes_16 a, bytes_16 b)
{
    return _mm_unpacklo_epi32(a, b);
}

static inline bytes_16 zip_high_quads(bytes_16 a, bytes_16 b)
{
    return _mm_unpackhi_epi32(a, b);
}

/* VPSADBW adds unsigned bytes. Signed bytes are made unsigned by adding 128 to each. */
static inline int32_t sum_16(bytes_16 bytes)
{
    const __m128i halves =
        _mm_sad_epu8(_mm_xor_si128(bytes, _mm_set1_epi8((char)0x80)), _mm_setzero_si128());
    return _mm_cvtsi128_si32(_mm_add_epi32(halves, _mm_unpackhi_epi64(halves, halves))) -
           CHUNK * 128;
}

/* What a quad holds: two words, which are x less its zero point, or four bytes. Bytes of x are
 * flipped first. This adds 128 to an INT8 x and makes it unsigned, so one loop serves both types.
 */
struct form {
    size_t terms;
    __m128i flip;
    __m256i zero_point;
};

/* 16 elements of each source of the quads; a quad of words has only two sources. */
struct sources {
    __m128i bytes[4];
};

struct quads {
    __m256i low, high;
};

static inline __m256i widen(const struct form *form, __m128i bytes)
{
    bytes = _mm_xor_si128(bytes, form->flip);
    return _mm256_sub_epi16(_mm256_cvtepu8_epi16(bytes), form->zero_point);
}

static inline struct quads word_quads(const struct form *form, const struct sources *from)
{
    const __m256i a = widen(form, from->bytes[0]);
    const __m256i b = widen(form, from->bytes[1]);
    const __m256i low = _mm256_unpacklo_epi16(a, b); /* positions 0..3 and 8..11 */
    const __m256i high = _mm256_unpackhi_epi16(a, b);
    return (struct quads){_mm256_permute2x128_si256(low, high, 0x20),
                          _mm256_permute2x128_si256(low, high, 0x31)};
}

static inline struct quads byte_quads(const struct form *form, const struct sources *from)
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
    return (struct quads){_mm256_xor_si256(low, flip), _mm256_xor_si256(high, flip)};
}

static inline void store_halves(const struct form *form, const struct sources *from, uint8_t *to,
                                uint8_t *high_to)
{
    const struct quads quads = form->terms == 2 ? word_quads(form, from) : byte_quads(form, from);
    _mm256_storeu_si256((void *)to, quads.low);
    _mm256_storeu_si256((void *)high_to, quads.high);
}

/* Stores the first `count` of 16 quads. A few stores take less time than masked ones. */
static inline void store_quads(const struct form *form, const struct sources *from, size_t count,
                               uint8_t *to)
{
    const struct quads quads = form->terms == 2 ? word_quads(form, from) : byte_quads(form, from);
    if (count >= CHUNK) {
        _mm256_storeu_si256((void *)to, quads.low);
        _mm256_storeu_si256((void *)(to + 32), quads.high);
        return;
    }
    __m256i eight = quads.low;
    if (count & 8) {
        _mm256_storeu_si256((void *)to, eight);
        eight = quads.high;
        to += 32;
    }
    __m128i four = _mm256_castsi256_si128(eight);
    if (count & 4) {
        _mm_storeu_si128((void *)to, four);
        four = _mm256_extracti128_si256(eight, 1);
        to += 16;
    }
    if (count & 2) {
        _mm_storel_epi64((void *)to, four);
        four = _mm_unpackhi_epi64(four, four);
        to += 8;
    }
    if (count & 1)
        _mm_storeu_si32(to, four);
}

static inline struct form form_for(const struct qk_slab_fill *job, size_t terms)
{
    return (struct form){terms, _mm_set1_epi8((char)job->flip),
                         _mm256_set1_epi16((int16_t)(job->x_zero_point + job->flip))};
}

#include "kernels/conv/igemm/slab_kernels_16.h"
#include "kernels/conv/igemm/transpose_16.h"

/* ---- Requantize, by rows ----------------------------------------------------------------- */

/* What the epilogues of all rows of a tile share. */
struct rows {
    __m256i y_zero_point, flip;
    __m256 high;
    const int32_t *column_sums; /* NULL: the zero points of weights are 0 */
};

/* What the epilogue of one row has. */
struct row {
    __m256i bias, w_zero_point;
    __m256 multiplier;
};

/* Vectors saturate to unsigned bytes. A signed y is computed as an unsigned one that is 128 too
 * large, and `flip` then subtracts the 128. */
static inline struct rows load_rows(const struct qk_epilogue_tile *tile)
{
    const struct qk_requantize *to = &tile->epilogue->requantize;
    return (struct rows){
        .y_zero_point = _mm256_set1_epi16((int16_t)(to->zero_point + (to->is_signed ? 128 : 0))),
        .flip = _mm256_set1_epi8((char)(to->is_signed ? 0x80 : 0)),
        .high = _mm256_set1_ps(to->high),
        .column_sums = tile->w_zero_point ? tile->column_sums : NULL,
    };
}

static inline struct row load_row(const struct qk_epilogue_tile *tile, size_t row)
{
    return (struct row){
        .bias = _mm256_set1_epi32(tile->bias[row]),
        .w_zero_point = _mm256_set1_epi32(tile->w_zero_point ? tile->w_zero_point[row] : 0),
        .multiplier = _mm256_set1_ps(tile->multiplier[row]),
    };
}

/* Scales and rounds 8 sums of a row, of which `sums` points at the first. With `plain`, the sums
 * need no clamp and no correction for a zero point of weights. */
__attribute__((always_inline)) static inline __m256i scale_row_8(const struct rows *rows,
                                                                 const struct row *row,
                                                                 const int32_t *sums,
                                                                 size_t position, const bool plain)
{
    const __m256i loaded = _mm256_loadu_si256((const void *)(sums + position));
    __m256i with_bias = _mm256_add_epi32(loaded, row->bias);
    if (plain)
        return _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_cvtepi32_ps(with_bias), row->multiplier));
    if (rows->column_sums) {
        const __m256i column_sums =
            _mm256_loadu_si256((const void *)(rows->column_sums + position));
        with_bias = _mm256_sub_epi32(with_bias, _mm256_mullo_epi32(column_sums, row->w_zero_point));
    }
    return qk_requantize_scale_8(with_bias, row->multiplier, rows->high);
}

/* Turns 16 scaled sums into words, in the order of VPACKSSDW. */
static inline __m256i add_zero_point(const struct rows *rows, __m256i low, __m256i high)
{
    return _mm256_adds_epi16(_mm256_packs_epi32(low, high), rows->y_zero_point);
}

static inline __m256i pack_bytes(const struct rows *rows, __m256i low, __m256i high)
{
    return _mm256_xor_si256(_mm256_packus_epi16(low, high), rows->flip);
}

/* The next two compute 32 and 16 positions of a row from `at` on. Packing works within each
 * 16-byte half of a vector, so a permutation puts the bytes back in order. */
__attribute__((always_inline)) static inline void requantize_32(const struct rows *rows,
                                                                const struct row *row,
                                                                const int32_t *sums, size_t at,
                                                                uint8_t *y, const bool plain)
{
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    const __m256i low = add_zero_point(rows, scale_row_8(rows, row, sums, at, plain),
                                       scale_row_8(rows, row, sums, at + 8, plain));
    const __m256i high = add_zero_point(rows, scale_row_8(rows, row, sums, at + 16, plain),
                                        scale_row_8(rows, row, sums, at + 24, plain));
    _mm256_storeu_si256((void *)y, _mm256_permutevar8x32_epi32(pack_bytes(rows, low, high), order));
}

__attribute__((always_inline)) static inline void requantize_16(const struct rows *rows,
                                                                const struct row *row,
                                                                const int32_t *sums, size_t at,
                                                                uint8_t *y, const bool plain)
{
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 0, 4, 1, 5);
    const __m256i words = add_zero_point(rows, scale_row_8(rows, row, sums, at, plain),
                                         scale_row_8(rows, row, sums, at + 8, plain));
    const __m256i bytes = _mm256_permutevar8x32_epi32(pack_bytes(rows, words, words), order);
    _mm_storeu_si128((void *)y, _mm256_castsi256_si128(bytes));
}

/* Computes `count` neighbouring positions of a row from `first` on, at least 16, and stores them at
 * `y`. The last vector begins earlier if it would not be full. */
__attribute__((always_inline)) static inline void
requantize_run(const struct rows *rows, const struct row *row, const int32_t *sums, size_t first,
               size_t count, uint8_t *y, const bool plain)
{
    size_t done = 0;
    for (; done + 32 <= count; done += 32)
        requantize_32(rows, row, sums, first + done, y + done, plain);
    if (count - done > 16)
        requantize_16(rows, row, sums, first + done, y + done, plain);
    if (done < count)
        requantize_16(rows, row, sums, first + count - 16, y + count - 16, plain);
}

/* A run of positions that a segment keeps. */
struct run {
    size_t first, count;
};

static inline struct run first_run(uint64_t keep)
{
    const size_t first = (size_t)__builtin_ctzll(keep);
    const uint64_t beyond = ~(keep >> first);
    return (struct run){first, beyond == 0 ? QK_IGEMM_NR : (size_t)__builtin_ctzll(beyond)};
}

static inline uint64_t keep_after(uint64_t keep, struct run run)
{
    const size_t end = run.first + run.count;
    return end < QK_IGEMM_NR ? keep >> end << end : 0;
}

/* How up to 16 positions without gaps are stored: as two parts that may overlap, the first and the
 * last 8 positions, or the first and the last 4 if there are fewer than 8. */
struct dense {
    size_t count;        /* 4 to 16 */
    __m256i front, back; /* permutations that move a part to the beginning of each half */
};

static inline struct dense dense_for(size_t skipped, size_t count)
{
    const __m256i index = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
    const size_t part = count >= 8 ? 8 : 4;
    return (struct dense){count, _mm256_add_epi8(index, _mm256_set1_epi8((char)skipped)),
                          _mm256_add_epi8(index, _mm256_set1_epi8((char)(skipped + count - part)))};
}

static inline void store_dense(size_t count, __m128i front, __m128i back, uint8_t *y)
{
    if (count >= 8) {
        _mm_storel_epi64((void *)y, front);
        _mm_storel_epi64((void *)(y + count - 8), back);
    } else {
        _mm_storeu_si32(y, front);
        _mm_storeu_si32(y + count - 4, back);
    }
}

/* Like requantize_run, for less than 16 positions. With `room`, 16 bytes at `y` may be written. */
__attribute__((always_inline)) static inline void
requantize_short_run(const struct rows *rows, const struct row *row, const int32_t *sums,
                     struct run run, bool room, uint8_t *y, const bool plain)
{
    const size_t at = qk_size_min(run.first, QK_IGEMM_NR - 16);
    if (room && at == run.first) {
        requantize_16(rows, row, sums, at, y, plain);
        return;
    }
    uint8_t bytes[16];
    requantize_16(rows, row, sums, at, bytes, plain);
    if (run.count >= 4) {
        const struct dense dense = dense_for(run.first - at, run.count);
        const __m128i all = _mm_loadu_si128((const void *)bytes);
        store_dense(run.count, _mm_shuffle_epi8(all, _mm256_castsi256_si128(dense.front)),
                    _mm_shuffle_epi8(all, _mm256_castsi256_si128(dense.back)), y);
    } else {
        for (size_t i = 0; i < run.count; i++)
            y[i] = bytes[run.first - at + i];
    }
}

/* Requantizes a tile run by run. A short run may write bytes of the next ones. */
__attribute__((always_inline)) static inline void
requantize_runs(const struct qk_epilogue_tile *tile, const bool plain)
{
    const struct rows rows = load_rows(tile);
    for (size_t i = 0; i < tile->segment_count; i++) {
        uint8_t *to = tile->y + tile->segments[i].offset;
        struct run run;
        for (uint64_t keep = tile->segments[i].keep; keep != 0; keep = keep_after(keep, run)) {
            const int32_t *sums = tile->sums;
            uint8_t *y = to;
            const bool room = _mm_popcnt_u64(keep) >= 16;
            run = first_run(keep);
            for (size_t r = 0; r < tile->rows; r++, sums += QK_IGEMM_NR, y += tile->y_stride) {
                const struct row row = load_row(tile, r);
                if (run.count == QK_IGEMM_NR) { /* most runs, so without branches */
                    requantize_32(&rows, &row, sums, 0, y, plain);
                    requantize_32(&rows, &row, sums, 32, y + 32, plain);
                } else if (run.count >= 16) {
                    requantize_run(&rows, &row, sums, run.first, run.count, y, plain);
                } else {
                    requantize_short_run(&rows, &row, sums, run, room, y, plain);
                }
            }
            to += run.count;
        }
    }
}

/* Returns true if the tile has no zero points of weights, and no scaled sum can leave the range of
 * int32. This is so with multipliers below 1. */
static inline bool is_plain(const struct qk_epilogue_tile *tile)
{
    bool plain = !tile->w_zero_point;
    for (size_t r = 0; r < tile->rows; r++)
        plain = plain && fabsf(tile->multiplier[r]) < 1;
    return plain;
}

/* Requantizes a tile whose sums lie row by row. */
static void requantize_rows(const struct qk_epilogue_tile *tile)
{
    if (is_plain(tile))
        requantize_runs(tile, true);
    else
        requantize_runs(tile, false);
}

/* ---- Requantize, by position ------------------------------------------------------------- */

/* The constants of 8 rows of a tile whose sums lie position by position. Each row has a lane. */
struct lanes {
    const int32_t *sums;
    __m256i bias, w_zero_point, y_zero_point;
    __m256 multiplier, high;
    bool saturate; /* no scaled sum leaves the range of int32, so `high` needs no clamp */
};

/* Lanes beyond the last row get values that nothing uses. */
static inline struct lanes load_lanes(const struct qk_epilogue_tile *tile, size_t row)
{
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i there = _mm256_cmpgt_epi32(_mm256_set1_epi32((int)(tile->rows - row)), lane);
    struct lanes lanes = {
        .sums = tile->sums + row,
        .bias = _mm256_maskload_epi32(tile->bias + row, there),
        .w_zero_point = _mm256_setzero_si256(),
        .y_zero_point = _mm256_set1_epi16((int16_t)tile->epilogue->requantize.zero_point),
        .multiplier = _mm256_maskload_ps(tile->multiplier + row, there),
        .high = _mm256_set1_ps(tile->epilogue->requantize.high),
    };
    /* Absolute values of floats compare like integers. With a multiplier below 1 no scaled sum
     * leaves the range of int32. */
    const __m256i size =
        _mm256_and_si256(_mm256_castps_si256(lanes.multiplier), _mm256_set1_epi32(INT32_MAX));
    const __m256i large = _mm256_cmpgt_epi32(size, _mm256_set1_epi32(0x3f7fffff));
    lanes.saturate = _mm256_testz_si256(large, large);
    if (tile->w_zero_point)
        lanes.w_zero_point = _mm256_maskload_epi32(tile->w_zero_point + row, there);
    return lanes;
}

/* Scales and rounds the sums of one position. `plain`: they need no clamp and no correction for a
 * zero point of weights. */
__attribute__((always_inline)) static inline __m256i
requantize_position(const struct qk_epilogue_tile *tile, const struct lanes *lanes, size_t position,
                    const bool plain)
{
    const int32_t *from = lanes->sums + position * tile->row_count;
    __m256i sums = _mm256_add_epi32(lanes->bias, _mm256_loadu_si256((const void *)from));
    if (plain)
        return _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_cvtepi32_ps(sums), lanes->multiplier));
    if (tile->w_zero_point)
        sums = _mm256_sub_epi32(sums,
                                _mm256_mullo_epi32(lanes->w_zero_point,
                                                   _mm256_set1_epi32(tile->column_sums[position])));
    return qk_requantize_scale_8(sums, lanes->multiplier, lanes->high);
}

/* Computes the bytes of four positions from `first` on. Each group of 4 bytes belongs to one row.
 */
__attribute__((always_inline)) static inline __m256i
requantize_four(const struct qk_epilogue_tile *tile, const struct lanes *lanes, size_t first,
                const bool plain)
{
    const __m256i order = _mm256_setr_epi32(0x0c080400, 0x0d090501, 0x0e0a0602, 0x0f0b0703,
                                            0x0c080400, 0x0d090501, 0x0e0a0602, 0x0f0b0703);
    __m256i y[4];
#pragma GCC unroll 4
    for (size_t i = 0; i < 4; i++)
        y[i] = requantize_position(tile, lanes, first + i, plain);
    const __m256i low = _mm256_adds_epi16(_mm256_packs_epi32(y[0], y[1]), lanes->y_zero_point);
    const __m256i high = _mm256_adds_epi16(_mm256_packs_epi32(y[2], y[3]), lanes->y_zero_point);
    return _mm256_shuffle_epi8(tile->epilogue->requantize.is_signed
                                   ? _mm256_packs_epi16(low, high)
                                   : _mm256_packus_epi16(low, high),
                               order);
}

/* Computes the bytes of 8 rows by up to 16 positions, four positions at a time. The bytes of row r
 * are in half r / 4 of bytes[r % 4]. */
__attribute__((always_inline)) static inline void
requantize_lanes(const struct qk_epilogue_tile *tile, const struct lanes *lanes, __m256i bytes[4],
                 const bool plain)
{
    __m256i fours[4];
#pragma GCC unroll 4
    for (size_t i = 0; i < 4; i++)
        fours[i] = 4 * i < tile->positions ? requantize_four(tile, lanes, 4 * i, plain)
                                           : _mm256_setzero_si256();
    const __m256i low_01 = _mm256_unpacklo_epi32(fours[0], fours[1]);
    const __m256i high_01 = _mm256_unpackhi_epi32(fours[0], fours[1]);
    const __m256i low_23 = _mm256_unpacklo_epi32(fours[2], fours[3]);
    const __m256i high_23 = _mm256_unpackhi_epi32(fours[2], fours[3]);
    bytes[0] = _mm256_unpacklo_epi64(low_01, low_23);
    bytes[1] = _mm256_unpackhi_epi64(low_01, low_23);
    bytes[2] = _mm256_unpacklo_epi64(high_01, high_23);
    bytes[3] = _mm256_unpackhi_epi64(high_01, high_23);
}

static inline void store_lanes(const __m256i bytes[4], size_t rows,
                               const struct qk_tile_segment *segment, uint8_t *y, size_t y_stride)
{
    const uint64_t keep = segment->keep;
    const size_t skipped = (size_t)__builtin_ctzll(keep);
    const size_t count = (size_t)_mm_popcnt_u64(keep);
    y += segment->offset;
    if (count >= 4 && keep >> skipped == (UINT64_C(1) << count) - 1) {
        const struct dense dense = dense_for(skipped, count);
#pragma GCC unroll 4
        for (size_t r = 0; r < 4; r++, y += y_stride) {
            const __m256i front = _mm256_shuffle_epi8(bytes[r], dense.front);
            const __m256i back = _mm256_shuffle_epi8(bytes[r], dense.back);
            if (r < rows)
                store_dense(count, _mm256_castsi256_si128(front), _mm256_castsi256_si128(back), y);
            if (r + 4 < rows)
                store_dense(count, _mm256_extracti128_si256(front, 1),
                            _mm256_extracti128_si256(back, 1), y + 4 * y_stride);
        }
        return;
    }
    uint8_t stored[4][2][16];
    memcpy(stored, bytes, sizeof(stored));
    for (size_t r = 0; r < rows; r++, y += y_stride)
        store_kept(stored[r % 4][r / 4], keep, y);
}

/* Requantizes a tile whose sums lie position by position. */
static void requantize_positions(const struct qk_epilogue_tile *tile)
{
    for (size_t row = 0; row < tile->rows; row += 8) {
        const struct lanes lanes = load_lanes(tile, row);
        __m256i bytes[4];
        if (lanes.saturate && !tile->w_zero_point)
            requantize_lanes(tile, &lanes, bytes, true);
        else
            requantize_lanes(tile, &lanes, bytes, false);
        for (size_t i = 0; i < tile->segment_count; i++)
            store_lanes(bytes, qk_size_min(tile->rows - row, 8), &tile->segments[i],
                        tile->y + row * tile->y_stride, tile->y_stride);
    }
}

static void requantize_tile(const struct qk_epilogue_tile *tile)
{
    if (tile->row_count > 0)
        requantize_positions(tile);
    else
        requantize_rows(tile);
}

static void fill_words(const struct qk_slab_fill *job)
{
    fill(job, 2);
}

static void fill_bytes(const struct qk_slab_fill *job)
{
    fill(job, 4);
}

const struct qk_slab_kernels qk_slab_kernels_s16x2__avx2 = {
    .fill = fill_words,
    .epilogues =
        {[QK_EPILOGUE_BYTES] = requantize_rows, [QK_EPILOGUE_INT32] = qk_any_epilogue__avx2},
    .any_epilogue = qk_any_epilogue__avx2,
};
const struct qk_slab_kernels qk_slab_kernels_u8x4__avx2 = {
    .fill = fill_bytes,
    .epilogues =
        {[QK_EPILOGUE_BYTES] = requantize_tile, [QK_EPILOGUE_INT32] = qk_any_epilogue__avx2},
    .any_epilogue = qk_any_epilogue__avx2,
    .transpose = transpose,
};

#endif
