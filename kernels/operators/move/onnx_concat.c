/* onnx.Concat: inputs one behind the other along an axis (onnx/defs/tensor/defs.cc). ONNX has one
 * list of inputs; here each has a name, and those that are there come first. */
#include "kernels/operators/move/moving.h"
#include "kernels/operators/rules.h"
#include "kernels/operators/shape_text.h"

enum { AXIS };

struct instance {
    struct qk_instance base;
    int64_t axis;
    size_t count; /* of inputs that are there */
};

static enum qk_status prepare(const struct qk_kernels *kernels, const struct qk_call *call,
                              struct qk_memory memory, struct qk_instance **instance,
                              struct qk_error *error)
{
    (void)kernels;
    struct instance *made = qk_moving_alloc(call, sizeof(*made), memory, error);
    if (!made)
        return QK_NO_MEMORY;
    *instance = &made->base;
    if (!call->attributes[AXIS].present)
        return qk_fail(error, QK_INVALID, "axis: expected an integer, got none");
    made->axis = call->attributes[AXIS].number;
    for (size_t i = 0; i < call->op->input_count; i++) {
        if (call->inputs[i].type == QK_NONE)
            continue;
        if (i > made->count)
            return qk_fail(error, QK_INVALID, "%s: expected this input before %s, got none",
                           call->op->inputs[made->count].name, call->op->inputs[i].name);
        made->count = i + 1;
        const enum qk_status status = qk_check_same_type(call, i, 0, error);
        if (status != QK_OK)
            return status;
    }
    return QK_OK;
}

/* Adds up the sizes along the axis. All other dimensions must be the same. */
static enum qk_status fit(const struct instance *made, const struct qk_tensor *inputs,
                          uint32_t axis, size_t *dims, struct qk_error *error)
{
    const struct qk_operator *op = made->base.op;
    struct qk_shape_text texts[2];
    for (uint32_t k = 0; k < inputs[0].rank; k++)
        dims[k] = inputs[0].dims[k];
    for (size_t i = 0; i < made->count; i++) {
        const struct qk_tensor *x = &inputs[i];
        const enum qk_status status = qk_move_check_input(x, op->inputs[i].name, error);
        bool same = x->rank == inputs[0].rank;
        if (status != QK_OK)
            return status;
        for (uint32_t k = 0; k < x->rank && same; k++)
            same = k == axis || x->dims[k] == dims[k];
        if (!same)
            return qk_fail(error, QK_INVALID,
                           "%s: expected the shape of %s, %s, apart from axis %u, got %s",
                           op->inputs[i].name, op->inputs[0].name,
                           qk_shape_text(&inputs[0], &texts[0]), axis, qk_shape_text(x, &texts[1]));
        dims[axis] += i > 0 ? x->dims[axis] : 0; /* at most 32 sizes below 2^47 */
    }
    return QK_OK;
}

static enum qk_status plan(const struct qk_instance *instance, const struct qk_tensor *inputs,
                           struct qk_memory memory, struct qk_plan *plan, struct qk_error *error)
{
    const struct instance *made = (const struct instance *)instance;
    const uint32_t rank = inputs[0].rank;
    size_t dims[QK_RANK_MAX];
    struct qk_move_box y;
    struct qk_move *move;
    uint32_t axis;
    enum qk_status status = qk_find_axis("axis", made->axis, rank, &axis, error);
    if (status == QK_OK)
        status = fit(made, inputs, axis, dims, error);
    if (status == QK_OK)
        status = qk_move_set_output(plan, 0, inputs[0].type, rank, dims, error);
    if (status == QK_OK)
        status = qk_move_begin(&move, inputs[0].type, NULL, made->count, memory, error);
    if (status != QK_OK)
        return status;
    qk_move_axes_of(dims, rank, &y);
    int64_t done = 0;
    for (size_t i = 0; i < made->count && status == QK_OK; i++) {
        struct qk_move_box box = {.input = i, .y_first = done * y.axes[axis].y_stride};
        qk_move_axes_of(inputs[i].dims, rank, &box);
        for (uint32_t k = 0; k < rank; k++)
            box.axes[k].y_stride = y.axes[k].y_stride;
        done += (int64_t)inputs[i].dims[axis];
        status = qk_move_add(move, &box, memory, error);
    }
    if (status == QK_OK)
        qk_move_end(move, instance, plan);
    plan->joins = qk_is_outermost(dims, axis);
    return status;
}

/* ---- The descriptor ------------------------------------------------------------------------ */

#define EIGHT(types)                                                                     \
    {(types), true}, {(types), true}, {(types), true}, {(types), true}, {(types), true}, \
        {(types), true}, {(types), true},                                                \
    {                                                                                    \
        (types), true                                                                    \
    }
#define VERSION(number, types)                                                          \
    {                                                                                   \
        (number), {{(types), false}, {(types), true}, {(types), true}, {(types), true}, \
                   {(types), true},  {(types), true}, {(types), true}, {(types), true}, \
                   EIGHT(types),     EIGHT(types),    EIGHT(types)},                    \
        {                                                                               \
            (types)                                                                     \
        }                                                                               \
    }

static const struct qk_version versions[] = {
    VERSION(4, QK_MOVE_TYPES),
    VERSION(11, QK_MOVE_TYPES),
    VERSION(13, QK_MOVE_TYPES_13),
};

static const struct qk_attribute_def attributes[] = {
    [AXIS] = QK_ATTRIBUTE("axis", INT, 4, "the axis that grows, in [-rank, rank-1]; required"),
};

#define PORT(number)                                    \
    {                                                   \
        "input_" #number, "as input_0, apart from axis" \
    }

const struct qk_operator qk_onnx_concat = {
    .name = "onnx.Concat",
    .platform = QK_ONNX_PLATFORM,
    .about = "inputs one behind the other along an axis",
    .inputs = {{"input_0", QK_ANY_SHAPE},
               PORT(1),
               PORT(2),
               PORT(3),
               PORT(4),
               PORT(5),
               PORT(6),
               PORT(7),
               PORT(8),
               PORT(9),
               PORT(10),
               PORT(11),
               PORT(12),
               PORT(13),
               PORT(14),
               PORT(15),
               PORT(16),
               PORT(17),
               PORT(18),
               PORT(19),
               PORT(20),
               PORT(21),
               PORT(22),
               PORT(23),
               PORT(24),
               PORT(25),
               PORT(26),
               PORT(27),
               PORT(28),
               PORT(29),
               PORT(30),
               PORT(31)},
    .input_count = QK_INPUT_COUNT_MAX,
    .joins_list = true,
    .variable_inputs = UINT32_MAX,
    .outputs = {{"concat_result", "as input_0; along axis, the sum of all sizes"}},
    .output_count = 1,
    QK_ATTRIBUTES(attributes),
    QK_VERSIONS(versions),
    .version_last = QK_ONNX_VERSION_LAST,
    .code = &(const struct qk_operator_code){.prepare = prepare, .plan = plan},
};
