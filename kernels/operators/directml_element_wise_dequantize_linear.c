/* directml.ElementWiseDequantizeLinear: f = (input - zero_point) * scale, element by element.
 *
 * All tensors have the same sizes. Broadcasting is done with strides of 0. Microsoft's pages
 * (DML_ELEMENT_WISE_DEQUANTIZE_LINEAR_OPERATOR_DESC, DML_BUFFER_TENSOR_DESC) leave two rules open,
 * which are decided here: differences of 32-bit integers are exact, and FP16 is rounded to nearest
 * even. */
#include "kernels/dequantize/affine.h"
#include "kernels/dispatch.h"
#include "kernels/operators/operator.h"
#include "kernels/operators/rules.h"
#include "kernels/operators/shape_text.h"

/* The inputs. The attributes with their strides have the same order. */
enum { INPUT, SCALE, ZERO_POINT, INPUT_COUNT };

/* Feature level 3_0 came with tensors of 1 to 8 dimensions. */
#define LEVEL_ANY_RANK 30

struct instance {
    struct qk_instance base;
    struct qk_affine affine;
    struct qk_tensor scale;      /* its shape */
    struct qk_tensor zero_point; /* likewise; type QK_NONE: there is none */
};

/* Checks that the sizes of a tensor, which is input `input`, are allowed at the feature level. */
static enum qk_status check_sizes(const struct qk_operator *op, const struct qk_version *version,
                                  size_t input, const struct qk_tensor *tensor,
                                  struct qk_error *error)
{
    const char *name = op->inputs[input].name;
    const bool any_rank = version->number >= LEVEL_ANY_RANK;
    const uint32_t rank_min = any_rank ? 1 : 4;
    const uint32_t rank_max = any_rank ? 8 : 4;
    struct qk_shape_text shape;
    qk_shape_text(tensor, &shape);
    if (tensor->rank < rank_min || tensor->rank > rank_max)
        return qk_fail(error, QK_INVALID,
                       "%s: expected %s dimensions, as %s %u has them, got shape %s", name,
                       any_rank ? "1 to 8" : "exactly 4", op->name, version->number, shape.text);
    if (tensor->count == 0)
        return qk_fail(error, QK_INVALID, "%s: expected sizes of at least 1, got shape %s", name,
                       shape.text);
    if (tensor->count > UINT32_MAX)
        return qk_fail(error, QK_INVALID, "%s: expected at most 4294967295 elements, got shape %s",
                       name, shape.text);
    return QK_OK;
}

/* Checks that a tensor, which is input `input`, has the sizes of InputTensor. Most clients that
 * fail here expect ONNX's single scale, so the error says what DirectML wants instead. */
static enum qk_status check_same_sizes(const struct qk_operator *op, size_t input,
                                       const struct qk_tensor *tensor, const struct qk_tensor *x,
                                       struct qk_error *error)
{
    const char *name = op->inputs[input].name;
    struct qk_shape_text shape;
    struct qk_shape_text wanted;
    if (tensor->type == QK_NONE || qk_same_shape(tensor, x))
        return QK_OK;
    return qk_fail(error, QK_INVALID,
                   "%s: expected the sizes of InputTensor, %s, got %s; parameters.%s.strides of 0 "
                   "repeat elements along a dimension",
                   name, qk_shape_text(x, &wanted), qk_shape_text(tensor, &shape), name);
}

/* Refuses constants whose sizes differ from each other, because no InputTensor could match both.
 * With constants_stay the sizes of InputTensor follow at once, in plan, whose error can say which
 * of the two is wrong. */
static enum qk_status check_constants(const struct qk_call *call, struct qk_error *error)
{
    const struct qk_tensor *scale = &call->inputs[SCALE];
    const struct qk_tensor *zero_point = &call->inputs[ZERO_POINT];
    struct qk_shape_text scale_shape;
    struct qk_shape_text shape;
    if (zero_point->type == QK_NONE || qk_same_shape(scale, zero_point) || call->constants_stay)
        return QK_OK;
    return qk_fail(error, QK_INVALID,
                   "ScaleTensor and ZeroPointTensor: expected the sizes of InputTensor, got %s and "
                   "%s; parameters.ScaleTensor.strides and parameters.ZeroPointTensor.strides of 0 "
                   "repeat elements along a dimension",
                   qk_shape_text(scale, &scale_shape), qk_shape_text(zero_point, &shape));
}

static enum qk_status prepare(const struct qk_kernels *kernels, const struct qk_call *call,
                              struct qk_memory memory, struct qk_instance **instance,
                              struct qk_error *error)
{
    const struct qk_tensor *inputs = call->inputs;
    enum qk_status status = check_sizes(call->op, call->version, SCALE, &inputs[SCALE], error);
    if (status == QK_OK)
        status = check_constants(call, error);
    if (status == QK_OK)
        status = qk_check_same_type(call, ZERO_POINT, INPUT, error);
    if (status != QK_OK)
        return status;

