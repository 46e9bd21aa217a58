/* Which elements of x share a scale and a zero point, as DequantizeLinear and QuantizeLinear of
 * ONNX have it: one scale for all, one for each slice on an axis, or one for each block along it.
 * The rules are those of onnx/defs/quantization/defs.cc that ONNX Runtime enforces. Private to
 * kernels/. */
#ifndef KERNELS_OPERATORS_GRANULARITY_H
#define KERNELS_OPERATORS_GRANULARITY_H

#include "kernels/grain/grid.h"

/* Where both operators have these inputs and attributes; x is the first input. */
enum { QK_GRANULARITY_SCALE = 1, QK_GRANULARITY_ZERO_POINT = 2 };
enum { QK_GRANULARITY_AXIS, QK_GRANULARITY_BLOCK_SIZE };

struct qk_granularity {
    struct qk_tensor scale; /* its shape; its data is not read */
    struct qk_attribute axis;
    size_t block_size; /* 0: none */
};

/* Checks what does not depend on the shape of x. */
enum qk_status qk_granularity_read(struct qk_granularity *granularity, const struct qk_call *call,
                                   struct qk_error *error);

/* Checks that a zero point, which must be there, has a shape that goes with the scale's. */
enum qk_status qk_granularity_check_zero_point(const struct qk_call *call, struct qk_error *error);

/* Checks the shape of x, and makes the grid for it. */
enum qk_status qk_granularity_fit(const struct qk_granularity *granularity,
                                  const struct qk_operator *op, const struct qk_tensor *x,
                                  struct qk_grid *grid, struct qk_error *error);

#endif
