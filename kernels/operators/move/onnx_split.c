/* onnx.Split: the parts of input along an axis (onnx/defs/tensor/defs.cc and old.cc). The sizes of
 * the parts are an attribute before opset 13, and an input since then. If there are none, all parts
 * have the same size, and a node has as many parts as outputs. Since opset 18, num_outputs says how
 * many parts there are, and the last may be smaller.
 *
 * A call that no file describes does not say how many outputs it wants. Without sizes, it has
 * num_outputs in all versions. */
#include "kernels/operators/move/moving.h"
#include "kernels/operators/rules.h"

enum { INPUT, SPLIT };
enum { AXIS, SPLIT_ATTRIBUTE, NUM_OUTPUTS };

#define SPLIT_IS_INPUT_SINCE 13
#define NUM_OUTPUTS_SINCE 18

struct instance {
    struct qk_instance base;
    int64_t axis;
    struct qk_integers split; /* of the attribute */
    bool is_input;            /* the sizes are the input */
    size_t wanted;            /* how many outputs the node of a file names; 0: it is not known */
    size_t number;            /* num_outputs; 0: it is absent */
    bool smaller;             /* the last part may be smaller */
};

/* ---- Rules --------------------------------------------------------------------------------- */

/* Reads the sizes: the input, or the attribute that `made` has. */
static enum qk_status read_sizes(const struct instance *made, const struct qk_tensor *input,
                                 struct qk_integers *split, struct qk_error *error)
{
    *split = made->split;
    const enum qk_status status =
        made->is_input ? qk_read_list(input, "split", QK_RANK_MAX, split, error) : QK_OK;
    if (status != QK_OK || !split->present)
        return status;
    if (split->count < 1 || split->count > QK_OUTPUT_COUNT_MAX)
        return qk_fail(error, QK_INVALID, "split: expected 1 to %d sizes, got %zu",
                       QK_OUTPUT_COUNT_MAX, split->count);
    for (size_t i = 0; i < split->count; i++)
        if (split->numbers[i] < 0 || split->numbers[i] > QK_LENGTH_MAX)
            return qk_fail(error, QK_INVALID, "split: expected sizes in [0, %lld], got %lld",
                           (long long)QK_LENGTH_MAX, (long long)split->numbers[i]);
    if (made->wanted > 0 && split->count != made->wanted)
        return qk_fail(error, QK_INVALID, "split: expected %zu, the number of outputs, got %zu",
                       made->wanted, split->count);
    return QK_OK;
}

/* Reads num_outputs, and checks that there is one way to find the number of parts. */
static enum qk_status read_number(const struct qk_call *call, struct instance *made,
                                  struct qk_error *error)
{
    const struct qk_attribute *number = &call->attributes[NUM_OUTPUTS];
    const bool is_new = call->version->number >= NUM_OUTPUTS_SINCE;
    const bool has_sizes =
        made->is_input ? call->inputs[SPLIT].type != QK_NONE : made->split.present;
    if (has_sizes && number->present)
        return qk_fail(error, QK_INVALID, "num_outputs: expected this or split, got both");
    if (!has_sizes && !number->present && (made->wanted == 0 || is_new))
        return qk_fail(error, QK_INVALID, "num_outputs: expected this or split, got neither");
    if (!number->present)
        return QK_OK;
    if (number->number < 1 || number->number > QK_OUTPUT_COUNT_MAX)
        return qk_fail(error, QK_INVALID, "num_outputs: expected an integer in [1, %d], got %lld",
                       QK_OUTPUT_COUNT_MAX, (long long)number->number);
    made->number = (size_t)number->number;
    made->smaller = is_new;
    if (made->wanted > 0 && made->number != made->wanted)
        return qk_fail(error, QK_INVALID,
                       "num_outputs: expected %zu, the number of outputs, got %zu", made->wanted,
                       made->number);
    return QK_OK;
}

static enum qk_status prepare(const struct qk_kernels *kernels, const struct qk_call *call,
                              struct qk_memory memory, struct qk_instance **instance,
                              struct qk_error *error)
{
    (void)kernels;
    struct qk_integers split;
    struct instance *made = qk_moving_alloc(call, sizeof(*made), memory, error);
    if (!made)
        return QK_NO_MEMORY;
    *instance = &made->base;
    made->axis = qk_int_or(&call->attributes[AXIS], 0);
    made->is_input = call->version->number >= SPLIT_IS_INPUT_SINCE;
    made->wanted = call->output_count;
    if (made->is_input && call->attributes[SPLIT_ATTRIBUTE].present)
        return qk_fail(error, QK_INVALID,
                       "split: expected an input since version %d of %s, got an attribute",
                       SPLIT_IS_INPUT_SINCE, call->op->name);
    enum qk_status status =
        qk_read_attribute_list(call, SPLIT_ATTRIBUTE, QK_RANK_MAX, &made->split, error);
    if (status == QK_OK)
        status = read_number(call, made, error);
    if (status != QK_OK || qk_is_planned(call, 1U << SPLIT))
        return status;
    return read_sizes(made, &call->inputs[SPLIT], &split, error);
}

/* ---- Plan ---------------------------------------------------------------------------------- */

