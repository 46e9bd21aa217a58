/* Parameters of each element, for runs that are too short for a kernel's call of their own, and
 * elements one behind the other, where strides lay them apart. */
#ifndef KERNELS_DEQUANTIZE_SPREAD_H
#define KERNELS_DEQUANTIZE_SPREAD_H

#include "kernels/dequantize/affine.h"

/* A lot at a time, small enough to stay in the first cache. */
#define QK_SPREAD_COUNT 1024

/* 32 bits each, whatever they are. Where affine has no zeros or offsets, to's are NULL, or not
 * written. */
struct qk_spread {
    uint32_t *scales;
    uint32_t *zeros;
    uint32_t *offsets;
};

/* Writes the parameters of each element of a piece from element `at` on, and up to QK_REPEAT_SLACK
 * - 1 elements behind the last one. */
void qk_spread_parameters(const struct qk_dequantize_kernels *kernels,
                          const struct qk_affine *affine, const struct qk_grid_piece *piece,
                          const struct qk_spread *to, size_t at);

/* Copies a piece's elements of 1, 2 or 4 `bytes` to `to`. */
void qk_spread_elements(const void *x, size_t bytes, const struct qk_grid_piece *piece, void *to);

#endif
