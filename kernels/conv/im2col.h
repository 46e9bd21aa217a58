/* The matrix that sgemm multiplies the weights with: one row for each k, one column for each output
 * position. Only ever one block of it exists. Private to conv/. */
#ifndef KERNELS_CONV_IM2COL_H
#define KERNELS_CONV_IM2COL_H

#include "kernels/conv/geometry.h"
#include "kernels/conv/widen.h"

struct qk_im2col {
    const struct qk_conv_geometry *geometry;
    const uint8_t *x_end; /* behind the last image's last channel */
    const uint8_t *x;     /* the first channel of the image and group */
    struct qk_widen widen;
    float fill; /* positions outside x */
    size_t k_begin, k_count;
    size_t position_begin, position_count;
    float *block; /* [k_count][row_stride], of which position_count are written */
    size_t row_stride;
};

void qk_im2col_block(const struct qk_im2col *job);

#endif
