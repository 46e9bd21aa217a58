/* What a convolution on integer products needs besides them, for one kind of cell and vector unit.
 * Private to conv/. */
#ifndef KERNELS_CONV_IGEMM_SLAB_KERNELS_H
#define KERNELS_CONV_IGEMM_SLAB_KERNELS_H

#include "kernels/conv/conv.h"
#include "kernels/conv/window.h"

/* Cells of windows: cell (i, j) lies at i * pitch + j and holds that element of each source. */
struct qk_slab_fill {
    const uint8_t *planes[4];           /* NULL: all is padding. As many as cells have terms */
    const struct qk_window *windows[4]; /* differ in their first columns at most */
    enum qk_type x_type;
    int32_t x_zero_point; /* which padding holds; taken off where cells are words */
    uint8_t *cells;
};

/* Positions of a tile that lie together in y. */
struct qk_requantize_stretch {
    uint64_t keep; /* not 0 */
    size_t offset; /* of the first of them, from qk_requantize_tile.y */
};

/* A tile of sums to bytes: sum + bias - w_zero_point * column_sum, modulo 2^32, then as in
 * kernels/conv/requantize.h. */
struct qk_requantize_tile {
    const struct qk_requantize *requantize;
    bool y_signed;
    const int32_t *sums; /* [rows][QK_IGEMM_NR] */
    size_t rows;
    const int32_t *bias; /* this and the next two: [rows] */
    const float *multiplier;
    const int32_t *w_zero_point; /* NULL: 0 for all, as always where cells are words */
    const int32_t *column_sums;  /* [QK_IGEMM_NR]; read where there is a w_zero_point */
    size_t vectors;              /* 1 to 4, of 16 positions: all that are wanted are in them */
    const struct qk_requantize_stretch *stretches;
    size_t stretch_count;
    uint8_t *y; /* of row 0 */
    size_t y_stride;
};

/* Rows of weights, each of some K blocks of up to 64 channels: [k_blocks][channels][taps] to
 * [k_blocks][taps][64], with zeros behind the channels. */
struct qk_transpose {
    const uint8_t *from;
    size_t rows, from_row_stride;
    size_t k_blocks;
    size_t channels; /* 1 to 64 */
    size_t taps;     /* 1 to QK_TRANSPOSE_TAPS */
    uint8_t flip;    /* every byte is xored with it; then it is signed */
    uint8_t *to;
    size_t to_row_stride, to_tap_stride;
    int32_t *sums; /* [rows], to which the sum of each row is added */
};

#define QK_TRANSPOSE_TAPS 64

struct qk_slab_kernels {
    void (*fill)(const struct qk_slab_fill *job);
    void (*requantize)(const struct qk_requantize_tile *tile);
    void (*transpose)(const struct qk_transpose *job); /* NULL: there is none */
};

extern const struct qk_slab_kernels qk_slab_kernels_s16x2__avx2; /* of words */
extern const struct qk_slab_kernels qk_slab_kernels_u8x4__avx2;
extern const struct qk_slab_kernels qk_slab_kernels_u8x4__avx512;

#endif
