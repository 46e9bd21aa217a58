/* onnx.ArgMax and onnx.ArgMin: the index of the largest or the least element along an axis
 * (onnx/defs/reduction/defs.cc). kernels/argmax/argmax.h says which of equal elements counts, and
 * what NaNs do. */
#include "kernels/argmax/argmax.h"

#include "kernels/dispatch.h"
#include "kernels/operators/move/moving.h"
#include "kernels/operators/rules.h"

enum { DATA };
enum { AXIS, KEEPDIMS, SELECT_LAST_INDEX };

struct instance {
    struct qk_instance base;
    int64_t axis;
    struct qk_argmax argmax;
};

/* As in ONNX Runtime, keepdims is 1 or nothing, and any select_last_index but 0 selects the last.
 */
static enum qk_status prepare(const struct qk_call *call, bool is_min, struct qk_memory memory,
                              struct qk_instance **instance, struct qk_error *error)
{
    const struct qk_attribute *attributes = call->attributes;
    struct instance *made = memory.alloc(memory.context, sizeof(*made));
    if (!made)
        return qk_fail(error, QK_NO_MEMORY, "out of memory for an operator");
    *made = (struct instance){
        .base = {.output_types = {QK_INT64}},
        .axis = qk_int_or(&attributes[AXIS], 0),
        .argmax = {.is_min = is_min,
                   .last = qk_int_or(&attributes[SELECT_LAST_INDEX], 0) != 0,
                   .keeps = qk_int_or(&attributes[KEEPDIMS], 1) == 1},
    };
    *instance = &made->base;
    return QK_OK;
}

static enum qk_status prepare_max(const struct qk_kernels *kernels, const struct qk_call *call,
                                  struct qk_memory memory, struct qk_instance **instance,
                                  struct qk_error *error)
{
    (void)kernels;
    return prepare(call, false, memory, instance, error);
}

static enum qk_status prepare_min(const struct qk_kernels *kernels, const struct qk_call *call,
                                  struct qk_memory memory, struct qk_instance **instance,
                                  struct qk_error *error)
{
    (void)kernels;
    return prepare(call, true, memory, instance, error);
}

static enum qk_status plan(const struct qk_instance *instance, const struct qk_tensor *inputs,
                           struct qk_memory memory, struct qk_plan *plan, struct qk_error *error)
{
    const struct instance *made = (const struct instance *)instance;
    const struct qk_tensor *x = &inputs[DATA];
    uint32_t axis;
    const enum qk_status status = qk_find_axis("axis", made->axis, x->rank, &axis, error);
    if (status != QK_OK)
        return status;
    return qk_argmax_plan(&made->argmax, instance->kernels->argmax,
                          &instance->kernels->choice.elementwise, x, axis, memory, plan, error);
}

/* ---- The descriptors ----------------------------------------------------------------------- */

#define VERSION(opset)                                                             \
    {                                                                              \
        .number = (opset), .inputs = {{QK_ARGMAX_TYPES, false}}, .output_types = { \
            QK_BIT(QK_INT64)                                                       \
        }                                                                          \
    }

static const struct qk_version versions[] = {VERSION(1), VERSION(11), VERSION(12), VERSION(13)};

static const struct qk_attribute_def attributes[] = {
    [AXIS] = QK_ATTRIBUTE("axis", INT, 1, "default 0, in [-rank, rank-1]"),
    [KEEPDIMS] = QK_ATTRIBUTE("keepdims", INT, 1,
                              "1, which is the default: axis stays, with size 1; 0: it goes"),
    [SELECT_LAST_INDEX] =
        QK_ATTRIBUTE("select_last_index", INT, 12,
                     "of equal elements, 0 selects the first (default), 1 the last"),
};

#define ARGUMENTS                                                                                 \
    .platform = QK_ONNX_PLATFORM, .inputs = {[DATA] = {"data", QK_ANY_SHAPE}}, .input_count = 1,  \
    .variable_inputs = 1U << DATA, .outputs = {{"reduced", "as data; axis has size 1, or goes"}}, \
    .output_count = 1, QK_ATTRIBUTES(attributes), QK_VERSIONS(versions),                          \
    .version_last = QK_ONNX_VERSION_LAST

const struct qk_operator qk_onnx_arg_max = {
    .name = "onnx.ArgMax",
    .about = "the index of the largest element along an axis",
    ARGUMENTS,
    .code = &(const struct qk_operator_code){.prepare = prepare_max, .plan = plan},
};

const struct qk_operator qk_onnx_arg_min = {
    .name = "onnx.ArgMin",
    .about = "the index of the least element along an axis",
    ARGUMENTS,
    .code = &(const struct qk_operator_code){.prepare = prepare_min, .plan = plan},
};
