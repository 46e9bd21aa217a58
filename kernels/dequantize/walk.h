/* The ways to go through a tensor: how its granularity becomes calls of a kernel, and long ones. */
#ifndef KERNELS_DEQUANTIZE_WALK_H
#define KERNELS_DEQUANTIZE_WALK_H

#include "kernels/dequantize/affine.h"

/* Fills the plan's units, kernel, run and state; its output is there. */
enum qk_status qk_walk_plan(const struct qk_affine *affine,
                            const struct qk_dequantize_kernels *kernels, const struct qk_tensor *x,
                            const struct qk_grid *grid, struct qk_memory memory,
                            struct qk_plan *plan, struct qk_error *error);

#endif
