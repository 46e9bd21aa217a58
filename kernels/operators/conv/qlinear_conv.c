/* onnx.QLinearConv and com.microsoft.QLinearConv: descriptors, and the rules of their inputs. ONNX
 * Runtime's own operator may have x and y with the channels last; it writes such nodes when it
 * optimizes a graph. */
#include <inttypes.h>

#include "kernels/element/load.h"
#include "kernels/operators/conv/rules.h"
#include "kernels/operators/rules.h"
#include "kernels/operators/shape_text.h"

enum { X, X_SCALE, X_ZERO_POINT, W, W_SCALE, W_ZERO_POINT, Y_SCALE, Y_ZERO_POINT, B };
enum { CHANNELS_LAST = QK_CONV_ATTRIBUTE_COUNT }; /* only in com.microsoft */

/* ---- Inputs ------------------------------------------------------------------------------ */

static enum qk_status check_constants(const struct qk_call *call, struct qk_error *error)
{
    const struct qk_tensor *w = &call->inputs[W];
    const struct qk_tensor *bias = &call->inputs[B];
    struct qk_shape_text shape;
    static const size_t scalars[] = {X_SCALE, X_ZERO_POINT, Y_SCALE, Y_ZERO_POINT};
    enum qk_status status = QK_OK;
    for (size_t i = 0; i < sizeof(scalars) / sizeof(scalars[0]) && status == QK_OK; i++)
        status = qk_check_single(call, scalars[i], error);
    if (status == QK_OK)
        status = qk_conv_check_parameter(call, W_SCALE, W, error);
    if (status == QK_OK)
        status = qk_conv_check_parameter(call, W_ZERO_POINT, W, error);
    if (status == QK_OK)
        status = qk_check_same_type(call, W_ZERO_POINT, W, error);
    if (status == QK_OK)
        status = qk_check_same_type(call, X_ZERO_POINT, X, error);
    if (status == QK_OK && bias->type != QK_NONE &&
        (bias->rank != 1 || bias->dims[0] != w->dims[0]))
        status = qk_fail(error, QK_INVALID,
                         "B: expected shape [%zu], one for each output channel of w, got %s",
                         w->dims[0], qk_shape_text(bias, &shape));
    return status;
}

static enum qk_status read_channels_last(const struct qk_call *call, struct qk_conv_desc *desc,
                                         struct qk_error *error)
{
    if (call->op->attribute_count <= CHANNELS_LAST)
        return QK_OK;
    const int64_t number = qk_int_or(&call->attributes[CHANNELS_LAST], 0);
    desc->channels_last = number == 1;
    return number == 0 || number == 1
               ? QK_OK
               : qk_fail(error, QK_INVALID, "channels_last: expected 0 or 1, got %" PRId64, number);
}

static enum qk_status prepare(const struct qk_kernels *kernels, const struct qk_call *call,
                              struct qk_memory memory, struct qk_instance **instance,
                              struct qk_error *error)
{
    const struct qk_tensor *inputs = call->inputs;
    struct qk_conv_desc desc;
    enum qk_status status = qk_conv_check_weights(call, W, error);
    if (status == QK_OK)
        status = check_constants(call, error);
    if (status == QK_OK)
        status = qk_conv_read_desc(call, W, &desc, error);
    if (status == QK_OK)
        status = read_channels_last(call, &desc, error);
    if (status != QK_OK)
        return status;
    const struct qk_conv_constants constants = {
        .x_type = inputs[X].type,
        .x_zero_point = qk_zero_point_or_0(&inputs[X_ZERO_POINT]),
        .x_scale = qk_load_f32(inputs[X_SCALE].data, 0),
        .y_scale = qk_load_f32(inputs[Y_SCALE].data, 0),
        .w_type = inputs[W].type,
        .w = inputs[W].data,
        .w_count = inputs[W].count,
        .w_scale = inputs[W_SCALE].data,
        .w_scale_count = inputs[W_SCALE].count,
        .w_zero_point = inputs[W_ZERO_POINT].data,
        .w_zero_point_count = inputs[W_ZERO_POINT].count,
        .bias = inputs[B].type == QK_NONE ? NULL : inputs[B].data,
    };
    return qk_conv_make(kernels, &desc, &constants, inputs[Y_ZERO_POINT].type,
                        qk_zero_point_or_0(&inputs[Y_ZERO_POINT]), memory, instance, error);
}

