/* onnx.Expand and onnx.ConstantOfShape: a tensor, or a number, repeated to a shape
 * (onnx/defs/tensor/defs.cc, onnx/defs/generator/defs.cc). */
#include <string.h>

#include "kernels/operators/integer/pointwise.h"
#include "kernels/operators/move/moving.h"
#include "kernels/operators/shape_text.h"

/* Reads a list of sizes as the shape of a tensor. */
static enum qk_status read_shape(const struct qk_tensor *tensor, const char *name,
                                 struct qk_tensor *shape, struct qk_error *error)
{
    struct qk_integers list;
    const enum qk_status status = qk_read_list(tensor, name, QK_RANK_MAX, &list, error);
    if (status != QK_OK)
        return status;
    *shape = (struct qk_tensor){.rank = (uint32_t)list.count};
    for (size_t i = 0; i < list.count; i++) {
        if (list.numbers[i] < 0 || list.numbers[i] > QK_LENGTH_MAX)
            return qk_fail(error, QK_INVALID, "%s: expected sizes in [0, %lld], got %lld", name,
                           (long long)QK_LENGTH_MAX, (long long)list.numbers[i]);
        shape->dims[i] = (size_t)list.numbers[i];
    }
    return QK_OK;
}

/* Checks as much as can be checked before there is data: the list of sizes, if it is constant. */
static enum qk_status check_shape(const struct qk_call *call, size_t input, struct qk_error *error)
{
    struct qk_tensor shape;
    return qk_is_planned(call, 1U << input)
               ? QK_OK
               : read_shape(&call->inputs[input], call->op->inputs[input].name, &shape, error);
}

/* ---- Expand -------------------------------------------------------------------------------- */

enum { INPUT, SHAPE };

static enum qk_status prepare_expand(const struct qk_kernels *kernels, const struct qk_call *call,
                                     struct qk_memory memory, struct qk_instance **instance,
                                     struct qk_error *error)
{
    (void)kernels;
    *instance = qk_moving_alloc(call, sizeof(**instance), memory, error);
    return *instance ? check_shape(call, SHAPE, error) : QK_NO_MEMORY;
}

static enum qk_status plan_expand(const struct qk_instance *instance,
                                  const struct qk_tensor *inputs, struct qk_memory memory,
                                  struct qk_plan *plan, struct qk_error *error)
{
    const struct qk_tensor *x = &inputs[INPUT];
    struct qk_tensor y;
    struct qk_move *move;
    enum qk_status status = qk_move_check_input(x, "input", error);
    if (status == QK_OK)
        status = read_shape(&inputs[SHAPE], "shape", &y, error);
    if (status == QK_OK)
        status = qk_broadcast_shape(x, "input", &y, error);
    if (status == QK_OK)
        status = qk_move_set_output(plan, 0, x->type, y.rank, y.dims, error);
    if (status == QK_OK)
        status = qk_move_begin(&move, x->type, NULL, 1, memory, error);
    if (status != QK_OK)
        return status;
    struct qk_move_box box = {0};
    struct qk_move_box from;
    const uint32_t ones = y.rank - x->rank;
    qk_move_axes_of(y.dims, y.rank, &box);
    qk_move_axes_of(x->dims, x->rank, &from);
    for (uint32_t i = 0; i < y.rank; i++)
        box.axes[i].x_stride =
            i < ones || x->dims[i - ones] == 1 ? 0 : from.axes[i - ones].x_stride;
    status = qk_move_add(move, &box, memory, error);
    if (status == QK_OK)
        qk_move_end(move, instance, plan);
    return status;
}

/* ---- ConstantOfShape ----------------------------------------------------------------------- */

enum { SIZES, VALUE };

struct constant {
    struct qk_instance base;
    uint64_t value; /* its first bytes are the element */
};

