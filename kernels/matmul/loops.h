/* The kernels of kernels.h in plain C. Each tier compiles them with its own flags, and the compiler
 * vectorizes them. All arithmetic is that of integers or single float operations, so every tier
 * gives the same bits. TABLE is the name of the tier's table. */
#pragma once

#include <string.h>

#include "kernels/conv/requantize.h"
#include "kernels/element/load.h"
#include "kernels/matmul/kernels.h"
#include "kernels/wrap.h"

/* Quads that are made at a time. */
#define CHUNK ((size_t)16)

/* A vector of 4 sums or quads, wherever they lie. */
typedef int32_t four __attribute__((vector_size(16), aligned(1)));

/* Transposes a matrix of 4 x 4. */
static inline void transpose_fours(four rows[4])
{
    const four a = __builtin_shufflevector(rows[0], rows[1], 0, 4, 1, 5);
    const four b = __builtin_shufflevector(rows[0], rows[1], 2, 6, 3, 7);
    const four c = __builtin_shufflevector(rows[2], rows[3], 0, 4, 1, 5);
    const four d = __builtin_shufflevector(rows[2], rows[3], 2, 6, 3, 7);
    rows[0] = __builtin_shufflevector(a, c, 0, 1, 4, 5);
    rows[1] = __builtin_shufflevector(a, c, 2, 3, 6, 7);
    rows[2] = __builtin_shufflevector(b, d, 0, 1, 4, 5);
    rows[3] = __builtin_shufflevector(b, d, 2, 3, 6, 7);
}

static inline size_t slab_at(const struct qk_matmul_fill *job, size_t slab)
{
    const size_t second = job->pairs ? slab % 2 : 0;
    return (slab - second) * job->to_slab + second * QK_IGEMM_QUAD_BYTES;
}

/* Makes up to CHUNK quads of `terms` terms each. */
static inline void make_quads(const struct qk_matmul_fill *job, const uint8_t *from, size_t terms,
                              size_t items, uint32_t quads[CHUNK])
{
    if (terms == 4 && job->term_stride == 1) {
        for (size_t i = 0; i < items; i++)
            memcpy(&quads[i], from + i * job->item_stride, sizeof(quads[i]));
        return;
    }
    const size_t stride = job->term_stride;
    if (terms == 4 && job->item_stride == 1 && items == CHUNK) {
        for (size_t i = 0; i < CHUNK; i++)
            quads[i] = from[i] | (uint32_t)from[stride + i] << 8 |
                       (uint32_t)from[2 * stride + i] << 16 | (uint32_t)from[3 * stride + i] << 24;
        return;
    }
    for (size_t i = 0; i < items; i++) {
        quads[i] = 0;
        for (size_t k = 0; k < terms; k++)
            quads[i] |= (uint32_t)from[k * stride + i * job->item_stride] << 8 * k;
    }
}

/* Flips the quads and adds their bytes to the sums. */
QK_WRAPS static inline void add_quads(const struct qk_matmul_fill *job, uint32_t flips,
                                      size_t items, uint32_t quads[CHUNK], int32_t *sums)
{
    const uint32_t sign = job->is_signed ? UINT32_C(0x80808080) : 0;
    const uint32_t less = job->is_signed ? 4 * 128 : 0;
    for (size_t i = 0; i < items; i++) {
        quads[i] ^= flips;
        const uint32_t bytes = quads[i] ^ sign;
        const uint32_t sum =
            (bytes & 255) + (bytes >> 8 & 255) + (bytes >> 16 & 255) + (bytes >> 24);
        sums[i] = (int32_t)((uint32_t)sums[i] + sum - less);
    }
}

