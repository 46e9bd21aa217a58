/* Broadcast strides say which element of x, which scale and which zero point make element i of y.
 * They describe every granularity of a quantized tensor, whatever its shape. The element-wise
 * operators make them for a traversal (traversal.h).
 *
 * y is row-major. Each step along an axis of y moves by one stride in x. Every `block` steps move
 * by one stride in the scales and by one in the zero points. A stride of 0 repeats the same
 * element. Strides and blocks count elements. An example is x of [2, 6] with a scale for every 4
 * elements of a row:
 *
 *      axis   size   block   x_stride   scale_stride     scales   s0 s0 s0 s0 s1 s1
 *      0      2      1       6          2                         s2 s2 s2 s2 s3 s3
 *      1      6      4       1          1
 *
 *      y[1, 5] is made of x[1 * 6 + 5 * 1] and scales[1 * 2 + 5 / 4 * 1] = s3
 */
#pragma once

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

/* Sets the strides of a row-major x with one scale and one zero point for all of it. The next three
 * functions change these strides for other granularities. */
void qk_broadcast_init(struct qk_broadcast *broadcast, const struct qk_tensor *x);

/* Sets the strides of scales and zero points that each serve one slice: all elements with the same
 * index on `axis`. */
void qk_broadcast_slice(struct qk_broadcast *broadcast, uint32_t axis);

/* Sets the strides of scales and zero points that have a shape like x's, except that one of them
 * serves `block` elements along `axis`. */
void qk_broadcast_block(struct qk_broadcast *broadcast, const struct qk_tensor *scale,
                        uint32_t axis, size_t block);

/* Sets the strides of x, and of scales and zero points that have the shape of x. Each argument has
 * one stride for each axis; NULL: row-major. */
void qk_broadcast_element(struct qk_broadcast *broadcast, const int64_t *x_strides,
                          const int64_t *scale_strides, const int64_t *zero_point_strides);

/* Makes rows long and axes few, so that kernel calls are few: removes axes of size 1, and merges
 * neighbouring axes that act as one axis. At least one axis is left. If a slice has several
 * neighbouring elements, it becomes a block: an x of [3, 4, 5] with a scale for each index of axis
 * 0 becomes one axis of size 60 with blocks of 20. */
void qk_broadcast_simplify(struct qk_broadcast *broadcast);

/* A segment is a part of one row. Its element k is x[x + k * x_stride], and has the scale
 *
 *   scales[scale + (block_done + k) / block * scale_stride]
 *
 * The index of its zero point is formed in the same way. */
struct qk_row_segment {
    size_t count;
    size_t block;
    size_t block_done; /* how many elements of the first block lie before the segment; less than
                          `block` */
    size_t x;
    size_t scale;
    size_t zero_point;
    size_t x_stride;
    size_t scale_stride;
    size_t zero_point_stride;
};

/* The position of a traversal in y. */
struct qk_broadcast_cursor {
    const struct qk_broadcast *broadcast;
    size_t index[QK_RANK_MAX];
    struct qk_row_segment row; /* the whole row, from its first element on */
};

/* Sets the cursor to element i of y. The strides must be simplified, and y must not be empty. */
void qk_broadcast_seek(struct qk_broadcast_cursor *cursor, const struct qk_broadcast *broadcast,
                       size_t i);

/* Sets *segment to the next segment, which has 1 to `count_max` elements, and moves the cursor
 * behind it. There must be an element left. */
void qk_broadcast_next(struct qk_broadcast_cursor *cursor, size_t count_max,
                       struct qk_row_segment *segment);
