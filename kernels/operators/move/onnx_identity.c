/* onnx.Identity and onnx.Dropout: copies (onnx/defs/math/defs.cc, onnx/defs/nn/defs.cc and old.cc).
 * Dropout removes elements only while a network is trained, so here it is a copy, too. */
#include "kernels/operators/move/moving.h"
#include "kernels/operators/shape_text.h"

/* The inputs of Dropout. */
enum { DATA, RATIO, TRAINING_MODE };

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

static enum qk_status prepare_dropout(const struct qk_kernels *kernels, const struct qk_call *call,
                                      struct qk_memory memory, struct qk_instance **instance,
                                      struct qk_error *error)
{
    const struct qk_tensor *training = &call->inputs[TRAINING_MODE];
    struct qk_shape_text shape;
    for (size_t i = RATIO; i <= TRAINING_MODE; i++)
        if (call->inputs[i].type != QK_NONE && call->inputs[i].rank != 0)
            return qk_fail(error, QK_INVALID, "%s: expected shape [], got %s",
                           call->op->inputs[i].name, qk_shape_text(&call->inputs[i], &shape));
    if (training->type != QK_NONE && *(const uint8_t *)training->data != 0)
        return qk_fail(error, QK_INVALID, "training_mode: expected false, got true");
    return prepare(kernels, call, memory, instance, error);
}

static enum qk_status plan(const struct qk_instance *instance, const struct qk_tensor *inputs,
                           struct qk_memory memory, struct qk_plan *plan, struct qk_error *error)
{
    return qk_move_plan_alias(instance, inputs, inputs->rank, inputs->dims, memory, plan, error);
}

/* ---- The descriptors ----------------------------------------------------------------------- */

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
    .code = &(const struct qk_operator_code){.prepare = prepare,
                                             .plan = plan,
                                             .is_element_by_element = true},
};

/* ---- Dropout ------------------------------------------------------------------------------- */

#define FLOATS (QK_BIT(QK_FP32) | QK_BIT(QK_FP16))
#define FLOATS_13 (FLOATS | QK_BIT(QK_BF16))
#define DROPOUT(since, types, ratio_types, mode_types) \
    QK_MOVING_VERSION(                                 \
        since, types, [RATIO] = {(ratio_types), true}, [TRAINING_MODE] = {(mode_types), true})

static const struct qk_version dropout_versions[] = {
    DROPOUT(7, FLOATS, 0, 0),
    DROPOUT(10, FLOATS, 0, 0),
    DROPOUT(12, FLOATS, FLOATS, QK_BIT(QK_BOOL)),
    DROPOUT(13, FLOATS_13, FLOATS_13, QK_BIT(QK_BOOL)),
    DROPOUT(22, FLOATS_13, FLOATS_13, QK_BIT(QK_BOOL)),
};

static const struct qk_attribute_def dropout_attributes[] = {
    QK_ATTRIBUTE("ratio", FLOAT, 7, "not read: only training needs it"),
    QK_ATTRIBUTE("seed", INT, 12, "not read: only training needs it"),
};

const struct qk_operator qk_onnx_dropout = {
    .name = "onnx.Dropout",
    .platform = QK_ONNX_PLATFORM,
    .about = "a copy of data, because nothing is dropped outside training",
    .inputs = {[DATA] = {"data", QK_ANY_SHAPE},
               [RATIO] = {"ratio", "[]"},
               [TRAINING_MODE] = {"training_mode", "[]"}},
    .input_count = 3,
    .variable_inputs = 1U << DATA,
    .outputs = {{"output", "as data"}},
    .output_count = 1,
    .uncomputed_output_count = 1, /* mask */
    QK_ATTRIBUTES(dropout_attributes),
    QK_VERSIONS(dropout_versions),
    .version_last = QK_ONNX_VERSION_LAST,
    .code = &(const struct qk_operator_code){.prepare = prepare_dropout,
                                             .plan = plan,
                                             .is_element_by_element = true},
};
