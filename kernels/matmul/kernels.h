/* The kernels of matrix products besides the products themselves: making quads, and computing y
 * from sums. Private to matmul/, dispatch and tests. */
#pragma once

#include "kernels/matmul/matmul.h"

/* The job of `fill`, which makes quads of `items` rows of A, or columns of B. Term k of item i is
 * from[k * term_stride + i * item_stride]. The quad of terms 4 s to 4 s + 3 of item i goes to
 * to + slab_at(s) + i * to_item, where slab_at is s * to_slab or, with `pairs`, as kernels with
 * pairs of slabs need it (kernels/gemm/igemm.h). Missing terms of the last quad become 0. */
struct qk_matmul_fill {
    const uint8_t *from;
    size_t term_stride, item_stride; /* one of them is 1 */
    size_t terms, items;
    uint8_t flip; /* every byte is xored with this */
    uint8_t *to;
    size_t to_slab, to_item;
    bool pairs;
    bool is_signed; /* the flipped bytes are signed numbers */
    int32_t *sums;  /* [items]; the sum of each item's flipped terms is added, modulo 2^32 */
};

/* What `columns` computes a panel's columns from. Pointers are to the panel's first column. */
struct qk_matmul_columns_from {
    const int32_t *sums;       /* of the packed weights; `columns` may write its biases there */
    const uint8_t *zero_point; /* NULL: 0 */
    bool zero_point_each, zero_point_signed;
    int32_t zero_point_moved; /* how much smaller the zero points of packed weights are */
    int32_t a_offset;         /* the zero point of stored A */
    size_t k;
    const uint8_t *scale; /* NULL: multipliers are not read */
    bool scale_each;
    float a_scale, y_scale;
    bool divides;     /* multipliers are divided by y_scale */
    const uint8_t *c; /* int32, added to the bias; NULL: nothing is */
    size_t c_column;
};

/* The job of `finish`, which computes a part of y. Sums lie row by row, `sums_stride` apart. */
struct qk_matmul_tile {
    enum qk_matmul_kind kind;
    size_t rows, columns;
    const int32_t *sums;
    size_t sums_stride;
    const int32_t *row_sums; /* [rows] */
    struct qk_matmul_columns of_columns;
    const uint8_t *c;       /* of row 0 and column 0, int32; NULL: none, or in the bias */
    size_t c_row, c_column; /* strides, in elements */
    struct qk_requantize requantize;
    uint8_t *y;
    size_t y_stride; /* from row to row, in bytes */
};

struct qk_matmul_kernels {
    void (*fill)(const struct qk_matmul_fill *job);
    /* count: at most QK_IGEMM_MR_MAX. Writes `count` elements of each array. */
    void (*columns)(const struct qk_matmul_columns_from *job, size_t count,
                    const struct qk_matmul_columns *to);
    void (*finish)(const struct qk_matmul_tile *tile);
    /* to[position * QK_IGEMM_MR_MAX + row] = from[row * QK_IGEMM_NR + position]. Positions are
     * rounded up to a multiple of 4. */
    void (*transpose)(const int32_t *from, size_t rows, size_t positions, int32_t *to);
};

extern const struct qk_matmul_kernels qk_matmul_kernels__scalar;
extern const struct qk_matmul_kernels qk_matmul_kernels__avx2;
extern const struct qk_matmul_kernels qk_matmul_kernels__avx512bw;
extern const struct qk_matmul_kernels qk_matmul_kernels__neon;
