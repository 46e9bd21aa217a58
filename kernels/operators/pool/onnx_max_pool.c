/* onnx.MaxPool of 8-bit tensors, which ONNX has since version 12, and of FP32, and
 * com.microsoft.NhwcMaxPool of 8-bit tensors whose channels are last. The second output of MaxPool,
 * Indices, is not supported. The rules are those of ONNX Runtime (kernels/pool/geometry.h). */
#include "kernels/floats/pool.h"
#include "kernels/operators/pool/rules.h"

enum { DILATIONS = QK_POOL_ATTRIBUTE_COUNT, STORAGE_ORDER }; /* storage_order: only of MaxPool */

static enum qk_status prepare(const struct qk_kernels *kernels, const struct qk_call *call,
                              struct qk_memory memory, struct qk_instance **instance,
                              struct qk_error *error)
{
    struct qk_pool pool = {.kind = QK_POOL_MAX, .type = call->inputs[QK_POOL_X].type};
    bool by_column; /* storage_order only changes Indices */
    (void)kernels;
    pool.desc.channels_last = call->op == &qk_microsoft_nhwc_max_pool;
    enum qk_status status = qk_pool_read_windows(call, DILATIONS, &pool.desc, error);
    if (status == QK_OK && !pool.desc.channels_last)
        status = qk_pool_read_flag(call, STORAGE_ORDER, &by_column, error);
    return status == QK_OK ? qk_pool_make(&pool, memory, instance, error) : status;
}

static bool is_dilated(const struct qk_pool_desc *desc)
{
    bool is = false;
    for (size_t i = 0; i < QK_POOL_SPATIAL_MAX; i++)
        is = is || desc->dilation[i] > 1;
    return is;
}

static enum qk_status plan(const struct qk_instance *instance, const struct qk_tensor *inputs,
                           struct qk_memory memory, struct qk_plan *plan, struct qk_error *error)
{
    const struct qk_pool_desc *desc = &qk_pool_of(instance)->desc;
    struct qk_pool_geometry geometry;
    if (instance->output_types[0] != QK_FP32)
        return qk_pool_plan_instance(instance, inputs, memory, plan, error);
    const enum qk_status status =
        qk_pool_geometry_init(&geometry, desc, &inputs[QK_POOL_X], &plan->outputs[0], error);
    if (status != QK_OK)
        return status;
    const struct qk_float_pool pool = {
        .kind = QK_FLOAT_POOL_MAX,
        .order = is_dilated(desc) ? QK_FLOAT_POOL_FIRST : qk_float_pool_order_of(desc, &geometry)};
    return qk_float_pool_plan(&pool, &geometry, instance, memory, plan, error);
}

static const struct qk_attribute_def attributes[] = {
    QK_POOL_ATTRIBUTES(1, 10),
    [DILATIONS] = QK_ATTRIBUTE("dilations", INTS, 10, "default 1 for each axis, 1 to 2147483647"),
    [STORAGE_ORDER] = QK_ATTRIBUTE("storage_order", INT, 8, "0 or 1; changes nothing in Y"),
};

#define VERSION(since, all)                                                       \
    {                                                                             \
        .number = (since), .inputs = {{.types = (all)}}, .output_types = {(all) } \
    }

static const struct qk_version versions[] = {
    VERSION(1, QK_BIT(QK_FP32)),
    VERSION(8, QK_BIT(QK_FP32)),
    VERSION(10, QK_BIT(QK_FP32)),
    VERSION(11, QK_BIT(QK_FP32)),
    VERSION(12, QK_BIT(QK_FP32) | QK_POOL_TYPES),
    VERSION(22, QK_BIT(QK_FP32) | QK_POOL_TYPES),
};

const struct qk_operator qk_onnx_max_pool = {
    .name = "onnx.MaxPool",
    .platform = QK_ONNX_PLATFORM,
    .about = "The maximum of each window, without the output Indices",
    .inputs = {{"X", "[N, C, D1..Dn], n from 1 to 3"}},
    .input_count = 1,
    .variable_inputs = 1U << QK_POOL_X,
    .outputs = {{"Y", "[N, C, D1..Dn]"}},
    .output_count = 1,
    .uncomputed_output_count = 1, /* Indices */
    QK_ATTRIBUTES(attributes),
    QK_VERSIONS(versions),
    .version_last = QK_ONNX_VERSION_LAST,
    .code = &(const struct qk_operator_code){.prepare = prepare, .plan = plan},
};

static const struct qk_attribute_def nhwc_attributes[] = {
    QK_POOL_ATTRIBUTES(1, 1),
    [DILATIONS] = QK_ATTRIBUTE("dilations", INTS, 1, "default 1 for each axis, 1 to 2147483647"),
};

static const struct qk_version nhwc_versions[] = {VERSION(1, QK_POOL_TYPES)};

const struct qk_operator qk_microsoft_nhwc_max_pool = {
    .name = "com.microsoft.NhwcMaxPool",
    .platform = QK_ONNX_PLATFORM,
    .about = "The maximum of each window of a tensor whose channels are last",
    .inputs = {{"x", "[N, D1..Dn, C], n from 1 to 3"}},
    .input_count = 1,
    .variable_inputs = 1U << QK_POOL_X,
    .outputs = {{"y", "[N, D1..Dn, C]"}},
    .output_count = 1,
    QK_ATTRIBUTES(nhwc_attributes),
    QK_VERSIONS(nhwc_versions),
    .version_last = 1,
    .code = &(const struct qk_operator_code){.prepare = prepare, .plan = qk_pool_plan_instance},
};