/* Makes the quads of `items` items, at most CHUNK. */
QK_WRAPS static inline void fill_chunk(const struct qk_matmul_fill *job, size_t first, size_t items)
{
    const struct qk_matmul_fill here = *job; /* local, so that stores cannot change it */
    const size_t slabs = (here.terms + 3) / 4;
    const uint8_t *from = here.from + first * here.item_stride;
    uint8_t *const to = here.to + first * here.to_item;
    int32_t sums[CHUNK] = {0};
    uint32_t quads[CHUNK];
    for (size_t s = 0; s < slabs; s++, from += 4 * here.term_stride) {
        const size_t terms = here.terms - 4 * s < 4 ? here.terms - 4 * s : 4;
        const uint32_t flips = (here.flip * UINT32_C(0x01010101)) >> 8 * (4 - terms);
        make_quads(&here, from, terms, items, quads);
        add_quads(&here, flips, items, quads, sums);
        uint8_t *slab = to + slab_at(&here, s);
        if (here.to_item == QK_IGEMM_QUAD_BYTES)
            memcpy(slab, quads, items * QK_IGEMM_QUAD_BYTES);
        else
            for (size_t i = 0; i < items; i++)
                memcpy(slab + i * here.to_item, &quads[i], QK_IGEMM_QUAD_BYTES);
    }
    for (size_t i = 0; i < items; i++)
        job->sums[first + i] = (int32_t)((uint32_t)job->sums[first + i] + (uint32_t)sums[i]);
}

/* Adds the flipped terms of one item, which are neighbours, to its sum. */
QK_WRAPS static inline void add_item(const struct qk_matmul_fill *job, size_t item)
{
    const uint8_t *from = job->from + item * job->item_stride;
    const uint8_t sign = job->is_signed ? 0x80 : 0;
    const uint8_t flip = job->flip ^ sign;
    uint32_t sum = 0;
    for (size_t k = 0; k < job->terms; k++)
        sum += (uint8_t)(from[k] ^ flip);
    job->sums[item] = (int32_t)((uint32_t)job->sums[item] + sum - (uint32_t)job->terms * sign);
}

/* Makes the quads of one item whose terms are neighbours, from slab `first` on. */
static inline void fill_item(const struct qk_matmul_fill *job, size_t item, size_t first)
{
    const size_t slabs = job->terms / 4;
    const size_t rest = job->terms % 4;
    const size_t to_slab = job->to_slab;
    const uint8_t *from = job->from + item * job->item_stride;
    uint8_t *restrict to = job->to + item * job->to_item;
    const uint8_t flip = job->flip;
    if (to_slab == QK_IGEMM_QUAD_BYTES)
        for (size_t k = 4 * first; k < 4 * slabs; k++)
            to[k] = from[k] ^ flip;
    else
        for (size_t s = first; s < slabs; s++) {
            uint32_t quad;
            memcpy(&quad, from + 4 * s, sizeof(quad));
            quad ^= flip * UINT32_C(0x01010101);
            memcpy(to + s * to_slab, &quad, sizeof(quad));
        }
    for (size_t k = 0; rest > 0 && k < 4; k++)
        to[slabs * to_slab + k] = k < rest ? from[4 * slabs + k] ^ flip : 0;
}

/* Makes the quads of 4 items, whose terms and whose quads are neighbours. */
static inline void fill_four(const struct qk_matmul_fill *job, size_t item)
{
    const struct qk_matmul_fill here = *job; /* local, so that stores cannot change it */
    const int32_t flips = (int32_t)(here.flip * UINT32_C(0x01010101));
    const uint8_t *from = here.from + item * here.item_stride;
    uint8_t *to = here.to + item * QK_IGEMM_QUAD_BYTES;
    size_t slab = 0;
    for (; slab + 4 <= here.terms / 4; slab += 4, from += sizeof(four)) {
        four fours[4];
        for (size_t i = 0; i < 4; i++)
            fours[i] = *(const four *)(const void *)(from + i * here.item_stride) ^ flips;
        transpose_fours(fours);
        for (size_t i = 0; i < 4; i++, to += here.to_slab)
            *(four *)(void *)to = fours[i];
    }
    for (size_t i = 0; i < 4; i++)
        fill_item(job, item + i, slab);
}

