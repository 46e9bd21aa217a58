/* onnx.Identity: a copy (onnx/defs/math/defs.cc). */
#include "kernels/operators/move/moving.h"

static enum qk_status prepare(const struct qk_kernels *kernels, const struct qk_call *call,
                              struct qk_memory memory, struct qk_instance **instance,
                              struct qk_error *error)
{
    (void)kernels;
    struct qk_instance *made = qk_moving_alloc(call, sizeof(*made), memory, error);
    if (!made)
        return QK_NO_MEMORY;
    *instance = made;
    return QK_OK;
}

static enum qk_status plan(const struct qk_instance *instance, const struct qk_tensor *inputs,
                           struct qk_memory memory, struct qk_plan *plan, struct qk_error *error)
{
    return qk_move_plan_alias(instance, inputs, inputs->rank, inputs->dims, memory, plan, error);
}

#define VERSION QK_MOVING_VERSION_1

static const struct qk_version versions[] = {
    VERSION(1, QK_MOVE_TYPES),     VERSION(13, QK_MOVE_TYPES_13), VERSION(14, QK_MOVE_TYPES_13),
    VERSION(16, QK_MOVE_TYPES_13), VERSION(19, QK_MOVE_TYPES_13), VERSION(21, QK_MOVE_TYPES_13),
    VERSION(23, QK_MOVE_TYPES_13), VERSION(24, QK_MOVE_TYPES_13), VERSION(25, QK_MOVE_TYPES_13),
};

const struct qk_operator qk_onnx_identity = {
    .name = "onnx.Identity",
    .platform = QK_ONNX_PLATFORM,
    .about = "a copy of input",
    .inputs = {{"input", QK_ANY_SHAPE}},
    .input_count = 1,
    .variable_inputs = 1,
    .outputs = {{"output", "as input"}},
    .output_count = 1,
    QK_VERSIONS(versions),
    .version_last = QK_ONNX_VERSION_LAST,
    .code = &(const struct qk_operator_code){.prepare = prepare, .plan = plan},
};
