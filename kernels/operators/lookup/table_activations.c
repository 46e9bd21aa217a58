/* com.microsoft.QLinearSigmoid, com.microsoft.QLinearLeakyRelu, onnx.Clip and onnx.Relu on 8 bits:
 * functions of single elements, as tables.
 *
 * An entry of the first two is computed as ONNX Runtime computes it, in float32 (onnxruntime/
 * contrib_ops/cpu/quantization/qlinear_lookup_table.cc and qlinear_activations.cc; the sigmoid is
 * that of onnxruntime/core/mlas/lib/logistic.cpp, on CPUs with FMA).
 *
 * Clip and Relu compare codes and know no scale. Clip has integers since opset 12, and Relu has
 * INT8 since opset 14, but never UINT8 (onnx/defs/math/defs.cc). If min is above max, Clip gives
 * max, as in NumPy. */
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

/* ---- The descriptors of the first two ---------------------------------------------------------
 */

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

/* ---- Clip and Relu ------------------------------------------------------------------------- */

enum { MIN = 1, MAX };

struct range {
    int64_t least, greatest;
};

static uint8_t clipped_entry(const void *context, int32_t x)
{
    const struct range *range = context;
    const int64_t above = x < range->least ? range->least : x;
    return (uint8_t)(above > range->greatest ? range->greatest : above);
}

static enum qk_status prepare_clip(const struct qk_kernels *kernels, const struct qk_call *call,
                                   struct qk_memory memory, struct qk_instance **instance,
                                   struct qk_error *error)
{
    struct range range = {INT8_MIN, UINT8_MAX}; /* all codes of both types */
    int64_t *const limits[] = {[MIN] = &range.least, [MAX] = &range.greatest};
    (void)kernels;
    for (size_t i = MIN; i <= MAX; i++) {
        const struct qk_tensor *limit = &call->inputs[i];
        enum qk_status status = qk_check_same_type(call, i, X, error);
        if (status == QK_OK)
            status = qk_check_single(call, i, error);
        if (status != QK_OK)
            return status;
        if (limit->type != QK_NONE)
            *limits[i] = qk_load_integer(limit->type, limit->data, 0);
    }
    return qk_table_prepare(call, clipped_entry, &range, memory, instance, error);
}

static enum qk_status prepare_relu(const struct qk_kernels *kernels, const struct qk_call *call,
                                   struct qk_memory memory, struct qk_instance **instance,
                                   struct qk_error *error)
{
    const struct range range = {0, INT8_MAX};
    (void)kernels;
    return qk_table_prepare(call, clipped_entry, &range, memory, instance, error);
}

#define CLIP_VERSION(since)                                                             \
    {                                                                                   \
        .number = (since),                                                              \
        .inputs = {[X] = {CODES, false}, [MIN] = {CODES, true}, [MAX] = {CODES, true}}, \
        .output_types = {CODES},                                                        \
    }

static const struct qk_version clip_versions[] = {CLIP_VERSION(12), CLIP_VERSION(13)};

static const struct qk_version relu_versions[] = {
    {.number = 14, .inputs = {[X] = {QK_BIT(QK_INT8), false}}, .output_types = {QK_BIT(QK_INT8)}},
};

const struct qk_operator qk_onnx_clip = {
    .name = "onnx.Clip",
    .platform = QK_ONNX_PLATFORM,
    .about = "output = min(max(input, min), max), element by element",
    .inputs = {[X] = {"input", QK_ANY_SHAPE},
               [MIN] = {"min", QK_SINGLE_SHAPE},
               [MAX] = {"max", QK_SINGLE_SHAPE}},
    .input_count = 3,
    .variable_inputs = 1U << X,
    .outputs = {{"output", "as input"}},
    .output_count = 1,
    QK_VERSIONS(clip_versions),
    .version_last = QK_ONNX_VERSION_LAST,
    .code = &(const struct qk_operator_code){.prepare = prepare_clip, .plan = qk_table_plan},
};

const struct qk_operator qk_onnx_relu = {
    .name = "onnx.Relu",
    .platform = QK_ONNX_PLATFORM,
    .about = "Y = max(X, 0), element by element",
    .inputs = {[X] = {"X", QK_ANY_SHAPE}},
    .input_count = 1,
    .variable_inputs = 1U << X,
    .outputs = {{"Y", "as X"}},
    .output_count = 1,
    QK_VERSIONS(relu_versions),
    .version_last = QK_ONNX_VERSION_LAST,
    .code = &(const struct qk_operator_code){.prepare = prepare_relu, .plan = qk_table_plan},
};
