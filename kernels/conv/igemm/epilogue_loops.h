/* `any_epilogue` of the slab kernels (slab_kernels.h) in plain C. Each tier compiles it with its
 * own flags, and the compiler vectorizes it. All arithmetic is that of integers or single float
 * operations, so every tier gives the same bits. EPILOGUE is the name of the function.
 *
 * A vector holds positions of one row or, if channels are last, rows of one position, so that
 * neighbouring lanes are neighbours in y. */
#pragma once

/* Nothing here compiles without a tier's file around it. */
#ifdef EPILOGUE

#include "kernels/conv/igemm/slab_kernels.h"
#include "kernels/conv/requantize.h"
#include "kernels/sizes.h"
#include "kernels/wrap.h"

/* Sums that are taken at a time. Every layout of sums has room for whole vectors of rows, because
 * kernels by position have a multiple of LANES rows. */
#define LANES ((size_t)16)

/* What the lanes of a vector are computed with. */
struct lanes {
    int32_t bias[LANES], zero_point[LANES], column_sum[LANES];
    float multiplier[LANES];
};

/* Stores LANES elements of y, of which only some may be wanted, in `y`. */
static inline void convert(const struct qk_epilogue *epilogue, const int32_t sums[LANES],
                           const float multiplier[LANES], uint8_t y[LANES * sizeof(int32_t)])
{
    const struct qk_requantize to = epilogue->requantize;
    uint8_t bytes[LANES];
    if (epilogue->kind == QK_EPILOGUE_INT32) {
        memcpy(y, sums, LANES * sizeof(sums[0]));
        return;
    }
#pragma GCC unroll 1
    for (size_t i = 0; i < LANES; i++) /* compilers vectorize a loop that they do not unroll */
        bytes[i] = qk_requantize_one(to, sums[i], multiplier[i]);
    memcpy(y, bytes, sizeof(bytes));
}

/* Adds the bias and subtracts the share of the zero points of w. */
QK_WRAPS static inline void complete(const struct lanes *with, int32_t sums[LANES])
{
    for (size_t i = 0; i < LANES; i++)
        sums[i] = (int32_t)((uint32_t)sums[i] + (uint32_t)with->bias[i] -
                            (uint32_t)with->zero_point[i] * (uint32_t)with->column_sum[i]);
}

/* ---- Positions in vectors ---------------------------------------------------------------- */

/* Computes the positions of a row, padded ones too, one after the other. */
static inline void finish_row(const struct qk_epilogue_tile *tile, size_t row, uint8_t *to)
{
    struct lanes with = {{0}, {0}, {0}, {0}};
    for (size_t i = 0; i < LANES; i++) {
        with.bias[i] = tile->bias[row];
        with.multiplier[i] = tile->multiplier[row];
        with.zero_point[i] = tile->w_zero_point ? tile->w_zero_point[row] : 0;
    }
    for (size_t at = 0; at < tile->positions; at += LANES) {
        const size_t count = qk_size_min(tile->positions - at, LANES);
        int32_t sums[LANES] = {0};
        if (tile->row_count == 0)
            memcpy(sums, tile->sums + row * QK_IGEMM_NR + at, sizeof(sums));
        else
            for (size_t i = 0; i < count; i++)
                sums[i] = tile->sums[(at + i) * tile->row_count + row];
        if (tile->w_zero_point)
            memcpy(with.column_sum, tile->column_sums + at, count * sizeof(with.column_sum[0]));
        complete(&with, sums);
        convert(tile->epilogue, sums, with.multiplier, to + at * tile->epilogue->y_bytes);
    }
}

/* Copies the elements whose bit is set in `keep`, run by run. */
static inline void store_kept(const uint8_t *from, uint64_t keep, size_t bytes, uint8_t *y)
{
    while (keep != 0) {
        const size_t first = (size_t)__builtin_ctzll(keep);
        const uint64_t beyond = ~(keep >> first);
        const size_t count = beyond == 0 ? 64 : (size_t)__builtin_ctzll(beyond);
        memcpy(y, from + first * bytes, count * bytes);
        y += count * bytes;
        keep = first + count >= 64 ? 0 : keep >> (first + count) << (first + count);
    }
}

static inline void finish_rows(const struct qk_epilogue_tile *tile)
{
    const size_t bytes = tile->epilogue->y_bytes;
    uint8_t y[QK_IGEMM_NR * sizeof(int32_t)];
    for (size_t row = 0; row < tile->rows; row++) {
        finish_row(tile, row, y);
        for (size_t i = 0; i < tile->segment_count; i++)
            store_kept(y, tile->segments[i].keep, bytes,
                       tile->y + (row * tile->y_stride + tile->segments[i].offset) * bytes);
    }
}

/* ---- Rows in vectors --------------------------------------------------------------------- */

/* Computes `count` rows from `first` on, at most LANES, of one position. */
__attribute__((always_inline)) static inline void
finish_position(const struct qk_epilogue_tile *tile, struct lanes *with, size_t first, size_t count,
                size_t position, uint8_t *y)
{
    int32_t sums[LANES] = {0};
    uint8_t made[LANES * sizeof(int32_t)];
    if (tile->row_count > 0)
        memcpy(sums, tile->sums + position * tile->row_count + first, sizeof(sums));
    else
        for (size_t i = 0; i < count; i++)
            sums[i] = tile->sums[(first + i) * QK_IGEMM_NR + position];
    for (size_t i = 0; i < LANES && tile->w_zero_point; i++)
        with->column_sum[i] = tile->column_sums[position];
    complete(with, sums);
    convert(tile->epilogue, sums, with->multiplier, made);
    memcpy(y, made, count * tile->epilogue->y_bytes);
}

/* Computes `count` rows from `first` on, at most LANES, of all positions. */
__attribute__((always_inline)) static inline void finish_lanes(const struct qk_epilogue_tile *tile,
                                                               size_t first, const size_t count)
{
    const size_t bytes = tile->epilogue->y_bytes;
    struct lanes with = {{0}, {0}, {0}, {0}};
    memcpy(with.bias, tile->bias + first, count * sizeof(with.bias[0]));
    memcpy(with.multiplier, tile->multiplier + first, count * sizeof(with.multiplier[0]));
    if (tile->w_zero_point)
        memcpy(with.zero_point, tile->w_zero_point + first, count * sizeof(with.zero_point[0]));
    for (size_t i = 0; i < tile->segment_count; i++) {
        uint8_t *y = tile->y + (tile->segments[i].offset * tile->position_stride + first) * bytes;
        for (uint64_t keep = tile->segments[i].keep; keep != 0; keep &= keep - 1) {
            finish_position(tile, &with, first, count, (size_t)__builtin_ctzll(keep), y);
            y += tile->position_stride * bytes;
        }
    }
}

/* A constant number of rows makes this fast. */
static inline void finish_positions(const struct qk_epilogue_tile *tile)
{
    size_t first = 0;
    for (; tile->rows - first >= LANES; first += LANES)
        finish_lanes(tile, first, LANES);
    if (first < tile->rows)
        finish_lanes(tile, first, tile->rows - first);
}

void EPILOGUE(const struct qk_epilogue_tile *tile)
{
    if (tile->y_stride == 1) /* channels are last, or a channel has one position */
        finish_positions(tile);
    else
        finish_rows(tile);
}

#endif
