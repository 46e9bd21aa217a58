/* onnx.Gather: the slices of data along an axis that indices name (onnx/defs/tensor/defs.cc). A
 * negative index counts back from the end. The indices are known when a plan is made, which refuses
 * an index beyond data. */
#include "kernels/element/load.h"
#include "kernels/operators/move/moving.h"
#include "kernels/operators/rules.h"

enum { DATA, INDICES };
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
    *instance = &made->base;
    made->axis = qk_int_or(&call->attributes[AXIS], 0);
    return QK_OK;
}

/* Turns the indices into offsets of slices. */
static enum qk_status make_offsets(const struct qk_tensor *indices, size_t axis_size,
                                   int64_t stride, int64_t **offsets, struct qk_memory memory,
                                   struct qk_error *error)
{
    const int64_t size = (int64_t)axis_size;
    int64_t *made = memory.alloc(memory.context, indices->count * sizeof(*made) + 1);
    if (!made)
        return qk_fail(error, QK_NO_MEMORY, "out of memory for a plan");
    for (size_t i = 0; i < indices->count; i++) {
        const int64_t index = qk_load_integer(indices->type, indices->data, i);
        if (index < -size || index >= size)
            return qk_fail(error, QK_INVALID,
                           "indices: expected integers in [-%lld, %lld], got %lld", (long long)size,
                           (long long)size - 1, (long long)index);
        made[i] = (index < 0 ? index + size : index) * stride;
    }
    *offsets = made;
    return QK_OK;
}

/* The axes of data around the gathered one are each merged into one. */
static enum qk_status add_box(const struct qk_tensor *x, const struct qk_tensor *indices,
                              uint32_t axis, struct qk_move *move, struct qk_memory memory,
                              struct qk_error *error)
{
    size_t outer = 1;
    size_t inner = 1;
    for (uint32_t i = 0; i < x->rank; i++)
        if (i != axis)
            *(i < axis ? &outer : &inner) *= x->dims[i];
    const int64_t row = (int64_t)inner;
    int64_t *offsets = NULL;
    const enum qk_status status =
        make_offsets(indices, x->dims[axis], row, &offsets, memory, error);
    if (status != QK_OK)
        return status;
    const struct qk_move_box box = {
        .rank = 3,
        .axes = {{outer, (int64_t)x->dims[axis] * row, (int64_t)indices->count * row, NULL},
                 {indices->count, 0, row, offsets},
                 {inner, 1, 1, NULL}}};
    return qk_move_add(move, &box, memory, error);
}

static enum qk_status plan(const struct qk_instance *instance, const struct qk_tensor *inputs,
                           struct qk_memory memory, struct qk_plan *plan, struct qk_error *error)
{
    const struct instance *made = (const struct instance *)instance;
    const struct qk_tensor *x = &inputs[DATA];
    const struct qk_tensor *indices = &inputs[INDICES];
    struct qk_move *move;
    size_t dims[QK_RANK_MAX];
    uint32_t axis;
    uint32_t at = 0;
    enum qk_status status = qk_move_check_input(x, "data", error);
    if (status == QK_OK)
        status = qk_move_check_input(indices, "indices", error);
    if (status == QK_OK)
        status = qk_find_axis("axis", made->axis, x->rank, &axis, error);
    if (status != QK_OK)
        return status;
    const uint32_t rank = x->rank + indices->rank - 1;
    if (rank > QK_RANK_MAX)
        return qk_fail(error, QK_INVALID,
                       "indices: expected at most %d dimensions of output, got %u", QK_RANK_MAX,
                       rank);
    for (uint32_t i = 0; i < x->rank; i++) {
        if (i != axis)
            dims[at++] = x->dims[i];
        for (uint32_t k = 0; i == axis && k < indices->rank; k++)
            dims[at++] = indices->dims[k];
    }
    status = qk_move_set_output(plan, 0, x->type, rank, dims, error);
    if (status == QK_OK)
        status = qk_move_begin(&move, x->type, NULL, 1, memory, error);
    if (status == QK_OK)
        status = add_box(x, indices, axis, move, memory, error);
    if (status == QK_OK)
        qk_move_end(move, instance, plan);
    return status;
}

/* ---- The descriptor ------------------------------------------------------------------------ */

#define VERSION(number, types) QK_MOVING_VERSION(number, types, [INDICES] = {QK_INDEX_TYPES, false})

static const struct qk_version versions[] = {
    VERSION(1, QK_MOVE_TYPES),
    VERSION(11, QK_MOVE_TYPES),
    VERSION(13, QK_MOVE_TYPES_13),
};

static const struct qk_attribute_def attributes[] = {
    [AXIS] = QK_ATTRIBUTE("axis", INT, 1, "the axis of the slices, default 0, in [-rank, rank-1]"),
};

const struct qk_operator qk_onnx_gather = {
    .name = "onnx.Gather",
    .platform = QK_ONNX_PLATFORM,
    .about = "the slices of data that indices name",
    .inputs = {[DATA] = {"data", QK_ANY_SHAPE}, [INDICES] = {"indices", QK_ANY_SHAPE}},
    .input_count = 2,
    .variable_inputs = 1U << DATA,
    .planned_inputs = 1U << INDICES,
    .outputs = {{"output", "as data; instead of axis, the dimensions of indices"}},
    .output_count = 1,
    QK_ATTRIBUTES(attributes),
    QK_VERSIONS(versions),
    .version_last = QK_ONNX_VERSION_LAST,
    .code = &(const struct qk_operator_code){.prepare = prepare, .plan = plan},
};
