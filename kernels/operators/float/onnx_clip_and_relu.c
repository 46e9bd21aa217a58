/* onnx.Clip and onnx.Relu: of 8 bits as tables, and of FP32.
 *
 * Of 8 bits, they compare codes and know no scale. Clip has integers since opset 12, and Relu has
 * INT8 since opset 14, but never UINT8 (onnx/defs/math/defs.cc). If min is above max, Clip gives
 * max, as in NumPy. */
#include <float.h>

#include "kernels/element/load.h"
#include "kernels/lookup/table_operator.h"
#include "kernels/operators/float/float_function.h"
#include "kernels/operators/rules.h"

enum { X, MIN, MAX };
enum { MIN_ATTRIBUTE, MAX_ATTRIBUTE };

/* Before this version, the limits of Clip are attributes. */
#define LIMITS_ARE_INPUTS_SINCE 11

struct range {
    int64_t least, greatest;
};

static uint8_t clipped_entry(const void *context, int32_t x)
{
    const struct range *range = context;
    const int64_t above = x < range->least ? range->least : x;
    return (uint8_t)(above > range->greatest ? range->greatest : above);
}

/* ---- Clip ---------------------------------------------------------------------------------- */

/* Checks that a limit is one number of x's type. */
static enum qk_status check_limits(const struct qk_call *call, struct qk_error *error)
{
    enum qk_status status = QK_OK;
    for (size_t i = MIN; i <= MAX && status == QK_OK; i++) {
        status = qk_check_same_type(call, i, X, error);
        if (status == QK_OK)
            status = qk_check_single(call, i, error);
    }
    for (size_t i = MIN_ATTRIBUTE; i <= MAX_ATTRIBUTE && status == QK_OK; i++)
        if (call->version->number >= LIMITS_ARE_INPUTS_SINCE && call->attributes[i].present)
            status =
                qk_fail(error, QK_INVALID,
                        "%s: expected an input since version %d of onnx.Clip, got an attribute",
                        call->op->attributes[i].name, LIMITS_ARE_INPUTS_SINCE);
    return status;
}

/* Returns a limit of FP32. */
static float limit_of(const struct qk_call *call, size_t input, size_t attribute, float otherwise)
{
    if (call->inputs[input].type != QK_NONE)
        return qk_load_f32(call->inputs[input].data, 0);
    return call->attributes[attribute].present ? call->attributes[attribute].real : otherwise;
}

/* Before version 11, ONNX Runtime refuses a min above max. */
static enum qk_status prepare_floats(const struct qk_call *call, struct qk_memory memory,
                                     struct qk_instance **instance, struct qk_error *error)
{
    const float least = limit_of(call, MIN, MIN_ATTRIBUTE, -FLT_MAX);
    const float greatest = limit_of(call, MAX, MAX_ATTRIBUTE, FLT_MAX);
    if (call->version->number < LIMITS_ARE_INPUTS_SINCE && least > greatest)
        return qk_fail(error, QK_INVALID, "min: expected at most max, %g, got %g", (double)greatest,
                       (double)least);
    return qk_float_prepare(QK_FLOAT_clip, least, greatest, memory, instance, error);
}

static enum qk_status prepare_clip(const struct qk_kernels *kernels, const struct qk_call *call,
                                   struct qk_memory memory, struct qk_instance **instance,
                                   struct qk_error *error)
{
    struct range range = {INT8_MIN, UINT8_MAX}; /* all codes of both types */
    int64_t *const limits[] = {[MIN] = &range.least, [MAX] = &range.greatest};
    const enum qk_status status = check_limits(call, error);
    (void)kernels;
    if (status != QK_OK)
        return status;
    if (call->inputs[X].type == QK_FP32)
        return prepare_floats(call, memory, instance, error);
    for (size_t i = MIN; i <= MAX; i++)
        if (call->inputs[i].type != QK_NONE)
            *limits[i] = qk_load_integer(call->inputs[i].type, call->inputs[i].data, 0);
    return qk_table_prepare(call, clipped_entry, &range, memory, instance, error);
}

/* ---- Relu ---------------------------------------------------------------------------------- */

static enum qk_status prepare_relu(const struct qk_kernels *kernels, const struct qk_call *call,
                                   struct qk_memory memory, struct qk_instance **instance,
                                   struct qk_error *error)
{
    const struct range range = {0, INT8_MAX};
    (void)kernels;
    if (call->inputs[X].type == QK_FP32)
        return qk_float_prepare(QK_FLOAT_relu, 0, 0, memory, instance, error);
    return qk_table_prepare(call, clipped_entry, &range, memory, instance, error);
}

static enum qk_status plan(const struct qk_instance *instance, const struct qk_tensor *inputs,
                           struct qk_memory memory, struct qk_plan *plan, struct qk_error *error)
{
    if (instance->output_types[0] == QK_FP32)
        return qk_float_plan(instance, inputs, memory, plan, error);
    return qk_table_plan(instance, inputs, memory, plan, error);
}

/* ---- The descriptors ----------------------------------------------------------------------- */

#define CODES (QK_BIT(QK_UINT8) | QK_BIT(QK_INT8))
#define FLOATS QK_BIT(QK_FP32)

#define CLIP_VERSION(since, types, limits)                                                      \
    {                                                                                           \
        .number = (since),                                                                      \
        .inputs = {[X] = {(types), false}, [MIN] = {(limits), true}, [MAX] = {(limits), true}}, \
        .output_types = {(types)},                                                              \
    }

static const struct qk_version clip_versions[] = {
    CLIP_VERSION(6, FLOATS, 0),
    CLIP_VERSION(11, FLOATS, FLOATS),
    CLIP_VERSION(12, FLOATS | CODES, FLOATS | CODES),
    CLIP_VERSION(13, FLOATS | CODES, FLOATS | CODES),
};

static const struct qk_attribute_def clip_attributes[] = {
    [MIN_ATTRIBUTE] = QK_ATTRIBUTE("min", FLOAT, 6, "before version 11, which has an input"),
    [MAX_ATTRIBUTE] = QK_ATTRIBUTE("max", FLOAT, 6, "before version 11, which has an input"),
};

static const struct qk_version relu_versions[] = {
    {.number = 6, .inputs = {[X] = {FLOATS, false}}, .output_types = {FLOATS}},
    {.number = 14,
     .inputs = {[X] = {FLOATS | QK_BIT(QK_INT8), false}},
     .output_types = {FLOATS | QK_BIT(QK_INT8)}},
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
    QK_ATTRIBUTES(clip_attributes),
    QK_VERSIONS(clip_versions),
    .version_last = QK_ONNX_VERSION_LAST,
    .code = &(const struct qk_operator_code){.prepare = prepare_clip,
                                             .plan = plan,
                                             .is_element_by_element = true},
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
    .code = &(const struct qk_operator_code){.prepare = prepare_relu,
                                             .plan = plan,
                                             .is_element_by_element = true},
};
