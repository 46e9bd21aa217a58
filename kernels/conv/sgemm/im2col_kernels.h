/* The kernels that an sgemm convolution needs besides the product: `im2col` lays x out as a matrix
 * of floats, and `epilogues` make y from the sums. Private to conv/. */
#pragma once

#include "kernels/conv/geometry.h"
#include "kernels/conv/widen.h"

/* The arguments of im2col, which makes the matrix that sgemm multiplies the weights by. The matrix
 * has a row for each term k and a column for each output position. Only one K block of it exists at
 * a time: its terms [k_begin, k_begin + k_count). */
struct qk_im2col {
    const struct qk_conv_geometry *geometry;
    const uint8_t *x_end; /* the end of the last channel of the last image */
    const uint8_t *x;     /* the first channel of the image and group */
    struct qk_widen widen;
    float fill;  /* the value of elements outside x */
    size_t taps; /* of the kernel; term k is channel k / taps and tap k % taps */
    size_t k_begin, k_count;
    size_t position_begin, position_count;
    float *matrix;     /* [k_count][row_stride]; position_count floats of each row are wanted */
    size_t row_stride; /* at least position_count + QK_IM2COL_SLACK */
};

/* How many floats im2col may write beyond the position_count of a row. */
#define QK_IM2COL_SLACK QK_WIDEN_CHUNK

/* The arguments of an epilogue, which makes y from a tile of sums. Each sum is `sums` + `carried` +
 * `bias`, modulo 2^32. The kind of epilogue says what the sum becomes. */
struct qk_epilogue_floats {
    const struct qk_epilogue *epilogue;
    size_t rows, columns;
    const float *sums;      /* [rows][stride]: integers, |sum| <= 2^24 */
    const int32_t *carried; /* the sums of earlier K blocks, laid out like `sums`; NULL: none */
    size_t stride;
    const int32_t *bias;     /* [rows] */
    const float *multiplier; /* [rows] */
    uint8_t *y;              /* of row 0 and column 0 */
    size_t y_stride;         /* from row to row, in elements of y */
    size_t position_stride;  /* from column to column; `epilogues` take only 1 */
};

struct qk_im2col_kernels {
    void (*im2col)(const struct qk_im2col *job);
    void (*epilogues[QK_EPILOGUE_KIND_COUNT])(const struct qk_epilogue_floats *job);
};

/* Like `epilogues`, for every kind of epilogue and all strides. */
void qk_im2col_epilogue_scalar(const struct qk_epilogue_floats *job);

extern const struct qk_im2col_kernels qk_im2col_kernels__scalar;
extern const struct qk_im2col_kernels qk_im2col_kernels__avx2;
extern const struct qk_im2col_kernels qk_im2col_kernels__avx512bw;
