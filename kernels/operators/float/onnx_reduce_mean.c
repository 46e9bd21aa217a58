/* onnx.ReduceMean of FP32 over the last axes, as torch writes a global average pool. Before opset
 * 18, the axes are an attribute, and since then an input (onnx/defs/reduction/defs.cc).
 *
 * ONNX Runtime adds in another order for other axes, so they are refused. */
#include "kernels/operators/float/row_means.h"
#include "kernels/operators/move/moving.h"
#include "kernels/operators/rules.h"
#include "kernels/operators/shape_text.h"

enum { DATA, AXES };
enum { AXES_ATTRIBUTE, KEEPDIMS, NOOP };

#define AXES_ARE_INPUT_SINCE 18

struct instance {
    struct qk_instance base;
    struct qk_integers axes;
    bool keeps; /* reduced axes stay, with size 1 */
};

static enum qk_status read_flag(const struct qk_call *call, size_t attribute, int64_t otherwise,
                                bool *flag, struct qk_error *error)
{
    const int64_t number = qk_int_or(&call->attributes[attribute], otherwise);
    *flag = number == 1;
    if (number == 0 || number == 1)
        return QK_OK;
    return qk_fail(error, QK_INVALID, "%s: expected 0 or 1, got %lld",
                   call->op->attributes[attribute].name, (long long)number);
}

static enum qk_status read_axes(const struct qk_call *call, struct qk_integers *axes,
                                struct qk_error *error)
{
    if (call->version->number < AXES_ARE_INPUT_SINCE)
        return qk_read_attribute_list(call, AXES_ATTRIBUTE, QK_RANK_MAX, axes, error);
    if (call->attributes[AXES_ATTRIBUTE].present)
        return qk_fail(error, QK_INVALID,
                       "axes: expected an input since version %d of %s, got an attribute",
                       AXES_ARE_INPUT_SINCE, call->op->name);
    return qk_read_input_list(call, AXES, QK_RANK_MAX, axes, error);
}

static enum qk_status prepare(const struct qk_kernels *kernels, const struct qk_call *call,
                              struct qk_memory memory, struct qk_instance **instance,
                              struct qk_error *error)
{
    struct instance *made = qk_moving_alloc(call, sizeof(*made), memory, error);
    bool is_noop;
    (void)kernels;
    if (!made)
        return QK_NO_MEMORY;
    *instance = &made->base;
    enum qk_status status = read_flag(call, KEEPDIMS, 1, &made->keeps, error);
    if (status == QK_OK)
        status = read_flag(call, NOOP, 0, &is_noop, error);
    if (status == QK_OK)
        status = read_axes(call, &made->axes, error);
    if (status == QK_OK && is_noop && made->axes.count == 0)
        return qk_fail(error, QK_INVALID,
                       "noop_with_empty_axes: expected 0 without axes, got 1, with which nothing "
                       "is reduced");
    return status;
}

/* Sets *first to the first of the reduced axes, which go up to the last axis. Without axes, all
 * are reduced. */
static enum qk_status find_first(const struct qk_integers *list, const struct qk_tensor *x,
                                 uint32_t *first, struct qk_error *error)
{
    const uint32_t all = x->rank < 32 ? (UINT32_C(1) << x->rank) - 1 : UINT32_MAX;
    uint32_t axes;
    const enum qk_status status = qk_find_axes("axes", list, x->rank, true, &axes, error);
    if (status != QK_OK)
        return status;
    axes = list->count > 0 ? axes : all;
    *first = axes ? (uint32_t)__builtin_ctz(axes) : 0;
    if (axes == (all >> *first << *first))
        return QK_OK;
    return qk_fail_of_rank(
        error,
        "axes: expected the last axes of data, because quantd has ONNX Runtime's order "
        "of additions only for them, got others of rank %u",
        x->rank);
}

static enum qk_status plan(const struct qk_instance *instance, const struct qk_tensor *inputs,
                           struct qk_memory memory, struct qk_plan *plan, struct qk_error *error)
{
    const struct instance *made = (const struct instance *)instance;
    const struct qk_tensor *x = &inputs[DATA];
    struct qk_tensor *y = &plan->outputs[0];
    struct qk_shape_text text;
    size_t length = 1;
    uint32_t first;
    const enum qk_status status = find_first(&made->axes, x, &first, error);
    if (status != QK_OK)
        return status;
    *y = (struct qk_tensor){.type = QK_FP32, .rank = made->keeps ? x->rank : first};
    for (uint32_t i = 0; i < x->rank; i++) {
        if (i < y->rank)
            y->dims[i] = i < first ? x->dims[i] : 1;
        length *= i < first ? 1 : x->dims[i];
    }
    if (length == 0)
        return qk_fail(error, QK_INVALID, "data: expected reduced axes above 0, got shape %s",
                       qk_shape_text(x, &text));
    return qk_row_means_plan(QK_SUM_ALIGNED, instance, x, length, memory, plan, error);
}

/* ---- The descriptor ------------------------------------------------------------------------ */

/* Before opset 18, the input `axes` does not exist. */
#define VERSION(since, axes_types)                                                    \
    {                                                                                 \
        .number = (since),                                                            \
        .inputs = {[DATA] = {QK_BIT(QK_FP32), false}, [AXES] = {(axes_types), true}}, \
        .output_types = {QK_BIT(QK_FP32)},                                            \
    }

static const struct qk_version versions[] = {
    VERSION(1, 0),
    VERSION(11, 0),
    VERSION(13, 0),
    VERSION(18, QK_BIT(QK_INT64)),
};

static const struct qk_attribute_def attributes[] = {
    [AXES_ATTRIBUTE] = QK_ATTRIBUTE("axes", INTS, 1,
                                    "before version 18, which has an input: the last axes of "
                                    "data, in [-rank, rank-1]; default: all"),
    [KEEPDIMS] = QK_ATTRIBUTE("keepdims", INT, 1, "default 1: reduced axes stay, with size 1"),
    [NOOP] = QK_ATTRIBUTE("noop_with_empty_axes", INT, 18, "default 0; 1 needs axes"),
};

const struct qk_operator qk_onnx_reduce_mean = {
    .name = "onnx.ReduceMean",
    .platform = QK_ONNX_PLATFORM,
    .about = "The mean over the last axes",
    .inputs = {[DATA] = {"data", QK_ANY_SHAPE}, [AXES] = {"axes", "[number of axes]"}},
    .input_count = 2,
    .variable_inputs = 1U << DATA,
    .outputs = {{"reduced", "data's, where reduced axes have size 1 or are left out"}},
    .output_count = 1,
    QK_ATTRIBUTES(attributes),
    QK_VERSIONS(versions),
    .version_last = QK_ONNX_VERSION_LAST,
    .code = &(const struct qk_operator_code){.prepare = prepare, .plan = plan},
};
