/* Broadcast strides say which element of x, which scale and which zero point make element i of y:
 * the granularity of a quantized tensor, whatever its shape.
 *
 * y is row-major. A step along an axis of y moves on by a stride in x, and every `block` steps by
 * one stride in the scales and one in the zero points; a stride of 0 repeats. All of these count in
 * elements. */
#ifndef KERNELS_ELEMENTWISE_BROADCAST_H
#define KERNELS_ELEMENTWISE_BROADCAST_H

#include "kernels/qk.h"

struct qk_broadcast_axis {
    size_t size;
    size_t block; /* at least 1; the last block may be short */
    size_t x_stride;
    size_t scale_stride;
    size_t zero_point_stride;
};

struct qk_broadcast {
    uint32_t rank;
    struct qk_broadcast_axis axes[QK_RANK_MAX]; /* the last one is the innermost */
};

/* The strides of a row-major x with one scale and one zero point for all of it. The next functions
 * change those of the parameters. */
void qk_broadcast_init(struct qk_broadcast *broadcast, const struct qk_tensor *x);

/* One scale and zero point for each slice on `axis`. */
void qk_broadcast_slice(struct qk_broadcast *broadcast, uint32_t axis);

/* Scales and zero points have a shape like x's, but one of them serves `block` elements along
 * `axis`. */
void qk_broadcast_block(struct qk_broadcast *broadcast, const struct qk_tensor *scale,
                        uint32_t axis, size_t block);

/* Scales and zero points have the shape of x. Each of the three has strides, one for each axis;
 * NULL: it is row-major. */
void qk_broadcast_element(struct qk_broadcast *broadcast, const int64_t *x_strides,
                          const int64_t *scale_strides, const int64_t *zero_point_strides);

/* Makes rows long and axes few: leaves out axes of size 1, and makes one axis of neighbours that
 * act as one. At least one is left. Slices of several elements become blocks. */
void qk_broadcast_simplify(struct qk_broadcast *broadcast);

/* A segment is a part of one row: its element k is x[x + k * x_stride], with scales[scale +
 * (block_done + k) / block * scale_stride], and a zero point alike. */
struct qk_row_segment {
    size_t count;
    size_t block;
    size_t block_done; /* less than block */
    size_t x;
    size_t scale;
    size_t zero_point;
    size_t x_stride;
    size_t scale_stride;
    size_t zero_point_stride;
};

/* Where in y a traversal is. */
struct qk_broadcast_cursor {
    const struct qk_broadcast *broadcast;
    size_t index[QK_RANK_MAX];
    struct qk_row_segment row; /* the whole row, from its first element on */
};

/* Sets the cursor on element i of y; the strides are simplified and not empty. */
void qk_broadcast_seek(struct qk_broadcast_cursor *cursor, const struct qk_broadcast *broadcast,
                       size_t i);

/* Gives the next segment, of 1 to `count_max` elements, and moves the cursor behind it. There must
 * be one. */
void qk_broadcast_next(struct qk_broadcast_cursor *cursor, size_t count_max,
                       struct qk_row_segment *segment);

#endif
