/* Depthwise convolutions whose channels are last. The kernels of depthwise/ read planes, so a unit
 * first copies what it reads of some channels, as one small plane for each channel. It computes
 * these planes, and then copies what it has computed between the other channels of y. Private to
 * conv/depthwise/. */
#pragma once

#include "kernels/conv/depthwise/depthwise.h"
#include "kernels/move/kernels.h"

/* The rows and columns of x that some positions read. */
struct qk_depthwise_crop {
    struct qk_conv_geometry geometry; /* of a convolution that has only these rows and columns, and
                                         only these positions */
    size_t row, column;               /* the first ones, in x */
};

/* Finds what positions [row, row + rows) x [column, column + columns) read. The geometry has been
 * squeezed to two axes, and x is not empty. */
void qk_depthwise_crop(const struct qk_conv_geometry *geometry, size_t row, size_t rows,
                       size_t column, size_t columns, struct qk_depthwise_crop *crop);

/* Returns whether a plan can bound the planes of every unit: whether steps and windows are short,
 * and no more than two axes are spatial. */
bool qk_depthwise_crops_are_small(const struct qk_conv_desc *desc);

/* Returns the most bytes of a channel that a unit of so many positions reads. */
size_t qk_depthwise_crop_most(const struct qk_conv_geometry *geometry, size_t rows, size_t columns);

/* Copies the crop of `count` channels of an image, of which the first begins at x, into planes. All
 * channels of x are `channels`. */
void qk_depthwise_take_planes(const struct qk_move_kernels *move,
                              const struct qk_conv_geometry *geometry,
                              const struct qk_depthwise_crop *crop, const uint8_t *x,
                              size_t channels, size_t count, uint8_t *planes);

/* Copies planes of rows x columns positions of `count` channels into y, whose rows have `width`
 * positions of `channels` channels each. y is where the first position of the first channel goes.
 */
void qk_depthwise_put_planes(const struct qk_move_kernels *move, const uint8_t *planes, size_t rows,
                             size_t columns, size_t width, size_t channels, size_t count,
                             uint8_t *y);
