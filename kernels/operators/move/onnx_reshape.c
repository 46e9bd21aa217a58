/* onnx.Reshape: the elements of data in the same order, in another shape (onnx/defs/tensor/defs.cc
 * and old.cc). */
#include "kernels/operators/move/moving.h"
#include "kernels/operators/rules.h"
#include "kernels/operators/shape_text.h"

enum { DATA, SHAPE };
enum { ALLOWZERO };

struct instance {
    struct qk_instance base;
    bool allowzero;
};

/* ---- Rules --------------------------------------------------------------------------------- */

/* Reads the shape and checks all rules that do not depend on data. */
static enum qk_status read_shape(const struct instance *made, const struct qk_tensor *tensor,
                                 struct qk_integers *shape, struct qk_error *error)
{
    size_t inferred = 0;
    size_t zeros = 0;
    const enum qk_status status = qk_read_list(tensor, "shape", QK_RANK_MAX, shape, error);
    if (status != QK_OK)
        return status;
    for (size_t i = 0; i < shape->count; i++) {
        const int64_t size = shape->numbers[i];
        if (size < -1 || size > QK_LENGTH_MAX)
            return qk_fail(error, QK_INVALID, "shape: expected sizes in [-1, %lld], got %lld",
                           (long long)QK_LENGTH_MAX, (long long)size);
        inferred += size == -1;
        zeros += size == 0;
    }
    if (inferred > 1)
        return qk_fail(error, QK_INVALID, "shape: expected at most one -1, got %zu", inferred);
    if (made->allowzero && inferred > 0 && zeros > 0)
        return qk_fail(error, QK_INVALID,
                       "shape: expected no -1 beside 0 with allowzero, got both");
    return QK_OK;
}

/* Finds the shape of the output. */
static enum qk_status fit(const struct instance *made, const struct qk_integers *shape,
                          const struct qk_tensor *x, struct qk_tensor *y, struct qk_error *error)
{
    struct qk_shape_text text;
    uint32_t inferred = QK_RANK_MAX;
    y->rank = (uint32_t)shape->count;
    for (uint32_t i = 0; i < y->rank; i++) {
        const int64_t size = shape->numbers[i];
        y->dims[i] = size < 0 ? 1 : (size_t)size;
        if (size < 0)
            inferred = i;
        if (size != 0 || made->allowzero)
            continue;
        if (i >= x->rank)
            return qk_fail(error, QK_INVALID,
                           "shape: expected 0 only for a dimension of data, which has shape %s, "
                           "got 0 for dimension %u",
                           qk_shape_text(x, &text), i);
        y->dims[i] = x->dims[i];
    }
    const bool counted = qk_tensor_set_count(y);
    if (counted && inferred < QK_RANK_MAX && y->count > 0 && x->count % y->count == 0) {
        y->dims[inferred] = x->count / y->count;
        return QK_OK;
    }
    if (counted && inferred == QK_RANK_MAX && y->count == x->count)
        return QK_OK;
    return qk_fail(error, QK_INVALID,
                   "shape: expected a shape with the %zu elements of data, which has shape %s, got "
                   "another",
                   x->count, qk_shape_text(x, &text));
}

/* ---- Prepare and plan ---------------------------------------------------------------------- */

static enum qk_status prepare(const struct qk_kernels *kernels, const struct qk_call *call,
                              struct qk_memory memory, struct qk_instance **instance,
                              struct qk_error *error)
{
    (void)kernels;
    const int64_t allowzero = qk_int_or(&call->attributes[ALLOWZERO], 0);
    struct instance *made = qk_moving_alloc(call, sizeof(*made), memory, error);
    if (!made)
        return QK_NO_MEMORY;
    if (allowzero != 0 && allowzero != 1)
        return qk_fail(error, QK_INVALID, "allowzero: expected 0 or 1, got %lld",
                       (long long)allowzero);
    made->allowzero = allowzero == 1;
    *instance = &made->base;
    struct qk_integers shape;
    return qk_is_planned(call, 1U << SHAPE) ? QK_OK
                                            : read_shape(made, &call->inputs[SHAPE], &shape, error);
}

static enum qk_status plan(const struct qk_instance *instance, const struct qk_tensor *inputs,
                           struct qk_memory memory, struct qk_plan *plan, struct qk_error *error)
{
    const struct instance *made = (const struct instance *)instance;
    struct qk_integers shape;
    struct qk_tensor y;
    enum qk_status status = read_shape(made, &inputs[SHAPE], &shape, error);
    if (status == QK_OK)
        status = fit(made, &shape, &inputs[DATA], &y, error);
    if (status != QK_OK)
        return status;
    return qk_move_plan_alias(instance, &inputs[DATA], y.rank, y.dims, memory, plan, error);
}

/* ---- The descriptor ------------------------------------------------------------------------ */

#define VERSION(number, types) QK_MOVING_VERSION(number, types, [SHAPE] = QK_MOVING_INTEGERS)

static const struct qk_version versions[] = {
    VERSION(5, QK_MOVE_TYPES),     VERSION(13, QK_MOVE_TYPES_13), VERSION(14, QK_MOVE_TYPES_13),
    VERSION(19, QK_MOVE_TYPES_13), VERSION(21, QK_MOVE_TYPES_13), VERSION(23, QK_MOVE_TYPES_13),
    VERSION(24, QK_MOVE_TYPES_13), VERSION(25, QK_MOVE_TYPES_13),
};

static const struct qk_attribute_def attributes[] = {
    [ALLOWZERO] = QK_ATTRIBUTE("allowzero", INT, 14,
                               "what 0 in shape means, 1: a size of 0; default 0: the size of the "
                               "same dimension of data"),
};

const struct qk_operator qk_onnx_reshape = {
    .name = "onnx.Reshape",
    .platform = QK_ONNX_PLATFORM,
    .about = "data in another shape; shape may have one -1, which is inferred",
    .inputs = {[DATA] = {"data", QK_ANY_SHAPE}, [SHAPE] = {"shape", "[rank of reshaped]"}},
    .input_count = 2,
    .variable_inputs = 1U << DATA,
    .planned_inputs = 1U << SHAPE,
    .outputs = {{"reshaped", "shape"}},
    .output_count = 1,
    QK_ATTRIBUTES(attributes),
    QK_VERSIONS(versions),
    .version_last = QK_ONNX_VERSION_LAST,
    .code = &(const struct qk_operator_code){.prepare = prepare, .plan = plan},
};