static enum qk_status prepare_constant(const struct qk_kernels *kernels, const struct qk_call *call,
                                       struct qk_memory memory, struct qk_instance **instance,
                                       struct qk_error *error)
{
    (void)kernels;
    const struct qk_tensor *value = &call->inputs[VALUE];
    struct qk_shape_text shape;
    struct constant *made = qk_moving_alloc(call, sizeof(*made), memory, error);
    if (!made)
        return QK_NO_MEMORY;
    *instance = &made->base;
    made->base.output_types[0] = value->type == QK_NONE ? QK_FP32 : value->type;
    if (value->type != QK_NONE && value->count != 1)
        return qk_fail(error, QK_INVALID, "value: expected one element, got shape %s",
                       qk_shape_text(value, &shape));
    if (value->type != QK_NONE)
        memcpy(&made->value, value->data, qk_type_info(value->type)->bits / 8U);
    return check_shape(call, SIZES, error);
}

static enum qk_status plan_constant(const struct qk_instance *instance,
                                    const struct qk_tensor *inputs, struct qk_memory memory,
                                    struct qk_plan *plan, struct qk_error *error)
{
    const struct constant *made = (const struct constant *)instance;
    const enum qk_type type = instance->output_types[0];
    struct qk_tensor y;
    struct qk_move *move;
    enum qk_status status = read_shape(&inputs[SIZES], "input", &y, error);
    if (status == QK_OK)
        status = qk_move_set_output(plan, 0, type, y.rank, y.dims, error);
    if (status == QK_OK)
        status = qk_move_begin(&move, type, &made->value, 1, memory, error);
    if (status != QK_OK)
        return status;
    struct qk_move_box box = {.fill = true};
    qk_move_axes_of(y.dims, y.rank, &box);
    status = qk_move_add(move, &box, memory, error);
    if (status == QK_OK)
        qk_move_end(move, instance, plan);
    return status;
}

/* ---- The descriptors ----------------------------------------------------------------------- */

#define EXPAND_VERSION(number, types) QK_MOVING_VERSION(number, types, [SHAPE] = QK_MOVING_INTEGERS)
#define CONSTANT_VERSION(since, types)                                            \
    {                                                                             \
        .number = (since),                                                        \
        .inputs = {[SIZES] = {QK_BIT(QK_INT64), false}, [VALUE] = {types, true}}, \
        .output_types = {types},                                                  \
    }

static const struct qk_version expand_versions[] = {
    EXPAND_VERSION(8, QK_MOVE_TYPES),
    EXPAND_VERSION(13, QK_MOVE_TYPES_13),
};

static const struct qk_version constant_versions[] = {
    CONSTANT_VERSION(9, QK_MOVE_TYPES),     CONSTANT_VERSION(20, QK_MOVE_TYPES_13),
    CONSTANT_VERSION(21, QK_MOVE_TYPES_13), CONSTANT_VERSION(23, QK_MOVE_TYPES_13),
    CONSTANT_VERSION(24, QK_MOVE_TYPES_13), CONSTANT_VERSION(25, QK_MOVE_TYPES_13),
};

const struct qk_operator qk_onnx_expand = {
    .name = "onnx.Expand",
    .platform = QK_ONNX_PLATFORM,
    .about = "input, repeated along dimensions of size 1 so that it broadcasts with shape",
    .inputs = {[INPUT] = {"input", QK_ANY_SHAPE}, [SHAPE] = {"shape", "[number of dimensions]"}},
    .input_count = 2,
    .variable_inputs = 1U << INPUT,
    .planned_inputs = 1U << SHAPE,
    .outputs = {{"output", "to which the shape of input and shape broadcast"}},
    .output_count = 1,
    QK_VERSIONS(expand_versions),
    .version_last = QK_ONNX_VERSION_LAST,
    .code = &(const struct qk_operator_code){.prepare = prepare_expand, .plan = plan_expand},
};

/* ONNX has `value` as an attribute. Here it is an input, because no attribute is a tensor. */
const struct qk_operator qk_onnx_constant_of_shape = {
    .name = "onnx.ConstantOfShape",
    .platform = QK_ONNX_PLATFORM,
    .about = "a tensor whose elements are all value, default 0 of FP32",
    .inputs = {[SIZES] = {"input", "[number of dimensions]"}, [VALUE] = {"value", "one element"}},
    .input_count = 2,
    .planned_inputs = 1U << SIZES,
    .outputs = {{"output", "the shape that input lists"}},
    .output_count = 1,
    QK_VERSIONS(constant_versions),
    .version_last = QK_ONNX_VERSION_LAST,
    .code = &(const struct qk_operator_code){.prepare = prepare_constant, .plan = plan_constant},
};
