/* onnx.AveragePool of FP32. The quantizer leaves it in files where its input has no quantized form.
 *
 * ONNX Runtime adds a window in one of three orders, which depend on the opset and the sizes
 * (MlasPool in onnxruntime/core/mlas/lib/pooling.cpp; since opset 19 core/providers/cpu/nn/
 * pool_functors.h), or row by row if the channels are multiples of 16 (qk_float_pool_is_blocked).
 */
#include "kernels/floats/pool.h"
#include "kernels/operators/float/row_means.h"
#include "kernels/operators/pool/rules.h"

enum { COUNT_INCLUDE_PAD = QK_POOL_ATTRIBUTE_COUNT, DILATIONS };

/* Since this version, windows are added row by row. */
#define ROWS_SINCE 19

static enum qk_status prepare(const struct qk_kernels *kernels, const struct qk_call *call,
                              struct qk_memory memory, struct qk_instance **instance,
                              struct qk_error *error)
{
    struct qk_pool pool = {.kind = QK_POOL_AVERAGE, .type = QK_FP32};
    (void)kernels;
    enum qk_status status = qk_pool_read_windows(call, DILATIONS, &pool.desc, error);
    if (status == QK_OK)
        status = qk_pool_read_flag(call, COUNT_INCLUDE_PAD, &pool.count_include_pad, error);
    if (status == QK_OK && pool.count_include_pad && pool.desc.ceil_mode)
        return qk_fail(
            error, QK_INVALID,
            "count_include_pad: expected 0 with ceil_mode, got 1, with which definitions "
            "of the divisor differ");
    return status == QK_OK ? qk_pool_make(&pool, memory, instance, error) : status;
}

static enum qk_status plan(const struct qk_instance *instance, const struct qk_tensor *inputs,
                           struct qk_memory memory, struct qk_plan *plan, struct qk_error *error)
{
    const struct qk_pool *pool = qk_pool_of(instance);
    const struct qk_tensor *x = &inputs[QK_POOL_X];
    const bool is_old = instance->version->number < ROWS_SINCE;
    const bool in_order = !is_old || qk_float_pool_is_blocked(x);
    struct qk_pool_geometry geometry;
    const enum qk_status status =
        qk_pool_geometry_init(&geometry, &pool->desc, x, &plan->outputs[0], error);
    if (status != QK_OK)
        return status;
    const enum qk_float_pool_order order = qk_float_pool_order_of(&pool->desc, &geometry);
    if (order == QK_FLOAT_POOL_LANES && x->count > 0)
        return qk_row_means_plan(in_order ? QK_SUM_IN_ORDER : QK_SUM_POOL, instance, x,
                                 x->count / plan->outputs[0].count, memory, plan, error);
    const struct qk_float_pool windows = {
        .kind = !pool->count_include_pad ? QK_FLOAT_POOL_AVERAGE
                : is_old                 ? QK_FLOAT_POOL_AVERAGE_OF_TAPS
                                         : QK_FLOAT_POOL_AVERAGE_OF_PADDED,
        .order = in_order ? QK_FLOAT_POOL_ROWS : order,
    };
    return qk_float_pool_plan(&windows, &geometry, instance, memory, plan, error);
}

static const struct qk_attribute_def attributes[] = {
    QK_POOL_ATTRIBUTES(7, 10),
    [COUNT_INCLUDE_PAD] = QK_ATTRIBUTE("count_include_pad", INT, 7,
                                       "1: sums are divided by the size of the kernel, not by the "
                                       "number of elements; default 0"),
    [DILATIONS] = QK_ATTRIBUTE("dilations", INTS, 19, "default 1 for each axis, 1 to 2147483647"),
};

#define VERSION(since)                                                             \
    {                                                                              \
        .number = (since), .inputs = {{QK_BIT(QK_FP32), false}}, .output_types = { \
            QK_BIT(QK_FP32)                                                        \
        }                                                                          \
    }

static const struct qk_version versions[] = {
    VERSION(7), VERSION(10), VERSION(11), VERSION(19), VERSION(22),
};

const struct qk_operator qk_onnx_average_pool = {
    .name = "onnx.AveragePool",
    .platform = QK_ONNX_PLATFORM,
    .about = "The average of each window",
    .inputs = {{"X", "[N, C, D1..Dn], n from 1 to 3"}},
    .input_count = 1,
    .variable_inputs = 1U << QK_POOL_X,
    .outputs = {{"Y", "[N, C, D1..Dn]"}},
    .output_count = 1,
    QK_ATTRIBUTES(attributes),
    QK_VERSIONS(versions),
    .version_last = QK_ONNX_VERSION_LAST,
    .code = &(const struct qk_operator_code){.prepare = prepare, .plan = plan},
};