    struct instance *made = memory.alloc(memory.context, sizeof(*made));
    if (!made)
        return qk_fail(error, QK_NO_MEMORY, "out of memory for an operator");
    *made = (struct instance){
        .base = {.output_types = {inputs[SCALE].type}},
        .affine = {.form = QK_AFFINE_EXACT,
                   .x_type = inputs[INPUT].type,
                   .y_type = inputs[SCALE].type},
        .scale = inputs[SCALE],
        .zero_point = inputs[ZERO_POINT],
    };
    *instance = &made->base;
    return qk_affine_prepare(&made->affine, &kernels->dequantize, &inputs[SCALE],
                             &inputs[ZERO_POINT], call->constants_stay, memory, &made->base, error);
}

static void pack(struct qk_instance *instance, size_t begin, size_t end)
{
    qk_affine_pack(&((struct instance *)instance)->affine, begin, end);
}

/* Returns the strides that the call gives for an input, or NULL if the input is row-major. */
static const int64_t *strides_of(const struct qk_instance *instance, size_t input)
{
    const bool given = instance->strides && instance->strides[input].present;
    return given ? instance->strides[input].list : NULL;
}

static enum qk_status plan(const struct qk_instance *instance, const struct qk_tensor *inputs,
                           struct qk_memory memory, struct qk_plan *plan, struct qk_error *error)
{
    const struct instance *made = (const struct instance *)instance;
    const struct qk_tensor *x = &inputs[INPUT];
    struct qk_broadcast broadcast;
    enum qk_status status = check_sizes(instance->op, instance->version, INPUT, x, error);
    if (status == QK_OK)
        status = check_same_sizes(instance->op, SCALE, &made->scale, x, error);
    if (status == QK_OK)
        status = check_same_sizes(instance->op, ZERO_POINT, &made->zero_point, x, error);
    if (status != QK_OK)
        return status;
    qk_broadcast_init(&broadcast, x);
    qk_broadcast_element(&broadcast, strides_of(instance, INPUT), strides_of(instance, SCALE),
                         made->affine.zeros ? strides_of(instance, ZERO_POINT) : NULL);
    return qk_affine_plan(&made->affine, instance, x, &broadcast, memory, plan, error);
}

/* ---- The descriptor ---------------------------------------------------------------------- */

#define X_10 QK_BIT(QK_UINT8)
#define X_21                                                                             \
    (X_10 | QK_BIT(QK_INT8) | QK_BIT(QK_UINT16) | QK_BIT(QK_INT16) | QK_BIT(QK_UINT32) | \
     QK_BIT(QK_INT32))
#define SCALE_10 QK_BIT(QK_FP32)
#define SCALE_60 (SCALE_10 | QK_BIT(QK_FP16))

#define VERSION(since, x_types, scale_types, zero_point_optional)                           \
    {                                                                                       \
        .number = (since),                                                                  \
        .inputs = {[INPUT] = {.types = (x_types)},                                          \
                   [SCALE] = {.types = (scale_types)},                                      \
                   [ZERO_POINT] = {.types = (x_types), .optional = (zero_point_optional)}}, \
        .output_types = {                                                                   \
            (scale_types)                                                                   \
        }                                                                                   \
    }

static const struct qk_version versions[] = {
    VERSION(10, X_10, SCALE_10, false), VERSION(21, X_21, SCALE_10, false),
    VERSION(30, X_21, SCALE_10, false), VERSION(60, X_21, SCALE_60, false),
    VERSION(62, X_21, SCALE_60, true),
};

/* Feature levels 1_0, 2_0, 2_1 and so on, as version numbers. */
static const unsigned feature_levels[] = {10, 20, 21, 30, 31, 40, 41, 50,
                                          51, 52, 60, 61, 62, 63, 64};

#define STRIDES(tensor, index)                                                                  \
    {                                                                                           \
        .name = tensor ".strides", .kind = QK_ATTRIBUTE_STRIDES, .since = 10, .input = (index), \
        .about =                                                                                \
            "one for each dimension, in elements, 0 to 4294967295; 0 repeats; default: packed"  \
    }

static const struct qk_attribute_def attributes[] = {
    [INPUT] = STRIDES("InputTensor", INPUT),
    [SCALE] = STRIDES("ScaleTensor", SCALE),
    [ZERO_POINT] = STRIDES("ZeroPointTensor", ZERO_POINT),
};

const struct qk_operator qk_directml_element_wise_dequantize_linear = {
    .name = "directml.ElementWiseDequantizeLinear",
    .platform = "directml",
    .about =
        "(InputTensor - ZeroPointTensor) * ScaleTensor; versions are feature levels, 62 is 6_2",
    .inputs = {[INPUT] = {"InputTensor", "1 to 8 dimensions, exactly 4 before 30"},
               [SCALE] = {"ScaleTensor", "as InputTensor"},
               [ZERO_POINT] = {"ZeroPointTensor", "as InputTensor"}},
    .input_count = INPUT_COUNT,
    .variable_inputs = 1U << INPUT,
    .outputs = {{"OutputTensor", "as InputTensor"}},
    .output_count = 1,
    QK_ATTRIBUTES(attributes),
    QK_VERSIONS(versions),
    .version_last = 64,
    .numbers = feature_levels,
    .number_count = QK_LENGTH_OF(feature_levels),
    .code = &(const struct qk_operator_code){.prepare = prepare, .pack = pack, .plan = plan},
};
