/* onnx.Gather: the slices of data along an axis that indices name (onnx/defs/tensor/defs.cc). A
 * negative index counts back from the end. The indices are constant, so an index beyond data is
 * refused before any run. */
#include "kernels/operators/move/moving.h"
#include "kernels/operators/rules.h"

enum { DATA, INDICES };
enum { AXIS };

struct instance {
    struct qk_instance base;
    int64_t axis;
    struct qk_tensor shape; /* of the indices; its data is not read */
    int64_t *indices;
    int64_t least;
    int64_t most;
};

static enum qk_status prepare(const struct qk_kernels *kernels, const struct qk_call *call,
                              struct qk_memory memory, struct qk_instance **instance,
                              struct qk_error *error)
{
    (void)kernels;
    const struct qk_tensor *indices = &call->inputs[INDICES];
    size_t bytes;
    struct instance *made = qk_moving_alloc(call, sizeof(*made), memory, error);
    if (!made)
        return QK_NO_MEMORY;
    *instance = &made->base;
    made->axis = qk_int_or(&call->attributes[AXIS], 0);
    qk_tensor_copy(&made->shape, indices);
    made->shape.data = NULL;
    if (!qk_mul_size(indices->count, sizeof(*made->indices), &bytes))
        return qk_fail(error, QK_INVALID,
                       "indices: expected a list that fits in memory, got a "
                       "larger one");
    made->indices = memory.alloc(memory.context, bytes + 1); /* never 0 bytes */
    if (!made->indices)
        return qk_fail(error, QK_NO_MEMORY, "out of memory for indices");
    for (size_t i = 0; i < indices->count; i++) {
        const int64_t index = qk_load_integer(indices, i);
        made->indices[i] = index;
        made->least = index < made->least ? index : made->least;
        made->most = index > made->most ? index : made->most;
    }
    return QK_OK;
}

/* Turns the indices, which `plan` has checked, into offsets of slices. Returns NULL, with an error,
 * if memory has run out. */
static int64_t *make_offsets(const struct instance *made, size_t size, int64_t stride,
                             struct qk_memory memory, struct qk_error *error)
{
    int64_t *offsets = memory.alloc(memory.context, made->shape.count * sizeof(*offsets) + 1);
    if (!offsets) {
        qk_fail(error, QK_NO_MEMORY, "out of memory for a plan");
        return NULL;
    }
    for (size_t i = 0; i < made->shape.count; i++) {
        const int64_t index = made->indices[i];
        offsets[i] = (index < 0 ? index + (int64_t)size : index) * stride;
    }
    return offsets;
}

/* The axes of data around the gathered one are each merged into one. */
static enum qk_status add_box(const struct instance *made, const struct qk_tensor *x, uint32_t axis,
                              struct qk_move *move, struct qk_memory memory, struct qk_error *error)
{
    size_t outer = 1;
    size_t inner = 1;
    for (uint32_t i = 0; i < x->rank; i++)
        if (i != axis)
            *(i < axis ? &outer : &inner) *= x->dims[i];
    const int64_t row = (int64_t)inner;
    const int64_t *offsets = make_offsets(made, x->dims[axis], row, memory, error);
    if (!offsets)
        return QK_NO_MEMORY;
    const struct qk_move_box box = {
        .rank = 3,
        .axes = {{outer, (int64_t)x->dims[axis] * row, (int64_t)made->shape.count * row, NULL},
                 {made->shape.count, 0, row, offsets},
                 {inner, 1, 1, NULL}}};
    return qk_move_add(move, &box, memory, error);
}

static enum qk_status plan(const struct qk_instance *instance, const struct qk_tensor *inputs,
                           struct qk_memory memory, struct qk_plan *plan, struct qk_error *error)
{
    const struct instance *made = (const struct instance *)instance;
    const struct qk_tensor *x = &inputs[DATA];
    struct qk_move *move;
    size_t dims[QK_RANK_MAX];
    uint32_t axis;
    uint32_t at = 0;
    enum qk_status status = qk_move_check_input(x, "data", error);
    if (status == QK_OK)
        status = qk_find_axis("axis", made->axis, x->rank, &axis, error);
    if (status != QK_OK)
        return status;
    const uint32_t rank = x->rank + made->shape.rank - 1;
    if (rank > QK_RANK_MAX)
        return qk_fail(error, QK_INVALID,
                       "indices: expected at most %d dimensions of output, got %u", QK_RANK_MAX,
                       rank);
    const int64_t size = (int64_t)x->dims[axis];
    if (made->shape.count > 0 && (made->least < -size || made->most >= size))
        return qk_fail(error, QK_INVALID, "indices: expected integers in [-%lld, %lld], got %lld",
                       (long long)size, (long long)size - 1,
                       (long long)(made->least < -size ? made->least : made->most));
    for (uint32_t i = 0; i < x->rank; i++) {
        if (i != axis)
            dims[at++] = x->dims[i];
        for (uint32_t k = 0; i == axis && k < made->shape.rank; k++)
            dims[at++] = made->shape.dims[k];
    }
    status = qk_move_set_output(plan, 0, x->type, rank, dims, error);
    if (status == QK_OK)
        status = qk_move_begin(&move, x->type, NULL, 1, memory, error);
    if (status == QK_OK)
        status = add_box(made, x, axis, move, memory, error);
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
    .outputs = {{"output", "as data; instead of axis, the dimensions of indices"}},
    .output_count = 1,
    QK_ATTRIBUTES(attributes),
    QK_VERSIONS(versions),
    .version_last = QK_ONNX_VERSION_LAST,
    .code = &(const struct qk_operator_code){.prepare = prepare, .plan = plan},
};
