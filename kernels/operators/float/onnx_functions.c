/* onnx.HardSigmoid, HardSwish, LeakyRelu, Sigmoid, Abs, Neg and Sqrt on FP32: functions of single
 * elements.
 *
 * Each operation is rounded to FP32, as in ONNX Runtime (onnxruntime/core/providers/cpu/
 * activation/activations.h, .../math/element_wise_ops.cc). The logistic function has ONNX Runtime's
 * polynomials, so Sigmoid has its bits, too. */
#include <math.h>

#include "kernels/element/logistic.h"
#include "kernels/operators/float/float_function.h"

enum { ALPHA, BETA };

static float real_or(const struct qk_attribute *attribute, float otherwise)
{
    return attribute->present ? attribute->real : otherwise;
}

/* ---- The functions ------------------------------------------------------------------------- */

/* Returns a * x + b, from 0 to 1. */
static float hard_sigmoid(const struct qk_float_function *function, float x)
{
    const float product = function->a * x;
    const float y = product + function->b;
    return y < 0 ? 0 : y > 1 ? 1 : y;
}

static float hard_swish(const struct qk_float_function *function, float x)
{
    return x * hard_sigmoid(function, x);
}

static float leaky_relu(const struct qk_float_function *function, float x)
{
    return x >= 0 ? x : function->a * x;
}

static float sigmoid(const struct qk_float_function *function, float x)
{
    (void)function;
    return qk_logistic(x);
}

static float absolute(const struct qk_float_function *function, float x)
{
    (void)function;
    return fabsf(x);
}

static float negative(const struct qk_float_function *function, float x)
{
    (void)function;
    return -x;
}

static float root(const struct qk_float_function *function, float x)
{
    (void)function;
    return sqrtf(x);
}

/* ---- Prepare ------------------------------------------------------------------------------- */

#define PREPARE(name, ...)                                                                      \
    static enum qk_status prepare_##name(const struct qk_kernels *kernels,                      \
                                         const struct qk_call *call, struct qk_memory memory,   \
                                         struct qk_instance **instance, struct qk_error *error) \
    {                                                                                           \
        const struct qk_float_function function = {.compute = (name), __VA_ARGS__};             \
        (void)kernels;                                                                          \
        (void)call;                                                                             \
        return qk_float_prepare(&function, memory, instance, error);                            \
    }

PREPARE(hard_sigmoid, .a = real_or(&call->attributes[ALPHA], 0.2F),
        .b = real_or(&call->attributes[BETA], 0.5F))
PREPARE(hard_swish, .a = 1.0F / 6, .b = 0.5F)
PREPARE(leaky_relu, .a = real_or(&call->attributes[ALPHA], 0.01F))
PREPARE(sigmoid, .a = 0)
PREPARE(absolute, .a = 0)
PREPARE(negative, .a = 0)
PREPARE(root, .a = 0)

/* ---- The descriptors ----------------------------------------------------------------------- */

static const struct qk_attribute_def hard_sigmoid_attributes[] = {
    [ALPHA] = QK_ATTRIBUTE("alpha", FLOAT, 6, "default 0.2: the slope"),
    [BETA] = QK_ATTRIBUTE("beta", FLOAT, 6, "default 0.5: the value at 0"),
};

static const struct qk_attribute_def leaky_relu_attributes[] = {
    [ALPHA] = QK_ATTRIBUTE("alpha", FLOAT, 6, "default 0.01: the factor of negative values"),
};

/* Later versions only added types, and attributes that change no result. */
#define SINCE(since)                                                               \
    {                                                                              \
        .number = (since), .inputs = {{QK_BIT(QK_FP32), false}}, .output_types = { \
            QK_BIT(QK_FP32)                                                        \
        }                                                                          \
    }

static const struct qk_version versions_6[] = {SINCE(6)};
static const struct qk_version versions_14[] = {SINCE(14)};

#define OPERATOR(title, function, since, text)                                         \
    .name = (title), .platform = QK_ONNX_PLATFORM, .about = (text),                    \
    .inputs = {{"X", QK_ANY_SHAPE}}, .input_count = 1, .variable_inputs = 1U,          \
    .outputs = {{"Y", "as X"}}, .output_count = 1, QK_VERSIONS(versions_##since),      \
    .version_last = QK_ONNX_VERSION_LAST, .code = &(const struct qk_operator_code)     \
    {                                                                                  \
        .prepare = prepare_##function, .plan = qk_float_plan, .floats_as_tables = true \
    }

const struct qk_operator qk_onnx_abs = {OPERATOR("onnx.Abs", absolute, 6, "Y = |X|")};

const struct qk_operator qk_onnx_hard_sigmoid = {
    OPERATOR("onnx.HardSigmoid", hard_sigmoid, 6, "Y = alpha * X + beta, from 0 to 1"),
    QK_ATTRIBUTES(hard_sigmoid_attributes),
};

const struct qk_operator qk_onnx_hard_swish = {
    OPERATOR("onnx.HardSwish", hard_swish, 14, "Y = X * HardSigmoid(X), with alpha 1/6"),
};

const struct qk_operator qk_onnx_leaky_relu = {
    OPERATOR("onnx.LeakyRelu", leaky_relu, 6, "Multiplies the values below 0 by alpha"),
    QK_ATTRIBUTES(leaky_relu_attributes),
};

const struct qk_operator qk_onnx_neg = {OPERATOR("onnx.Neg", negative, 6, "Y = -X")};

const struct qk_operator qk_onnx_sigmoid = {
    OPERATOR("onnx.Sigmoid", sigmoid, 6, "The logistic function"),
};

const struct qk_operator qk_onnx_sqrt = {OPERATOR("onnx.Sqrt", root, 6, "The square root")};
