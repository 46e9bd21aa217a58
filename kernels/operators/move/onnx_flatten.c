/* onnx.Flatten: a matrix with the elements of input in the same order. Its rows are the dimensions
 * before an axis (onnx/defs/nn/defs.cc). */
#include "kernels/operators/move/moving.h"
#include "kernels/operators/rules.h"

enum { INPUT };
enum { AXIS };

struct instance {
    struct qk_instance base;
    int64_t axis;
};

static enum qk_status prepare(const struct qk_kernels *kernels, const struct qk_call *call,
                              struct qk_memory memory, struct qk_instance **instance,
                              struct qk_error *error)
{
    (void)kernels;
    struct instance *made = qk_moving_alloc(call, sizeof(*made), memory, error);
    if (!made)
        return QK_NO_MEMORY;
    made->axis = qk_int_or(&call->attributes[AXIS], 1);
    *instance = &made->base;
    return QK_OK;
}

static enum qk_status plan(const struct qk_instance *instance, const struct qk_tensor *inputs,
                           struct qk_memory memory, struct qk_plan *plan, struct qk_error *error)
{
    const struct qk_tensor *x = &inputs[INPUT];
    int64_t axis = ((const struct instance *)instance)->axis;
    size_t dims[2] = {1, 1};
    if (axis < -(int64_t)x->rank || axis > (int64_t)x->rank)
        return qk_fail(error, QK_INVALID, "axis: expected an axis in [-%u, %u], got %lld", x->rank,
                       x->rank, (long long)axis);
    axis += axis < 0 ? (int64_t)x->rank : 0;
    for (uint32_t i = 0; i < x->rank; i++)
        dims[(int64_t)i >= axis] *= x->dims[i]; /* cannot overflow: qk_tensor_set_count */
    return qk_move_plan_alias(instance, x, 2, dims, memory, plan, error);
}

#define VERSION QK_MOVING_VERSION_1

static const struct qk_version versions[] = {
    VERSION(9, QK_MOVE_TYPES),     VERSION(11, QK_MOVE_TYPES),    VERSION(13, QK_MOVE_TYPES_13),
    VERSION(21, QK_MOVE_TYPES_13), VERSION(23, QK_MOVE_TYPES_13), VERSION(24, QK_MOVE_TYPES_13),
    VERSION(25, QK_MOVE_TYPES_13),
};

static const struct qk_attribute_def attributes[] = {
    [AXIS] =
        QK_ATTRIBUTE("axis", INT, 9, "the first axis of the columns, default 1, in [-rank, rank]"),
};

const struct qk_operator qk_onnx_flatten = {
    .name = "onnx.Flatten",
    .platform = QK_ONNX_PLATFORM,
    .about = "input as a matrix: the dimensions before axis, and those from axis on",
    .inputs = {[INPUT] = {"input", QK_ANY_SHAPE}},
    .input_count = 1,
    .variable_inputs = 1U << INPUT,
    .outputs = {{"output", "[D1 * .. * Daxis, ..]"}},
    .output_count = 1,
    QK_ATTRIBUTES(attributes),
    QK_VERSIONS(versions),
    .version_last = QK_ONNX_VERSION_LAST,
    .code = &(const struct qk_operator_code){.prepare = prepare, .plan = plan},
};