/* Makes the quads of items whose terms are neighbours, and adds the terms to the sums. */
static void fill_items(const struct qk_matmul_fill *job)
{
    size_t item = 0;
    for (; job->to_item == QK_IGEMM_QUAD_BYTES && item + 4 <= job->items; item += 4)
        fill_four(job, item);
    for (; item < job->items; item++)
        fill_item(job, item, 0);
    for (item = 0; item < job->items; item++)
        add_item(job, item);
}

static void fill(const struct qk_matmul_fill *job)
{
    size_t first = 0;
    if (job->term_stride == 1 && !job->pairs) {
        fill_items(job);
        return;
    }
    for (; job->items - first >= CHUNK; first += CHUNK)
        fill_chunk(job, first, CHUNK); /* a constant makes this fast */
    if (first < job->items)
        fill_chunk(job, first, job->items - first);
}

/* Computes `count` columns from `from`; `each` is 0 if all columns share the parameter. */
QK_WRAPS static void columns(const struct qk_matmul_columns_from *job, size_t count,
                             const struct qk_matmul_columns *to)
{
    const struct qk_matmul_columns_from from = *job;
    struct {
        int32_t zero_point[QK_IGEMM_MR_MAX], bias[QK_IGEMM_MR_MAX];
        float multiplier[QK_IGEMM_MR_MAX];
    } made; /* the loops below set all of it */
    int32_t sums[QK_IGEMM_MR_MAX] = {0};
    uint8_t zero_points[QK_IGEMM_MR_MAX] = {0};
    float scales[QK_IGEMM_MR_MAX] = {0};
    memcpy(sums, from.sums, count * sizeof(sums[0]));
    if (from.zero_point && from.zero_point_each)
        memcpy(zero_points, from.zero_point, count);
    else if (from.zero_point)
        memset(zero_points, from.zero_point[0], sizeof(zero_points));
    if (from.scale && from.scale_each)
        memcpy(scales, from.scale, count * sizeof(scales[0]));
    for (size_t j = 0; from.scale && !from.scale_each && j < QK_IGEMM_MR_MAX; j++)
        scales[j] = qk_load_f32(from.scale, 0);
    for (size_t j = 0; j < QK_IGEMM_MR_MAX; j++) {
        const int32_t sign = from.zero_point_signed ? 128 : 0;
        const int32_t zero_point = (int32_t)(zero_points[j] ^ (uint8_t)sign) - sign;
        made.zero_point[j] = zero_point - from.zero_point_moved;
        made.bias[j] = (int32_t)(0 - (uint32_t)from.a_offset *
                                         ((uint32_t)sums[j] -
                                          (uint32_t)from.k * (uint32_t)made.zero_point[j]));
    }
    for (size_t j = 0; from.c && j < count; j++)
        made.bias[j] =
            (int32_t)((uint32_t)made.bias[j] + (uint32_t)qk_load_i32(from.c, j * from.c_column));
    for (size_t j = 0; j < QK_IGEMM_MR_MAX; j++)
        made.multiplier[j] = from.a_scale * scales[j];
    for (size_t j = 0; from.divides && j < QK_IGEMM_MR_MAX; j++)
        made.multiplier[j] = made.multiplier[j] / from.y_scale;
    memcpy(to->zero_point, made.zero_point, count * sizeof(made.zero_point[0]));
    memcpy(to->bias, made.bias, count * sizeof(made.bias[0]));
    memcpy(to->multiplier, made.multiplier, count * sizeof(made.multiplier[0]));
}

/* Columns that are finished at a time: a panel of most kernels, or two. */
#define BLOCK ((size_t)32)

/* Adds C to `count` sums of a row, from column `first` on. */
QK_WRAPS static inline void add_c(const struct qk_matmul_tile *tile, size_t row, size_t first,
                                  size_t count, int32_t acc[BLOCK])
{
    const size_t at = row * tile->c_row + first * tile->c_column;
    const uint8_t *c = tile->c;
    if (tile->c_column == 1) /* a loop of its own, which compilers vectorize */
        for (size_t j = 0; j < count; j++)
            acc[j] = (int32_t)((uint32_t)acc[j] + (uint32_t)qk_load_i32(c, at + j));
    else
        for (size_t j = 0; j < count; j++)
            acc[j] =
                (int32_t)((uint32_t)acc[j] + (uint32_t)qk_load_i32(c, at + j * tile->c_column));
}