/* Finds the sizes of the parts. */
static enum qk_status cut(const struct instance *made, const struct qk_integers *split, size_t size,
                          size_t *parts, size_t *part_count, struct qk_error *error)
{
    const size_t count = split->present     ? split->count
                         : made->number > 0 ? made->number
                                            : made->wanted;
    size_t sum = 0;
    *part_count = count;
    if (split->present) {
        for (size_t i = 0; i < count; i++) {
            parts[i] = (size_t)split->numbers[i];
            sum += parts[i];
        }
        if (sum == size)
            return QK_OK;
        return qk_fail(error, QK_INVALID, "split: expected sizes with the sum %zu, got %zu", size,
                       sum);
    }
    const size_t each = (size + count - 1) / count;
    const bool fits = each * (count - 1) <= size;
    if (!fits || (!made->smaller && size % count != 0))
        return qk_fail(error, QK_INVALID,
                       "input: expected a size along axis that %zu parts divide, got %zu", count,
                       size);
    for (size_t i = 0; i < count; i++)
        parts[i] = i + 1 < count ? each : size - each * (count - 1);
    return QK_OK;
}

static enum qk_status plan(const struct qk_instance *instance, const struct qk_tensor *inputs,
                           struct qk_memory memory, struct qk_plan *plan, struct qk_error *error)
{
    const struct instance *made = (const struct instance *)instance;
    const struct qk_tensor *x = &inputs[INPUT];
    struct qk_move_box whole;
    struct qk_move *move;
    struct qk_integers split;
    size_t parts[QK_OUTPUT_COUNT_MAX] = {0};
    size_t count;
    uint32_t axis;
    enum qk_status status = qk_move_check_input(x, "input", error);
    if (status == QK_OK)
        status = qk_find_axis("axis", made->axis, x->rank, &axis, error);
    if (status == QK_OK)
        status = read_sizes(made, &inputs[SPLIT], &split, error);
    if (status == QK_OK)
        status = cut(made, &split, x->dims[axis], parts, &count, error);
    if (status == QK_OK)
        status = qk_move_begin(&move, x->type, NULL, count, memory, error);
    if (status != QK_OK)
        return status;
    qk_move_axes_of(x->dims, x->rank, &whole);
    int64_t done = 0;
    for (size_t i = 0; i < QK_OUTPUT_COUNT_MAX && status == QK_OK; i++) {
        size_t dims[QK_RANK_MAX];
        for (uint32_t k = 0; k < x->rank; k++)
            dims[k] = k == axis ? parts[i] : x->dims[k];
        struct qk_move_box box = {.output = i, .x_first = done * whole.axes[axis].x_stride};
        qk_move_axes_of(dims, x->rank, &box);
        for (uint32_t k = 0; k < x->rank; k++)
            box.axes[k].x_stride = whole.axes[k].x_stride;
        done += (int64_t)parts[i];
        status = qk_move_set_output(plan, i, x->type, x->rank, dims, error);
        if (status == QK_OK && i < count)
            status = qk_move_add(move, &box, memory, error);
    }
    if (status != QK_OK)
        return status;
    plan->output_count = count;
    plan->cuts = qk_is_outermost(x->dims, axis);
    qk_move_end(move, instance, plan);
    return QK_OK;
}

/* ---- The descriptor ------------------------------------------------------------------------ */

/* Before opset 13, the input `split` does not exist. */
#define VERSION(number, types, split_types)                                        \
    {                                                                              \
        (number), {{(types), false}, [SPLIT] = {(split_types), true}},             \
        {                                                                          \
            (types), (types), (types), (types), (types), (types), (types), (types) \
        }                                                                          \
    }

static const struct qk_version versions[] = {
    VERSION(2, QK_MOVE_TYPES, 0),
    VERSION(11, QK_MOVE_TYPES, 0),
    VERSION(13, QK_MOVE_TYPES_13, QK_BIT(QK_INT64)),
    VERSION(18, QK_MOVE_TYPES_13, QK_BIT(QK_INT64)),
};

static const struct qk_attribute_def attributes[] = {
    [AXIS] = QK_ATTRIBUTE("axis", INT, 2, "the axis to split, default 0, in [-rank, rank-1]"),
    [SPLIT_ATTRIBUTE] = QK_ATTRIBUTE("split", INTS, 2,
                                     "before version 13, which has an input: the sizes of the "
                                     "parts"),
    [NUM_OUTPUTS] = QK_ATTRIBUTE("num_outputs", INT, 2,
                                 "the number of parts, 1 to 8; required without split, and only "
                                 "then. All parts have the same size, but since version 18 the "
                                 "last may be smaller. ONNX has it since version 18; before, a "
                                 "node of a file has as many parts as outputs"),
};

#define PORT(number)                                                  \
    {                                                                 \
        "output_" #number, "as input; along axis, the size of a part" \
    }

const struct qk_operator qk_onnx_split = {
    .name = "onnx.Split",
    .platform = QK_ONNX_PLATFORM,
    .about = "the parts of input along an axis",
    .inputs = {[INPUT] = {"input", QK_ANY_SHAPE},
               [SPLIT] = {"split", "[number of parts]; required without num_outputs"}},
    .input_count = 2,
    .variable_inputs = 1U << INPUT,
    .planned_inputs = 1U << SPLIT,
    .outputs = {PORT(0), PORT(1), PORT(2), PORT(3), PORT(4), PORT(5), PORT(6), PORT(7)},
    .output_count = QK_OUTPUT_COUNT_MAX,
    QK_ATTRIBUTES(attributes),
    QK_VERSIONS(versions),
    .version_last = QK_ONNX_VERSION_LAST,
    .code = &(const struct qk_operator_code){.prepare = prepare, .plan = plan},
};
