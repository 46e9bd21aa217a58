/* onnx.Transpose: the dimensions of data in another order (onnx/defs/tensor/defs.cc). */
#include "kernels/operators/move/moving.h"

enum { DATA };
enum { PERM };

struct instance {
    struct qk_instance base;
    struct qk_integers perm;
};

static enum qk_status prepare(const struct qk_kernels *kernels, const struct qk_call *call,
                              struct qk_memory memory, struct qk_instance **instance,
                              struct qk_error *error)
{
    (void)kernels;
    uint32_t axes;
    struct instance *made = qk_moving_alloc(call, sizeof(*made), memory, error);
    if (!made)
        return QK_NO_MEMORY;
    *instance = &made->base;
    const enum qk_status status =
        qk_read_attribute_list(call, PERM, QK_RANK_MAX, &made->perm, error);
    if (status != QK_OK)
        return status;
    for (size_t i = 0; i < made->perm.count; i++)
        if (made->perm.numbers[i] < 0)
            return qk_fail(error, QK_INVALID, "perm: expected axes in [0, %zu], got %lld",
                           made->perm.count - 1, (long long)made->perm.numbers[i]);
    return qk_find_axes("perm", &made->perm, (uint32_t)made->perm.count, false, &axes, error);
}

static enum qk_status plan(const struct qk_instance *instance, const struct qk_tensor *inputs,
                           struct qk_memory memory, struct qk_plan *plan, struct qk_error *error)
{
    const struct qk_integers *perm = &((const struct instance *)instance)->perm;
    const struct qk_tensor *x = &inputs[DATA];
    struct qk_move_box from;
    struct qk_move_box box = {0};
    struct qk_move *move;
    size_t dims[QK_RANK_MAX];
    if (perm->present && perm->count != x->rank)
        return qk_fail_of_rank(error, "perm: expected the %u axes of data, got %zu", x->rank,
                               perm->count);
    enum qk_status status = qk_move_check_input(x, "data", error);
    if (status != QK_OK)
        return status;
    qk_move_axes_of(x->dims, x->rank, &from);
    for (uint32_t i = 0; i < x->rank; i++)
        dims[i] = x->dims[perm->present ? (size_t)perm->numbers[i] : x->rank - 1 - i];
    qk_move_axes_of(dims, x->rank, &box);
    for (uint32_t i = 0; i < x->rank; i++)
        box.axes[i].x_stride =
            from.axes[perm->present ? (size_t)perm->numbers[i] : x->rank - 1 - i].x_stride;
    status = qk_move_set_output(plan, 0, x->type, x->rank, dims, error);
    if (status == QK_OK)
        status = qk_move_begin(&move, x->type, NULL, 1, memory, error);
    if (status == QK_OK)
        status = qk_move_add(move, &box, memory, error);
    if (status == QK_OK)
        qk_move_end(move, instance, plan);
    return status;
}

#define VERSION QK_MOVING_VERSION_1

static const struct qk_version versions[] = {
    VERSION(1, QK_MOVE_TYPES),     VERSION(13, QK_MOVE_TYPES_13), VERSION(21, QK_MOVE_TYPES_13),
    VERSION(23, QK_MOVE_TYPES_13), VERSION(24, QK_MOVE_TYPES_13), VERSION(25, QK_MOVE_TYPES_13),
};

static const struct qk_attribute_def attributes[] = {
    [PERM] =
        QK_ATTRIBUTE("perm", INTS, 1,
                     "each of 0 to rank-1 once: dimension i of transposed is dimension perm[i] "
                     "of data; default: all in reverse"),
};

const struct qk_operator qk_onnx_transpose = {
    .name = "onnx.Transpose",
    .platform = QK_ONNX_PLATFORM,
    .about = "data with its dimensions in another order",
    .inputs = {[DATA] = {"data", QK_ANY_SHAPE}},
    .input_count = 1,
    .variable_inputs = 1U << DATA,
    .outputs = {{"transposed", "as data, in the order of perm"}},
    .output_count = 1,
    QK_ATTRIBUTES(attributes),
    QK_VERSIONS(versions),
    .version_last = QK_ONNX_VERSION_LAST,
    .code = &(const struct qk_operator_code){.prepare = prepare, .plan = plan},
};
