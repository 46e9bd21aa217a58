/* com.microsoft.QLinearSigmoid and com.microsoft.QLinearLeakyRelu: functions of single elements, as
 * tables.
 *
 * An entry is computed as ONNX Runtime computes it, in float32 (onnxruntime/
 * contrib_ops/cpu/quantization/qlinear_lookup_table.cc and qlinear_activations.cc; the sigmoid is
 * that of onnxruntime/core/mlas/lib/logistic.cpp, on CPUs with FMA). */
#include "kernels/element/load.h"
#include "kernels/element/logistic.h"
#include "kernels/lookup/codes.h"
#include "kernels/lookup/table_operator.h"
#include "kernels/operators/rules.h"

enum { X, X_SCALE, X_ZERO_POINT, Y_SCALE, Y_ZERO_POINT, INPUT_COUNT };
enum { ALPHA };

#define ALPHA_DEFAULT 0.01F

struct activation {
    float (*function)(const struct activation *activation, float x);
    float alpha;
    struct qk_codes x, y;
};

/* ---- The functions ------------------------------------------------------------------------- */

static float sigmoid(const struct activation *activation, float x)
{
    (void)activation;
    return qk_logistic(x);
}

static float leaky_relu(const struct activation *activation, float x)
{
    return x >= 0 ? x : activation->alpha * x;
}

/* Dequantizes x, applies the function, and quantizes the result. */
static uint8_t entry(const void *context, int32_t x)
{
    const struct activation *a = context;
    return qk_quantize_code(&a->y, a->function(a, qk_dequantize_code(&a->x, x)));
}

/* ---- Prepare ------------------------------------------------------------------------------- */

static enum qk_status check(const struct qk_call *call, struct qk_error *error)
{
    static const size_t zero_points[] = {X_ZERO_POINT, Y_ZERO_POINT};
    enum qk_status status = QK_OK;
    for (size_t i = 0; i < QK_LENGTH_OF(zero_points) && status == QK_OK; i++)
        status = qk_check_same_type(call, zero_points[i], X, error);
    for (size_t i = X_SCALE; i < INPUT_COUNT && status == QK_OK; i++)
        status = qk_check_single(call, i, error);
    return status;
}

static enum qk_status prepare(struct activation *activation, const struct qk_call *call,
                              struct qk_memory memory, struct qk_instance **instance,
                              struct qk_error *error)
{
    const struct qk_tensor *inputs = call->inputs;
    const enum qk_status status = check(call, error);
    if (status != QK_OK)
        return status;
    activation->x = qk_codes_of(inputs[X].type, &inputs[X_SCALE], &inputs[X_ZERO_POINT]);
    activation->y = qk_codes_of(inputs[X].type, &inputs[Y_SCALE], &inputs[Y_ZERO_POINT]);
    return qk_table_prepare(call, entry, activation, memory, instance, error);
}

static enum qk_status prepare_sigmoid(const struct qk_kernels *kernels, const struct qk_call *call,
                                      struct qk_memory memory, struct qk_instance **instance,
                                      struct qk_error *error)
{
    struct activation activation = {.function = sigmoid};
    (void)kernels;
    return prepare(&activation, call, memory, instance, error);
}

static enum qk_status prepare_leaky_relu(const struct qk_kernels *kernels,
                                         const struct qk_call *call, struct qk_memory memory,
                                         struct qk_instance **instance, struct qk_error *error)
{
    const struct qk_attribute *alpha = &call->attributes[ALPHA];
    struct activation activation = {.function = leaky_relu,
                                    .alpha = alpha->present ? alpha->real : ALPHA_DEFAULT};
    (void)kernels;
    return prepare(&activation, call, memory, instance, error);
}

/* ---- The descriptors ----------------------------------------------------------------------- */

#define CODES (QK_BIT(QK_UINT8) | QK_BIT(QK_INT8))

static const struct qk_version versions[] = {
    {.number = 1,
     .inputs = {[X] = {CODES, false},
                [X_SCALE] = {QK_BIT(QK_FP32), false},
                [X_ZERO_POINT] = {CODES, true},
                [Y_SCALE] = {QK_BIT(QK_FP32), false},
                [Y_ZERO_POINT] = {CODES, true}},
     .output_types = {CODES}},
};

static const struct qk_attribute_def leaky_relu_attributes[] = {
    [ALPHA] = QK_ATTRIBUTE("alpha", FLOAT, 1, "default 0.01: the factor of negative values"),
};

#define PORTS                                                                           \
    .inputs = {[X] = {"X", QK_ANY_SHAPE},                                               \
               [X_SCALE] = {"X_scale", QK_SINGLE_SHAPE},                                \
               [X_ZERO_POINT] = {"X_zero_point", QK_SINGLE_SHAPE},                      \
               [Y_SCALE] = {"Y_scale", QK_SINGLE_SHAPE},                                \
               [Y_ZERO_POINT] = {"Y_zero_point", QK_SINGLE_SHAPE}},                     \
    .input_count = INPUT_COUNT, .variable_inputs = 1U << X, .outputs = {{"Y", "as X"}}, \
    .output_count = 1, QK_VERSIONS(versions), .version_last = 1

const struct qk_operator qk_microsoft_qlinear_sigmoid = {
    .name = "com.microsoft.QLinearSigmoid",
    .platform = QK_ONNX_PLATFORM,
    .about = "The logistic function of a quantized tensor",
    PORTS,
    .code = &(const struct qk_operator_code){.prepare = prepare_sigmoid, .plan = qk_table_plan},
};

const struct qk_operator qk_microsoft_qlinear_leaky_relu = {
    .name = "com.microsoft.QLinearLeakyRelu",
    .platform = QK_ONNX_PLATFORM,
    .about = "Multiplies the negative values of a quantized tensor by alpha",
    PORTS,
    QK_ATTRIBUTES(leaky_relu_attributes),
    .code = &(const struct qk_operator_code){.prepare = prepare_leaky_relu, .plan = qk_table_plan},
};
