/* ONNX's functions of single FP32 elements, from Abs to ThresholdedRelu. kernels/floats/functions.h
 * has the functions, with ONNX Runtime's bits. */
#include <string.h>

#include "kernels/operators/float/float_function.h"

enum { ALPHA, BETA };
enum { GAMMA = 1 };
enum { APPROXIMATE };

static float real_or(const struct qk_attribute *attribute, float otherwise)
{
    return attribute->present ? attribute->real : otherwise;
}

/* ---- Prepare ------------------------------------------------------------------------------- */

#define PREPARE(name, a, b)                                                                     \
    static enum qk_status prepare_##name(const struct qk_kernels *kernels,                      \
                                         const struct qk_call *call, struct qk_memory memory,   \
                                         struct qk_instance **instance, struct qk_error *error) \
    {                                                                                           \
        (void)kernels;                                                                          \
        (void)call;                                                                             \
        return qk_float_prepare(QK_FLOAT_##name, (a), (b), memory, instance, error);            \
    }

PREPARE(abs, 0, 0)
PREPARE(ceil, 0, 0)
PREPARE(elu, real_or(&call->attributes[ALPHA], 1), 0)
PREPARE(erf, 0, 0)
PREPARE(exp, 0, 0)
PREPARE(floor, 0, 0)
PREPARE(hard_sigmoid, real_or(&call->attributes[ALPHA], 0.2F),
        real_or(&call->attributes[BETA], 0.5F))
PREPARE(hard_swish, 1.0F / 6, 0.5F)
PREPARE(leaky_relu, real_or(&call->attributes[ALPHA], 0.01F), 0)
PREPARE(log, 0, 0)
PREPARE(mish, 0, 0)
PREPARE(neg, 0, 0)
PREPARE(reciprocal, 0, 0)
PREPARE(round, 0, 0)
PREPARE(selu,
        real_or(&call->attributes[ALPHA], 1.67326319217681884765625F) *
            real_or(&call->attributes[GAMMA], 1.05070102214813232421875F),
        real_or(&call->attributes[GAMMA], 1.05070102214813232421875F))
PREPARE(sigmoid, 0, 0)
PREPARE(sign, 0, 0)
PREPARE(softplus, 0, 0)
PREPARE(softsign, 0, 0)
PREPARE(sqrt, 0, 0)
PREPARE(tanh, 0, 0)
PREPARE(thresholded_relu, real_or(&call->attributes[ALPHA], 1), 0)

static enum qk_status prepare_celu(const struct qk_kernels *kernels, const struct qk_call *call,
                                   struct qk_memory memory, struct qk_instance **instance,
                                   struct qk_error *error)
{
    const float alpha = real_or(&call->attributes[ALPHA], 1);
    (void)kernels;
    if (!(alpha > 0))
        return qk_fail(error, QK_INVALID, "alpha: expected a number above 0, got %g",
                       (double)alpha);
    return qk_float_prepare(QK_FLOAT_celu, alpha, 0, memory, instance, error);
}

static enum qk_status prepare_gelu(const struct qk_kernels *kernels, const struct qk_call *call,
                                   struct qk_memory memory, struct qk_instance **instance,
                                   struct qk_error *error)
{
    const struct qk_attribute *approximate = &call->attributes[APPROXIMATE];
    const char *by = approximate->present ? approximate->string : "none";
    (void)kernels;
    if (strcmp(by, "none") != 0 && strcmp(by, "tanh") != 0)
        return qk_fail(error, QK_INVALID, "approximate: expected none or tanh, got \"%.64s\"", by);
    return qk_float_prepare(strcmp(by, "tanh") == 0 ? QK_FLOAT_gelu_tanh : QK_FLOAT_gelu, 0, 0,
                            memory, instance, error);
}

/* ---- The descriptors ----------------------------------------------------------------------- */

static const struct qk_attribute_def celu_attributes[] = {
    [ALPHA] = QK_ATTRIBUTE("alpha", FLOAT, 12, "default 1, above 0: the limit is -alpha"),
};

static const struct qk_attribute_def elu_attributes[] = {
    [ALPHA] = QK_ATTRIBUTE("alpha", FLOAT, 6, "default 1: the limit is -alpha"),
};

static const struct qk_attribute_def gelu_attributes[] = {
    [APPROXIMATE] = QK_ATTRIBUTE("approximate", STRING, 20, "default none, or tanh"),
};

static const struct qk_attribute_def hard_sigmoid_attributes[] = {
    [ALPHA] = QK_ATTRIBUTE("alpha", FLOAT, 6, "default 0.2: the slope"),
    [BETA] = QK_ATTRIBUTE("beta", FLOAT, 6, "default 0.5: the value at 0"),
};

static const struct qk_attribute_def leaky_relu_attributes[] = {
    [ALPHA] = QK_ATTRIBUTE("alpha", FLOAT, 6, "default 0.01: the factor of negative values"),
};

static const struct qk_attribute_def selu_attributes[] = {
    [ALPHA] = QK_ATTRIBUTE("alpha", FLOAT, 6, "default 1.67326319: the limit is -alpha * gamma"),
    [GAMMA] = QK_ATTRIBUTE("gamma", FLOAT, 6, "default 1.05070102: the factor of all values"),
};

static const struct qk_attribute_def thresholded_relu_attributes[] = {
    [ALPHA] = QK_ATTRIBUTE("alpha", FLOAT, 10, "default 1: smaller values become 0"),
};

/* Later versions only added types, and attributes that change no result. */
#define SINCE(since)                                                               \
    {                                                                              \
        .number = (since), .inputs = {{QK_BIT(QK_FP32), false}}, .output_types = { \
            QK_BIT(QK_FP32)                                                        \
        }                                                                          \
    }

static const struct qk_version versions_1[] = {SINCE(1)};
static const struct qk_version versions_6[] = {SINCE(6)};
static const struct qk_version versions_9[] = {SINCE(9)};
static const struct qk_version versions_10[] = {SINCE(10)};
static const struct qk_version versions_11[] = {SINCE(11)};
static const struct qk_version versions_12[] = {SINCE(12)};
static const struct qk_version versions_14[] = {SINCE(14)};
static const struct qk_version versions_18[] = {SINCE(18)};
static const struct qk_version versions_20[] = {SINCE(20)};

#define OPERATOR(title, function, since, text)                                              \
    .name = (title), .platform = QK_ONNX_PLATFORM, .about = (text),                         \
    .inputs = {{"X", QK_ANY_SHAPE}}, .input_count = 1, .variable_inputs = 1U,               \
    .outputs = {{"Y", "as X"}}, .output_count = 1, QK_VERSIONS(versions_##since),           \
    .version_last = QK_ONNX_VERSION_LAST, .code = &(const struct qk_operator_code)          \
    {                                                                                       \
        .prepare = prepare_##function, .plan = qk_float_plan, .is_element_by_element = true \
    }

const struct qk_operator qk_onnx_abs = {OPERATOR("onnx.Abs", abs, 6, "Y = |X|")};

const struct qk_operator qk_onnx_ceil = {
    OPERATOR("onnx.Ceil", ceil, 6, "The least integer that is not below X"),
};

const struct qk_operator qk_onnx_celu = {
    OPERATOR("onnx.Celu", celu, 12, "Y = alpha * (e^(X / alpha) - 1) for values below 0"),
    QK_ATTRIBUTES(celu_attributes),
};

const struct qk_operator qk_onnx_elu = {
    OPERATOR("onnx.Elu", elu, 6, "Y = alpha * (e^X - 1) for values below 0"),
    QK_ATTRIBUTES(elu_attributes),
};

const struct qk_operator qk_onnx_erf = {OPERATOR("onnx.Erf", erf, 9, "The error function")};

const struct qk_operator qk_onnx_exp = {OPERATOR("onnx.Exp", exp, 6, "Y = e^X")};

const struct qk_operator qk_onnx_floor = {
    OPERATOR("onnx.Floor", floor, 6, "The greatest integer that is not above X"),
};

const struct qk_operator qk_onnx_gelu = {
    OPERATOR("onnx.Gelu", gelu, 20, "Y = X * (1 + erf(X / sqrt 2)) / 2"),
    QK_ATTRIBUTES(gelu_attributes),
};

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

const struct qk_operator qk_onnx_log = {OPERATOR("onnx.Log", log, 6, "The natural logarithm")};

const struct qk_operator qk_onnx_mish = {
    OPERATOR("onnx.Mish", mish, 18, "Y = X * tanh(ln(1 + e^X))"),
};

const struct qk_operator qk_onnx_neg = {OPERATOR("onnx.Neg", neg, 6, "Y = -X")};

const struct qk_operator qk_onnx_reciprocal = {
    OPERATOR("onnx.Reciprocal", reciprocal, 6, "Y = 1 / X"),
};

const struct qk_operator qk_onnx_round = {
    OPERATOR("onnx.Round", round, 11, "The nearest integer, ties to even"),
};

const struct qk_operator qk_onnx_selu = {
    OPERATOR("onnx.Selu", selu, 6, "Y = gamma * X, and gamma * alpha * (e^X - 1) below 0"),
    QK_ATTRIBUTES(selu_attributes),
};

const struct qk_operator qk_onnx_sigmoid = {
    OPERATOR("onnx.Sigmoid", sigmoid, 6, "The logistic function"),
};

const struct qk_operator qk_onnx_sign = {OPERATOR("onnx.Sign", sign, 9, "-1, 0 or 1")};

const struct qk_operator qk_onnx_softplus = {
    OPERATOR("onnx.Softplus", softplus, 1, "Y = ln(1 + e^X)"),
};

const struct qk_operator qk_onnx_softsign = {
    OPERATOR("onnx.Softsign", softsign, 1, "Y = X / (1 + |X|)"),
};

const struct qk_operator qk_onnx_sqrt = {OPERATOR("onnx.Sqrt", sqrt, 6, "The square root")};

const struct qk_operator qk_onnx_tanh = {OPERATOR("onnx.Tanh", tanh, 6, "The hyperbolic tangent")};

const struct qk_operator qk_onnx_thresholded_relu = {
    OPERATOR("onnx.ThresholdedRelu", thresholded_relu, 10, "X where it is above alpha, else 0"),
    QK_ATTRIBUTES(thresholded_relu_attributes),
};
