/* onnx.ConvInteger: the descriptor, and the rules of its inputs. y is the sum, modulo 2^32. x's
 * zero point may come with each run, as DynamicQuantizeLinear makes it. */
#include "kernels/operators/conv/rules.h"
#include "kernels/operators/rules.h"

enum { X, W, X_ZERO_POINT, W_ZERO_POINT };

static enum qk_status prepare(const struct qk_kernels *kernels, const struct qk_call *call,
                              struct qk_memory memory, struct qk_instance **instance,
                              struct qk_error *error)
{
    static const uint8_t zero[1];
    const struct qk_tensor *inputs = call->inputs;
    const bool centred = inputs[W_ZERO_POINT].type == QK_NONE;
    struct qk_conv_desc desc;
    enum qk_status status = qk_conv_check_weights(call, W, error);
    if (status == QK_OK)
        status = qk_check_same_type(call, X_ZERO_POINT, X, error);
    if (status == QK_OK)
        status = qk_check_same_type(call, W_ZERO_POINT, W, error);
    if (status == QK_OK)
        status = qk_conv_check_parameter(call, W_ZERO_POINT, W, error);
    if (status == QK_OK)
        status = qk_conv_read_desc(call, W, &desc, error);
    if (status != QK_OK)
        return status;
    desc.epilogue = QK_EPILOGUE_INT32;
    const struct qk_conv_constants constants = {
        .x_type = inputs[X].type,
        .x_zero_point_input = inputs[X_ZERO_POINT].type == QK_NONE ? 0 : X_ZERO_POINT,
        .w_type = inputs[W].type,
        .w = inputs[W].data,
        .w_count = inputs[W].count,
        .w_zero_point = centred ? zero : inputs[W_ZERO_POINT].data,
        .w_zero_point_count = centred ? 1 : inputs[W_ZERO_POINT].count,
    };
    return qk_conv_make(kernels, &desc, &constants, QK_INT32, 0, memory, instance, error);
}

#define INT8S (QK_BIT(QK_UINT8) | QK_BIT(QK_INT8))

static const struct qk_attribute_def attributes[] = {QK_CONV_ATTRIBUTES(10)};

static const struct qk_version versions[] = {
    {.number = 10,
     .inputs =
         {
             [X] = {.types = INT8S},
             [W] = {.types = INT8S},
             [X_ZERO_POINT] = {.types = INT8S, .optional = true},
             [W_ZERO_POINT] = {.types = INT8S, .optional = true},
         },
     .output_types = {QK_BIT(QK_INT32)}},
};

const struct qk_operator qk_onnx_conv_integer = {
    .name = "onnx.ConvInteger",
    .platform = QK_ONNX_PLATFORM,
    .about = "Convolution of 8-bit integers less their zero points, modulo 2^32",
    .inputs =
        {
            [X] = {"x", "[N, C, D1..Dn], n from 1 to " QK_TEXT_OF(QK_CONV_SPATIAL_MAX)},
            [W] = {"w", "[M, C/group, k1..kn]"},
            [X_ZERO_POINT] = {"x_zero_point", "[] or [1]"},
            [W_ZERO_POINT] = {"w_zero_point", "[], [1] or [M]"},
        },
    .input_count = 4,
    .variable_inputs = 1U << X | 1U << X_ZERO_POINT,
    .outputs = {{"y", "[N, M, D1..Dn]"}},
    .output_count = 1,
    QK_ATTRIBUTES(attributes),
    QK_VERSIONS(versions),
    .version_last = QK_ONNX_VERSION_LAST,
    .code = &(const struct qk_operator_code){.prepare = prepare,
                                             .pack = qk_conv_pack_instance,
                                             .plan = qk_conv_plan_instance},
};
