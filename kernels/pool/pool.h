/* Pooling of 8-bit tensors: the maximum or the average of each window of x, for each channel.
 *
 * - maximum: y = max(x), or the least number if the window has no element of x
 * - average: sum = fl(sum + fl(x_scale * (x - x_zp))), element by element in row-major order. Then
 *   y = sat(cvt(fl(fl(fl(sum / count) / y_scale) + y_zp)))
 * - global average: m = fl(x_scale / fl(y_scale * n)) and
 *   y = rne(clamp(fl(fl(sum(x) - n * x_zp) * m))) + y_zp, where sums of integers wrap modulo 2^32
 *
 * fl rounds to FP32, and rne to the nearest integer, ties to even. cvt does what rne does, but
 * gives the least number for NaN and for all beyond int32. Padding is never read: `count` counts
 * the elements inside x or, with count_include_pad, all elements of a kernel. An average over a
 * whole image without padding is computed as a global average. All this is what ONNX Runtime
 * computes (contrib_ops/cpu/quantization/qlinear_pool.cc, core/mlas/lib/qlgavgpool.cpp). */
#pragma once

#include "kernels/elementwise/traversal.h"
#include "kernels/pool/kernels.h"

enum qk_pool_kind { QK_POOL_MAX, QK_POOL_AVERAGE, QK_POOL_GLOBAL_AVERAGE };

/* A pooling operator without the shape of x. */
struct qk_pool {
    enum qk_pool_kind kind;
    enum qk_type type;        /* of x and y: QK_UINT8 or QK_INT8 */
    struct qk_pool_desc desc; /* of global averages, only channels_last is read */
    bool count_include_pad;
    /* The parameters of averages. */
    float x_scale, y_scale;
    int32_t x_zero, y_zero;
};

/* Plans the operator for x, and fills all of the plan that qk_operator_code.plan must fill. Returns
 * QK_INVALID if x does not fit (qk_pool_geometry_init), or if a global average has too many
 * elements or its multiplier is out of range. */
enum qk_status qk_pool_plan(const struct qk_pool *pool, const struct qk_instance *instance,
                            const struct qk_tensor *x, struct qk_memory memory,
                            struct qk_plan *plan, struct qk_error *error);
