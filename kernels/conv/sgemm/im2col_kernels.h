/* What a convolution by sgemm needs besides the product: kernels that lay x out as an im2col matrix
 * of floats, and that make y of the sums. Private to conv/. */
#ifndef KERNELS_CONV_SGEMM_IM2COL_KERNELS_H
#define KERNELS_CONV_SGEMM_IM2COL_KERNELS_H

#include "kernels/conv/geometry.h"
#include "kernels/conv/widen.h"

/* im2col: makes the matrix that sgemm multiplies the weights with. It has a row for each k and a
 * column for each output position; only one K block of it exists at a time. */
struct qk_im2col {
    const struct qk_conv_geometry *geometry;
    const uint8_t *x_end; /* behind the last image's last channel */
    const uint8_t *x;     /* the first channel of the image and group */
    struct qk_widen widen;
    float fill;  /* positions outside x */
    size_t taps; /* of the kernel; term k is channel k / taps and tap k % taps */
    size_t k_begin, k_count;
    size_t position_begin, position_count;
    float *matrix;     /* [k_count][row_stride], of which position_count are written */
    size_t row_stride; /* at least position_count and QK_IM2COL_SLACK */
};

/* im2col may write so many floats behind the end of a row. */
#define QK_IM2COL_SLACK QK_WIDEN_CHUNK

/* epilogues: make y of a tile of sums. A sum is the sum of `sums`, `carried` and `bias`, modulo
 * 2^32; it becomes what the epilogue says. */
struct qk_epilogue_floats {
    const struct qk_epilogue *epilogue;
    size_t rows, columns;
    const float *sums;      /* [rows][stride]: integers, |sum| <= 2^24 */
    const int32_t *carried; /* as sums, of earlier K blocks; NULL: there were none */
    size_t stride;
    const int32_t *bias;     /* [rows] */
    const float *multiplier; /* [rows] */
    uint8_t *y;              /* [rows][y_stride] */
    size_t y_stride;
};

struct qk_im2col_kernels {
    void (*im2col)(const struct qk_im2col *job);
    void (*epilogues[QK_EPILOGUE_KIND_COUNT])(const struct qk_epilogue_floats *job);
};

extern const struct qk_im2col_kernels qk_im2col_kernels__scalar;
extern const struct qk_im2col_kernels qk_im2col_kernels__avx2;
extern const struct qk_im2col_kernels qk_im2col_kernels__avx512bw;

#endif
