/* What a convolution on sgemm needs besides it, for one vector unit. Private to conv/. */
#ifndef KERNELS_CONV_SGEMM_IM2COL_KERNELS_H
#define KERNELS_CONV_SGEMM_IM2COL_KERNELS_H

#include "kernels/conv/geometry.h"
#include "kernels/conv/widen.h"

/* The matrix that sgemm multiplies the weights with: one row for each k, one column for each output
 * position. Only ever one K block of it exists. */
struct qk_im2col {
    const struct qk_conv_geometry *geometry;
    const uint8_t *x_end; /* behind the last image's last channel */
    const uint8_t *x;     /* the first channel of the image and group */
    struct qk_widen widen;
    float fill;  /* positions outside x */
    size_t taps; /* of the kernel: a k is a channel and one of them */
    size_t k_begin, k_count;
    size_t position_begin, position_count;
    float *matrix;     /* [k_count][row_stride], of which position_count are written */
    size_t row_stride; /* at least position_count and QK_IM2COL_SLACK */
};

/* Floats behind a row that im2col may write. */
#define QK_IM2COL_SLACK QK_WIDEN_CHUNK

/* A tile of sums to bytes. A sum is that of sums, carried and bias, modulo 2^32; then as in
 * kernels/conv/requantize.h. */
struct qk_requantize_floats {
    const struct qk_requantize *requantize;
    bool y_signed;
    size_t rows, columns;
    const float *sums;      /* [rows][stride]: integers, |sum| <= 2^24 */
    const int32_t *carried; /* as sums, from earlier blocks of k; NULL: there were none */
    size_t stride;
    const int32_t *bias;     /* [rows] */
    const float *multiplier; /* [rows] */
    uint8_t *y;              /* [rows][y_stride] */
    size_t y_stride;
};

struct qk_im2col_kernels {
    void (*im2col)(const struct qk_im2col *job);
    void (*requantize)(const struct qk_requantize_floats *job);
};

extern const struct qk_im2col_kernels qk_im2col_kernels__scalar;
extern const struct qk_im2col_kernels qk_im2col_kernels__avx2;
extern const struct qk_im2col_kernels qk_im2col_kernels__avx512;

#endif
