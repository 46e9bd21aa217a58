/* What a convolution on integer products needs besides them, for one kind of cell and vector unit.
 * Private to conv/. */
#ifndef KERNELS_CONV_VECTOR_H
#define KERNELS_CONV_VECTOR_H

#include "kernels/conv/conv.h"

/* Where the columns or rows of a window that look inside begin and end. Where none does, the end is
 * not above the begin. */
struct qk_stage_range {
    size_t begin, end;
};

/* Copies a strided, padded window of one plane of x: element (i, j) of `to` is the plane's element
 * (row_first + i * row_stride, column_first + j * column_stride), or `fill` outside of it. Rows of
 * `to` lie `pitch` bytes apart, which may be less than `columns`: a later row wins. */
struct qk_stage {
    int64_t in_rows, in_columns;
    int64_t row_first, column_first;
    int64_t row_stride, column_stride;
    size_t rows, columns, pitch;
    uint8_t fill;
    uint8_t flip; /* all that is written is xored with it */
    /* Set by qk_stage_fit: */
    struct qk_stage_range inside_rows, inside_columns;
};

/* QK_STAGE_SLACK bytes more than the window may change. */
#define QK_STAGE_SLACK 64

void qk_stage_fit(struct qk_stage *job);

/* Puts bytes of `cell_k` sources side by side: cell i is the i-th element of each. */
struct qk_interleave {
    const uint8_t *from[4];
    size_t count;
    enum qk_type x_type;
    int32_t x_zero_point; /* taken off where cells are words */
    uint8_t *cells;       /* a whole vector of them may be written: 60 bytes more than `count` */
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
    uint64_t keep;               /* the positions that are wanted; not 0 */
    uint8_t *y;                  /* where those of row 0 go, without gaps */
    size_t y_stride;             /* to the next row's */
};

/* Rows of weights, each of some blocks of up to 64 channels: [blocks][channels][taps] to
 * [blocks][taps][64], with zeros behind the channels. */
struct qk_transpose {
    const uint8_t *from;
    size_t rows, from_row_stride;
    size_t blocks;
    size_t channels; /* 1 to 64 */
    size_t taps;     /* 1 to QK_TRANSPOSE_TAPS */
    uint8_t flip;    /* every byte is xored with it; then it is signed */
    uint8_t *to;
    size_t to_row_stride, to_tap_stride;
    int32_t *sums; /* [rows], to which the sum of each row is added */
};

#define QK_TRANSPOSE_TAPS 32

struct qk_conv_vector {
    /* plane: [in_rows][in_columns]; NULL: all is outside. */
    void (*stage)(const struct qk_stage *job, const uint8_t *plane, uint8_t *to);
    void (*interleave)(const struct qk_interleave *job);
    void (*requantize)(const struct qk_requantize_tile *tile);
    void (*transpose)(const struct qk_transpose *job); /* NULL: there is none */
};

extern const struct qk_conv_vector qk_conv_vector_avx2;
extern const struct qk_conv_vector qk_conv_vector_avx512;

#endif
