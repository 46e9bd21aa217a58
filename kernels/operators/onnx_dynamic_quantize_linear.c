/* onnx.DynamicQuantizeLinear: the descriptor. Any x of FP32 is allowed. */
#include "kernels/dispatch.h"
#include "kernels/operators/operator.h"
#include "kernels/quantize/dynamic.h"

static enum qk_status prepare(const struct qk_kernels *kernels, const struct qk_call *call,
                              struct qk_memory memory, struct qk_instance **instance,
                              struct qk_error *error)
{
    (void)kernels;
    (void)call;
    *instance = memory.alloc(memory.context, sizeof(**instance));
    if (!*instance)
        return qk_fail(error, QK_NO_MEMORY, "no memory for the operator");
    **instance = (struct qk_instance){.output_types = {QK_UINT8, QK_FP32, QK_UINT8}};
    return QK_OK;
}

static enum qk_status plan(const struct qk_instance *instance, const struct qk_tensor *inputs,
                           struct qk_memory memory, struct qk_plan *plan, struct qk_error *error)
{
    const struct qk_kernels *kernels = instance->kernels;
    return qk_quantize_dynamic_plan(&kernels->quantize, &kernels->choice.elementwise, &inputs[0],
                                    memory, plan, error);
}

static const struct qk_version versions[] = {
    {.number = 11,
     .inputs = {{.types = QK_BIT(QK_FP32)}},
     .output_types = {QK_BIT(QK_UINT8), QK_BIT(QK_FP32), QK_BIT(QK_UINT8)}},
};

const struct qk_operator qk_onnx_dynamic_quantize_linear = {
    .name = "onnx.DynamicQuantizeLinear",
    .platform = QK_ONNX_PLATFORM,
    .about = "Quantizes x to UINT8 with the scale and zero point that fit its range",
    .inputs = {{"x", QK_ANY_SHAPE}},
    .input_count = 1,
    .variable_inputs = 1,
    .outputs = {{"y", "as x"}, {"y_scale", "[]"}, {"y_zero_point", "[]"}},
    .output_count = 3,
    QK_VERSIONS(versions),
    .version_last = QK_ONNX_VERSION_LAST,
    .code = &(const struct qk_operator_code){.prepare = prepare, .plan = plan},
};