/* ---- The descriptors --------------------------------------------------------------------- */

#define INT8S (QK_BIT(QK_UINT8) | QK_BIT(QK_INT8))

#define VERSION(since)                                               \
    {                                                                \
        .number = (since),                                           \
        .inputs =                                                    \
            {                                                        \
                [X] = {.types = INT8S},                              \
                [X_SCALE] = {.types = QK_BIT(QK_FP32)},              \
                [X_ZERO_POINT] = {.types = INT8S},                   \
                [W] = {.types = INT8S},                              \
                [W_SCALE] = {.types = QK_BIT(QK_FP32)},              \
                [W_ZERO_POINT] = {.types = INT8S},                   \
                [Y_SCALE] = {.types = QK_BIT(QK_FP32)},              \
                [Y_ZERO_POINT] = {.types = INT8S},                   \
                [B] = {.types = QK_BIT(QK_INT32), .optional = true}, \
            },                                                       \
        .output_types = {INT8S},                                     \
    }

#define INPUTS(x_shape)                                                                            \
    {                                                                                              \
        [X] = {"x", x_shape}, [X_SCALE] = {"x_scale", "[] or [1]"},                                \
        [X_ZERO_POINT] = {"x_zero_point", "[] or [1]"}, [W] = {"w", "[M, C/group, k1..kn]"},       \
        [W_SCALE] = {"w_scale", "[], [1] or [M]"},                                                 \
        [W_ZERO_POINT] = {"w_zero_point", "[], [1] or [M]"}, [Y_SCALE] = {"y_scale", "[] or [1]"}, \
        [Y_ZERO_POINT] = {"y_zero_point", "[] or [1]"}, [B] = {"B", "[M]"},                        \
    }

static const struct qk_operator_code code = {
    .prepare = prepare, .pack = qk_conv_pack_instance, .plan = qk_conv_plan_instance};

static const struct qk_attribute_def attributes[] = {QK_CONV_ATTRIBUTES(10)};
static const struct qk_version versions[] = {VERSION(10)};

const struct qk_operator qk_onnx_qlinear_conv = {
    .name = "onnx.QLinearConv",
    .platform = QK_ONNX_PLATFORM,
    .about = "Quantized convolution; y has the type of y_zero_point",
    .inputs = INPUTS("[N, C, D1..Dn], n from 1 to " QK_TEXT_OF(QK_CONV_SPATIAL_MAX)),
    .input_count = 9,
    .variable_inputs = 1U << X,
    .outputs = {{"y", "[N, M, D1..Dn]"}},
    .output_count = 1,
    QK_ATTRIBUTES(attributes),
    QK_VERSIONS(versions),
    .version_last = QK_ONNX_VERSION_LAST,
    .code = &code,
};

static const struct qk_attribute_def microsoft_attributes[] = {
    QK_CONV_ATTRIBUTES(1),
    [CHANNELS_LAST] =
        QK_ATTRIBUTE("channels_last", INT, 1, "1: x is [N, D1..Dn, C], and y is alike; default 0"),
};
static const struct qk_version microsoft_versions[] = {VERSION(1)};

const struct qk_operator qk_microsoft_qlinear_conv = {
    .name = "com.microsoft.QLinearConv",
    .platform = QK_ONNX_PLATFORM,
    .about = "Quantized convolution, whose channels may be last; y has the type of y_zero_point",
    .inputs =
        INPUTS("[N, C, D1..Dn] or [N, D1..Dn, C], n from 1 to " QK_TEXT_OF(QK_CONV_SPATIAL_MAX)),
    .input_count = 9,
    .variable_inputs = 1U << X,
    .outputs = {{"y", "[N, M, D1..Dn] or [N, D1..Dn, M]"}},
    .output_count = 1,
    QK_ATTRIBUTES(microsoft_attributes),
    QK_VERSIONS(microsoft_versions),
    .version_last = 1,
    .code = &code,
};
