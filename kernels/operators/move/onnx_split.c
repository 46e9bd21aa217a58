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
    struct qk_integers split;
    size_t count; /* of outputs */
    bool smaller; /* the last part may be smaller */
};

static enum qk_status check_sizes(const struct instance *made, struct qk_error *error)
{
    if (made->count < 1 || made->count > QK_OUTPUT_COUNT_MAX)
        return qk_fail(error, QK_INVALID, "split: expected 1 to %d sizes, got %zu",
                       QK_OUTPUT_COUNT_MAX, made->count);
    for (size_t i = 0; i < made->count; i++)
        if (made->split.numbers[i] < 0 || made->split.numbers[i] > QK_LENGTH_MAX)
            return qk_fail(error, QK_INVALID, "split: expected sizes in [0, %lld], got %lld",
                           (long long)QK_LENGTH_MAX, (long long)made->split.numbers[i]);
    return QK_OK;
}

/* Finds how many parts there are. */
static enum qk_status read_count(const struct qk_call *call, struct instance *made,
                                 struct qk_error *error)
{
    const struct qk_attribute *number = &call->attributes[NUM_OUTPUTS];
    const size_t wanted = call->output_count;
    enum qk_status status = QK_OK;
    made->smaller = number->present && call->version->number >= NUM_OUTPUTS_SINCE;
    made->count = made->split.present ? made->split.count : wanted;
    if (made->split.present && number->present)
        return qk_fail(error, QK_INVALID, "num_outputs: expected this or split, got both");
    if (made->split.present)
        status = check_sizes(made, error);
    else if (!number->present && (wanted == 0 || call->version->number >= NUM_OUTPUTS_SINCE))
        return qk_fail(error, QK_INVALID, "num_outputs: expected this or split, got neither");
    if (number->present && (number->number < 1 || number->number > QK_OUTPUT_COUNT_MAX))
        return qk_fail(error, QK_INVALID, "num_outputs: expected an integer in [1, %d], got %lld",
                       QK_OUTPUT_COUNT_MAX, (long long)number->number);
    if (number->present)
        made->count = (size_t)number->number;
    if (status == QK_OK && wanted > 0 && made->count != wanted)
        return qk_fail(error, QK_INVALID, "%s: expected %zu, the number of outputs, got %zu",
                       made->split.present ? "split" : "num_outputs", wanted, made->count);
    return status;
}

static enum qk_status prepare(const struct qk_kernels *kernels, const struct qk_call *call,
                              struct qk_memory memory, struct qk_instance **instance,
                              struct qk_error *error)
{
    (void)kernels;
    const bool is_input = call->version->number >= SPLIT_IS_INPUT_SINCE;
    struct instance *made = qk_moving_alloc(call, sizeof(*made), memory, error);
    if (!made)
        return QK_NO_MEMORY;
    *instance = &made->base;
    made->axis = qk_int_or(&call->attributes[AXIS], 0);
    if (is_input && call->attributes[SPLIT_ATTRIBUTE].present)
        return qk_fail(error, QK_INVALID,
                       "split: expected an input since version %d of %s, got an attribute",
                       SPLIT_IS_INPUT_SINCE, call->op->name);
    const enum qk_status status =
        is_input ? qk_read_input_list(call, SPLIT, QK_RANK_MAX, &made->split, error)
                 : qk_read_attribute_list(call, SPLIT_ATTRIBUTE, QK_RANK_MAX, &made->split, error);
    return status == QK_OK ? read_count(call, made, error) : status;
}

/* Finds the sizes of the parts. */
static enum qk_status cut(const struct instance *made, size_t size, size_t *parts,
                          struct qk_error *error)
{
    const size_t count = made->count;
    size_t sum = 0;
    if (made->split.present) {
        for (size_t i = 0; i < count; i++) {
            parts[i] = (size_t)made->split.numbers[i];
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
    size_t parts[QK_OUTPUT_COUNT_MAX] = {0};
    uint32_t axis;
    enum qk_status status = qk_move_check_input(x, "input", error);
    if (status == QK_OK)
        status = qk_find_axis("axis", made->axis, x->rank, &axis, error);
    if (status == QK_OK)
        status = cut(made, x->dims[axis], parts, error);
    if (status == QK_OK)
        status = qk_move_begin(&move, x->type, NULL, made->count, memory, error);
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
        if (status == QK_OK && i < made->count)
            status = qk_move_add(move, &box, memory, error);
    }
    if (status != QK_OK)
        return status;
    plan->output_count = made->count;
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
                                 "without split: the number of parts, which have the same size. "
                                 "ONNX has it since version 18; before, a node of a file has as "
                                 "many parts as outputs"),
};

#define PORT(number)                                                  \
    {                                                                 \
        "output_" #number, "as input; along axis, the size of a part" \
    }

const struct qk_operator qk_onnx_split = {
    .name = "onnx.Split",
    .platform = QK_ONNX_PLATFORM,
    .about = "the parts of input along an axis",
    .inputs = {[INPUT] = {"input", QK_ANY_SHAPE}, [SPLIT] = {"split", "[number of parts]"}},
    .input_count = 2,
    .variable_inputs = 1U << INPUT,
    .outputs = {PORT(0), PORT(1), PORT(2), PORT(3), PORT(4), PORT(5), PORT(6), PORT(7)},
    .output_count = QK_OUTPUT_COUNT_MAX,
    QK_ATTRIBUTES(attributes),
    QK_VERSIONS(versions),
    .version_last = QK_ONNX_VERSION_LAST,
    .code = &(const struct qk_operator_code){.prepare = prepare, .plan = plan},
};
