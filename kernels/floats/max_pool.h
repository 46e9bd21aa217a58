/* The maximum of each window of FP32. Private to kernels/. */
#ifndef KERNELS_FLOATS_MAX_POOL_H
#define KERNELS_FLOATS_MAX_POOL_H

#include "kernels/pool/geometry.h"

/* Plans the operator for x, and fills all of the plan that qk_operator_code.plan must fill.
 * Channels of `desc` come before the spatial axes. A window without elements of x gives the least
 * float. Returns QK_INVALID if x does not fit (qk_pool_geometry_init). */
enum qk_status qk_float_max_pool_plan(const struct qk_pool_desc *desc,
                                      const struct qk_instance *instance, const struct qk_tensor *x,
                                      struct qk_memory memory, struct qk_plan *plan,
                                      struct qk_error *error);

#endif
