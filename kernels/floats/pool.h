/* The maximum or the average of each window of FP32. Private to kernels/. */
#pragma once

#include "kernels/pool/geometry.h"

enum qk_float_pool_kind {
    QK_FLOAT_POOL_MAX, /* a window without elements of x gives the least finite float */
    /* The sum of a window divided by the number of its elements in x; 0 without such. */
    QK_FLOAT_POOL_AVERAGE,
    /* The sum divided by the number of taps. */
    QK_FLOAT_POOL_AVERAGE_OF_TAPS,
    /* The sum divided by the number of taps that are not behind x and its pads. */
    QK_FLOAT_POOL_AVERAGE_OF_PADDED
};

/* The order in which a window is reduced. It decides the last bits of a sum. Of a maximum it
 * decides which zero, whether a NaN, and whether -infinity or the least finite float is the answer.
 * The orders are those of ONNX Runtime on x86: onnxruntime/core/mlas/lib/pooling.cpp and, of
 * dilated windows, core/providers/cpu/nn/pool_functors.h. */
enum qk_float_pool_order {
    /* Row by row, from 0 or the least finite float. */
    QK_FLOAT_POOL_ROWS,
    /* First each column, from its first element, then the columns, from the first one. A column in
     * the padding is 0 or the least finite float. */
    QK_FLOAT_POOL_COLUMNS,
    /* The same, but each column from 0 or the least finite float. */
    QK_FLOAT_POOL_DEEP_COLUMNS,
    /* There is one window, the whole image, in four lanes. Only for maxima. Sums of this order are
     * qk_row_means_plan's. */
    QK_FLOAT_POOL_LANES,
    /* Row by row, from the first element. Only for maxima. */
    QK_FLOAT_POOL_FIRST
};

struct qk_float_pool {
    enum qk_float_pool_kind kind;
    enum qk_float_pool_order order;
};

/* Returns whether ONNX Runtime adds the windows of an AveragePool row by row, whatever their sizes.
 * x is [N, C, H, W]. ONNX Runtime's default optimizations put 16 channels side by side, as
 * onnxruntime/core/optimizer/nchwc_transformer.cc has it. On CPUs without AVX-512 they put 8 side
 * by side, so that odd multiples of 8 channels have other last bits there than here.
 *
 * Maxima stay in the orders below: all that would change are signs of zeros, and NaN. */
bool qk_float_pool_is_blocked(const struct qk_tensor *x);

/* Returns the order of maxima without dilations, and of sums that are not blocked. */
enum qk_float_pool_order qk_float_pool_order_of(const struct qk_pool_desc *desc,
                                                const struct qk_pool_geometry *geometry);

/* Plans the operator for x, and fills all of the plan that qk_operator_code.plan must fill, but the
 * rank and dims of y, which qk_pool_geometry_init has set. x has its channels before the spatial
 * axes. */
enum qk_status qk_float_pool_plan(const struct qk_float_pool *pool,
                                  const struct qk_pool_geometry *geometry,
                                  const struct qk_instance *instance, struct qk_memory memory,
                                  struct qk_plan *plan, struct qk_error *error);