/* A tier may define REQUANTIZE_BLOCK, a function like this one, before it includes this file:
 * compilers do not vectorize the conversion of a block to bytes if the block is short. */
#ifndef REQUANTIZE_BLOCK
#define REQUANTIZE_BLOCK requantize_block
static inline void requantize_block(const struct qk_requantize *to, const int32_t *sums,
                                    const float *multipliers, size_t count, uint8_t *bytes)
{
    uint8_t made[BLOCK]; /* local, so that stores cannot change what the loop reads */
    for (size_t j = 0; j < count; j++)
        made[j] = qk_requantize_one(*to, sums[j], multipliers[j]);
    memcpy(bytes, made, count);
}
#endif

/* Computes `count` columns of a row of y, at most BLOCK, from column `first` on. */
QK_WRAPS static inline void finish_block(const struct qk_matmul_tile *tile, size_t row,
                                         size_t first, size_t count)
{
    const struct qk_requantize to = tile->requantize;
    const int32_t *sums = tile->sums + row * tile->sums_stride + first;
    const int32_t *zero_points = tile->of_columns.zero_point + first;
    const int32_t *biases = tile->of_columns.bias + first;
    const float *multipliers = tile->of_columns.multiplier + first;
    const uint32_t row_sum = (uint32_t)tile->row_sums[row];
    uint8_t *y = tile->y + row * tile->y_stride;
    int32_t acc[BLOCK];
    for (size_t j = 0; j < count; j++)
        acc[j] =
            (int32_t)((uint32_t)sums[j] + (uint32_t)biases[j] - (uint32_t)zero_points[j] * row_sum);
    if (tile->c)
        add_c(tile, row, first, count, acc);
    if (tile->kind == QK_MATMUL_INT32) {
        memcpy(y + first * sizeof(acc[0]), acc, count * sizeof(acc[0]));
    } else if (tile->kind == QK_MATMUL_FLOAT) {
        float floats[BLOCK];
        for (size_t j = 0; j < count; j++)
            floats[j] = (float)acc[j] * multipliers[j];
        memcpy(y + first * sizeof(floats[0]), floats, count * sizeof(floats[0]));
    } else {
        REQUANTIZE_BLOCK(&to, acc, multipliers, count, y + first);
    }
}

/* Constant numbers of columns make blocks fast. */
static void finish(const struct qk_matmul_tile *tile)
{
    const struct qk_matmul_tile here = *tile;
    for (size_t row = 0; row < here.rows; row++) {
        size_t first = 0;
        for (; here.columns - first >= BLOCK; first += BLOCK)
            finish_block(&here, row, first, BLOCK);
        if (here.columns - first >= BLOCK / 2) {
            finish_block(&here, row, first, BLOCK / 2);
            first += BLOCK / 2;
        }
        if (first < here.columns)
            finish_block(&here, row, first, here.columns - first);
    }
}

static void transpose(const int32_t *from, size_t rows, size_t positions, int32_t *to)
{
    size_t row = 0;
    for (; row + 4 <= rows; row += 4)
        for (size_t position = 0; position < positions; position += 4) {
            four fours[4];
            for (size_t i = 0; i < 4; i++)
                fours[i] = *(const four *)(from + (row + i) * QK_IGEMM_NR + position);
            transpose_fours(fours);
            for (size_t i = 0; i < 4; i++)
                *(four *)(to + (position + i) * QK_IGEMM_MR_MAX + row) = fours[i];
        }
    for (; row < rows; row++)
        for (size_t position = 0; position < positions; position++)
            to[position * QK_IGEMM_MR_MAX + row] = from[row * QK_IGEMM_NR + position];
}

const struct qk_matmul_kernels TABLE = {
    .fill = fill, .columns = columns, .finish = finish, .transpose = transpose};
