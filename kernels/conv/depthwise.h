/* Convolutions with one channel in a group, straight from x: lanes are positions of a row, and a
 * product takes four neighbouring taps of one row of the kernel. Private to conv/.
 *
 * A strip is what 64 bytes of one row of x see: a load, whose bytes outside x are filled, serves
 * all its positions and taps, each vector of 16 positions through a permutation of its own. So
 * nothing is copied, and no workspace is needed.
 */
#ifndef KERNELS_CONV_DEPTHWISE_H
#define KERNELS_CONV_DEPTHWISE_H

#include "kernels/conv/geometry.h"

/* Taps in a cell: what a product takes. */
#define QK_DEPTHWISE_TAPS 4
#define QK_DEPTHWISE_BYTES 64 /* of a row of x that a strip sees */

/* Some output channels and rows: what one unit computes. */
struct qk_depthwise_job {
    const struct qk_conv_axis *row_axis, *column_axis;
    size_t row, rows;                  /* of the output */
    size_t column, columns;            /* and of each of its rows; whole strips but for the last */
    size_t strip;                      /* positions, at most what QK_DEPTHWISE_BYTES see */
    size_t cells;                      /* of one row of taps */
    uint8_t order[QK_DEPTHWISE_BYTES]; /* byte 4 p + t is what tap t of position p sees */
    uint8_t fill, flip; /* what lies outside x; it and x are made unsigned by an xor with `flip` */

    const uint8_t *x;       /* the first channel */
    size_t channel_size;    /* to the next */
    const size_t *planes;   /* where they begin in a channel; QK_DEPTHWISE_NO_PLANE: padding */
    size_t plane_count;     /* taps of the axes before the last two */
    size_t channels;        /* of x */
    size_t multiplicity;    /* output channels for each of them; with several of
                               them, all */
    const uint8_t *weights; /* [output channels][planes][row taps][cells][4], signed; 0 for taps
                               that are not there */
    const uint8_t *ones;    /* the same for one channel with 1 for taps that are */
    const int32_t *w_zero_point; /* this and the next two: [output channels] */
    const int32_t *bias;
    const float *multiplier;
    const struct qk_requantize *requantize;
    bool y_signed;
    uint8_t *y;      /* the first row of the first output channel */
    size_t y_stride; /* to the next output channel's */
};

#define QK_DEPTHWISE_NO_PLANE SIZE_MAX

/* Rows of x from the first to the last that so many rows of the output see. A job has no more than
 * QK_DEPTHWISE_ROWS_SEEN. */
static inline size_t qk_depthwise_rows_seen(const struct qk_conv_axis *axis, size_t rows)
{
    return (rows - 1) * (size_t)axis->stride + (size_t)(axis->kernel - 1) * (size_t)axis->dilation +
           1;
}

#define QK_DEPTHWISE_ROWS_SEEN 256

void qk_depthwise_vnni(const struct qk_depthwise_job *job);

#endif
