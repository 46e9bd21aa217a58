/* The maximum or the average of each window of FP32. Private to kernels/. */
#ifndef KERNELS_FLOATS_POOL_H
#define KERNELS_FLOATS_POOL_H

#include "kernels/pool/geometry.h"

enum qk_float_pool_kind {
    QK_FLOAT_POOL_MAX, /* a window without elements of x gives the least float */
    /* The sum of a window divided by the number of its elements in x. */
    QK_FLOAT_POOL_AVERAGE,
    /* The sum divided by the number of taps. */
    QK_FLOAT_POOL_AVERAGE_OF_TAPS
};

/* The order in which a window is added. */
enum qk_float_pool_order {
    QK_FLOAT_POOL_ROWS, /* row by row */
    /* First each column, then the sums of columns: MlasPool2DVectorKernel of onnxruntime/core/mlas/
     * lib/pooling.cpp. */
    QK_FLOAT_POOL_COLUMNS
};

struct qk_float_pool {
    enum qk_float_pool_kind kind;
    enum qk_float_pool_order order;
};

/* Plans the operator for x, and fills all of the plan that qk_operator_code.plan must fill, but the
 * rank and dims of y, which qk_pool_geometry_init has set. x has its channels before the spatial
 * axes. */
enum qk_status qk_float_pool_plan(const struct qk_float_pool *pool,
                                  const struct qk_pool_geometry *geometry,
                                  const struct qk_instance *instance, struct qk_memory memory,
                                  struct qk_plan *plan, struct qk_error *error);

#endif
