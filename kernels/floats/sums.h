/* Means of rows of FP32, with ONNX Runtime's bits. Private to kernels/. */
#pragma once

#include <stddef.h>

enum qk_sum_kind {
    /* One by one, from the first element: windows of qk_float_pool_is_blocked (pool.h). */
    QK_SUM_IN_ORDER,
    /* Lane k adds x[k], x[k + 4] and so on. Then the lanes are added, (0 + 2) + (1 + 3), and then
     * the last elements, less than four, one by one: MlasPoolGlobalKernel of onnxruntime/core/mlas/
     * lib/pooling.cpp. */
    QK_SUM_POOL,
    /* The same with eight lanes, of which lane k and lane k + 4 are added first. The elements
     * before the row's first one at a multiple of 16 bytes come after the lanes, before the last
     * elements: the sums of the library Eigen (Eigen/src/Core/Redux.h). */
    QK_SUM_ALIGNED
};

/* Writes the means of `rows` rows, which follow each other. Each has `count` elements, at least
 * one. x and `means` have any alignment. `index` is the index of x[0] in a tensor that begins at a
 * multiple of 16 bytes. */
void qk_means(enum qk_sum_kind kind, const void *x, size_t count, size_t rows, size_t index,
              void *means);
