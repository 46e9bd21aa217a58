/* onnx.Equal and onnx.Where, which exporters use in shapes: an element of -1 becomes the size of
 * the tensor (onnx/defs/logical/defs.cc, onnx/defs/tensor/defs.cc). */
#include <string.h>

#include "kernels/move/move.h"
#include "kernels/operators/integer/pointwise.h"
#include "kernels/operators/rules.h"

/* ---- Equal --------------------------------------------------------------------------------- */

enum { A, B };

static void equal(const void *const *operands, void *y, size_t size)
{
    *(uint8_t *)y = memcmp(operands[A], operands[B], size) == 0;
}

static enum qk_status prepare_typed(const struct qk_call *call, size_t first, enum qk_type y_type,
                                    struct qk_memory memory, struct qk_instance **instance,
                                    struct qk_error *error)
{
    const enum qk_status status = qk_check_same_type(call, first + 1, first, error);
    if (status != QK_OK)
        return status;
    struct qk_instance *made = memory.alloc(memory.context, sizeof(*made));
    if (!made)
        return qk_fail(error, QK_NO_MEMORY, "out of memory for an operator");
    *made = (struct qk_instance){.output_types = {y_type}};
    *instance = made;
    return QK_OK;
}

static enum qk_status prepare_equal(const struct qk_kernels *kernels, const struct qk_call *call,
                                    struct qk_memory memory, struct qk_instance **instance,
                                    struct qk_error *error)
{
    (void)kernels;
    return prepare_typed(call, A, QK_BOOL, memory, instance, error);
}

static enum qk_status plan_equal(const struct qk_instance *instance, const struct qk_tensor *inputs,
                                 struct qk_memory memory, struct qk_plan *plan,
                                 struct qk_error *error)
{
    return qk_pointwise_plan(instance, equal, inputs, 2, QK_BOOL, memory, plan, error);
}

/* ---- Where --------------------------------------------------------------------------------- */

enum { CONDITION, X, Y };

static void choose(const void *const *operands, void *y, size_t size)
{
    memcpy(y, operands[*(const uint8_t *)operands[CONDITION] ? X : Y], size);
}

/* ONNX Runtime takes X where it is not 0, and else the other selection, which is +0 where the
 * condition is true (onnxruntime/core/providers/cpu/tensor/where_op.cc). So -0 of X becomes +0, and
 * -0 of Y stays. */
static void choose_float(const void *const *operands, void *y, size_t size)
{
    static const uint8_t negative_zeros[2][sizeof(float)] = {{0, 0x80}, {0, 0, 0, 0x80}};
    choose(operands, y, size);
    if (*(const uint8_t *)operands[CONDITION] &&
        memcmp(y, negative_zeros[size == sizeof(float)], size) == 0)
        memset(y, 0, size);
}

static enum qk_status prepare_where(const struct qk_kernels *kernels, const struct qk_call *call,
                                    struct qk_memory memory, struct qk_instance **instance,
                                    struct qk_error *error)
{
    (void)kernels;
    return prepare_typed(call, X, call->inputs[X].type, memory, instance, error);
}

static enum qk_status plan_where(const struct qk_instance *instance, const struct qk_tensor *inputs,
                                 struct qk_memory memory, struct qk_plan *plan,
                                 struct qk_error *error)
{
    const bool is_float =
        QK_BIT(inputs[X].type) & (QK_BIT(QK_FP32) | QK_BIT(QK_FP16) | QK_BIT(QK_BF16));
    return qk_pointwise_plan(instance, is_float ? choose_float : choose, inputs, 3, inputs[X].type,
                             memory, plan, error);
}

/* ---- The descriptors ----------------------------------------------------------------------- */

#define EQUAL_TYPES (QK_BIT(QK_INT32) | QK_BIT(QK_INT64) | QK_BIT(QK_BOOL))
#define EQUAL_VERSION(since)                                                                   \
    {                                                                                          \
        .number = (since), .inputs = {[A] = {EQUAL_TYPES, false}, [B] = {EQUAL_TYPES, false}}, \
        .output_types = {QK_BIT(QK_BOOL)},                                                     \
    }
#define WHERE_VERSION(since, types)                                                               \
    {                                                                                             \
        .number = (since),                                                                        \
        .inputs =                                                                                 \
            {[CONDITION] = {QK_BIT(QK_BOOL), false}, [X] = {types, false}, [Y] = {types, false}}, \
        .output_types = {types},                                                                  \
    }

static const struct qk_version equal_versions[] = {EQUAL_VERSION(7), EQUAL_VERSION(11),
                                                   EQUAL_VERSION(13), EQUAL_VERSION(19)};
static const struct qk_version where_versions[] = {WHERE_VERSION(9, QK_MOVE_TYPES),
                                                   WHERE_VERSION(16, QK_MOVE_TYPES_13)};

const struct qk_operator qk_onnx_equal = {
    .name = "onnx.Equal",
    .platform = QK_ONNX_PLATFORM,
    .about = "whether elements of A and B are equal",
    .inputs = {[A] = {"A", QK_ANY_SHAPE}, [B] = {"B", "broadcasts with A"}},
    .input_count = 2,
    .variable_inputs = 1U << A | 1U << B,
    .outputs = {{"C", "to which A and B broadcast"}},
    .output_count = 1,
    QK_VERSIONS(equal_versions),
    .version_last = QK_ONNX_VERSION_LAST,
    .code = &(const struct qk_operator_code){.prepare = prepare_equal, .plan = plan_equal},
};

const struct qk_operator qk_onnx_where = {
    .name = "onnx.Where",
    .platform = QK_ONNX_PLATFORM,
    .about = "elements of X where condition is true, of Y elsewhere",
    .inputs = {[CONDITION] = {"condition", QK_ANY_SHAPE},
               [X] = {"X", "broadcasts with condition"},
               [Y] = {"Y", "broadcasts with condition and X"}},
    .input_count = 3,
    .variable_inputs = 1U << CONDITION | 1U << X | 1U << Y,
    .outputs = {{"output", "to which the inputs broadcast"}},
    .output_count = 1,
    QK_VERSIONS(where_versions),
    .version_last = QK_ONNX_VERSION_LAST,
    .code = &(const struct qk_operator_code){.prepare = prepare_where, .plan = plan_where},
};
