#include "kernels/operators/granularity.h"

#include "kernels/operators/rules.h"
#include "kernels/operators/shape_text.h"
#include "kernels/sizes.h"

enum { X, SCALE = QK_GRANULARITY_SCALE, ZERO_POINT = QK_GRANULARITY_ZERO_POINT };
enum { AXIS = QK_GRANULARITY_AXIS, BLOCK_SIZE = QK_GRANULARITY_BLOCK_SIZE };

/* ---- Rules about what is constant -------------------------------------------------------- */

static enum qk_status check_block_size(const struct qk_call *call, struct qk_error *error)
{
    const int64_t size = qk_int_or(&call->attributes[BLOCK_SIZE], 0);
    if (size < 0 || size > QK_LENGTH_MAX)
        return qk_fail(error, QK_INVALID, "block_size: expected 0 to %lld, got %lld",
                       (long long)QK_LENGTH_MAX, (long long)size);
    if (size > 0 && call->inputs[SCALE].rank == 0)
        return qk_fail(error, QK_INVALID, "block_size: expected 0 where %s has shape [], got %lld",
                       call->op->inputs[SCALE].name, (long long)size);
    return QK_OK;
}

/* Checks what can be checked before the rank of x is known. With a single scale the axis is
 * ignored. */
static enum qk_status check_axis(const struct qk_call *call, struct qk_error *error)
{
    const int64_t axis = qk_int_or(&call->attributes[AXIS], 1);
    const bool read =
        qk_int_or(&call->attributes[BLOCK_SIZE], 0) > 0 || !qk_is_single(&call->inputs[SCALE]);
    if (!read || (axis >= -QK_RANK_MAX && axis < QK_RANK_MAX))
        return QK_OK;
    return qk_fail(error, QK_INVALID, "axis: expected %d to %d, got %lld", -QK_RANK_MAX,
                   QK_RANK_MAX - 1, (long long)axis);
}

static enum qk_status check_scale(const struct qk_call *call, struct qk_error *error)
{
    const struct qk_tensor *scale = &call->inputs[SCALE];
    const char *name = call->op->inputs[SCALE].name;
    struct qk_shape_text shape;
    if (qk_is_single(scale))
        return QK_OK;
    if (call->version->number < call->op->attributes[AXIS].since)
        return qk_fail(error, QK_INVALID,
                       "%s: expected one scale, of shape [] or [1], for %s %u, got shape %s", name,
                       call->op->name, call->version->number, qk_shape_text(scale, &shape));
    if (scale->rank != 1 && qk_int_or(&call->attributes[BLOCK_SIZE], 0) == 0)
        return qk_fail(error, QK_INVALID,
                       "%s: without a block_size, expected shape [] or [1], or one scale for each "
                       "slice of x on the axis, got shape %s",
                       name, qk_shape_text(scale, &shape));
    return QK_OK;
}

enum qk_status qk_granularity_read(struct qk_granularity *granularity, const struct qk_call *call,
                                   struct qk_error *error)
{
    enum qk_status status = check_block_size(call, error);
    if (status == QK_OK)
        status = check_axis(call, error);
    if (status == QK_OK)
        status = check_scale(call, error);
    qk_tensor_copy(&granularity->scale, &call->inputs[SCALE]);
    granularity->axis = call->attributes[AXIS];
    granularity->block_size = (size_t)qk_int_or(&call->attributes[BLOCK_SIZE], 0);
    return status;
}

enum qk_status qk_granularity_check_zero_point(const struct qk_call *call, struct qk_error *error)
{
    const struct qk_tensor *scale = &call->inputs[SCALE];
    const struct qk_tensor *zero_point = &call->inputs[ZERO_POINT];
    const struct qk_port *ports = call->op->inputs;
    struct qk_shape_text shape;
    struct qk_shape_text scale_shape;
    if (qk_is_single(scale) && !qk_is_single(zero_point))
        return qk_fail(error, QK_INVALID, "%s: expected shape [] or [1] as for %s, got shape %s",
                       ports[ZERO_POINT].name, ports[SCALE].name,
                       qk_shape_text(zero_point, &shape));
    if (!qk_is_single(scale) && !qk_same_shape(zero_point, scale))
        return qk_fail(error, QK_INVALID, "%s: expected the shape of %s, %s, got shape %s",
                       ports[ZERO_POINT].name, ports[SCALE].name,
                       qk_shape_text(scale, &scale_shape), qk_shape_text(zero_point, &shape));
    return QK_OK;
}

/* ---- Rules about the shape of x ---------------------------------------------------------- */

/* Finds the axis of x that the scales run along, counted from the front. */
static enum qk_status resolve_axis(const struct qk_granularity *granularity,
                                   const struct qk_operator *op, const struct qk_tensor *x,
                                   uint32_t *axis, struct qk_error *error)
{
    const int64_t rank = x->rank;
    const int64_t number = qk_int_or(&granularity->axis, 1);
    struct qk_shape_text shape;
    if (rank == 0)
        return qk_fail(error, QK_INVALID,
                       "%s: expected one scale, of shape [] or [1], for x of shape [], got %s",
                       op->inputs[SCALE].name, qk_shape_text(&granularity->scale, &shape));
    if (number < -rank || number >= rank)
        return qk_fail(error, QK_INVALID,
                       "axis: expected %lld to %lld for x of shape %s, got %lld%s",
                       (long long)-rank, (long long)rank - 1, qk_shape_text(x, &shape),
                       (long long)number, granularity->axis.present ? "" : " (the default)");
    *axis = (uint32_t)(number < 0 ? number + rank : number);
    return QK_OK;
}

static enum qk_status check_slices(const struct qk_granularity *granularity,
                                   const struct qk_operator *op, const struct qk_tensor *x,
                                   uint32_t axis, struct qk_error *error)
{
    struct qk_shape_text shape;
    if (x->dims[axis] == granularity->scale.dims[0])
        return QK_OK;
    return qk_fail(error, QK_INVALID,
                   "%s: expected shape [%zu], as long as axis %u of x of shape %s, got [%zu]",
                   op->inputs[SCALE].name, x->dims[axis], axis, qk_shape_text(x, &shape),
                   granularity->scale.dims[0]);
}

static enum qk_status check_blocks(const struct qk_granularity *granularity,
                                   const struct qk_operator *op, const struct qk_tensor *x,
                                   uint32_t axis, struct qk_error *error)
{
    const size_t length = x->dims[axis];
    struct qk_tensor expected = *x;
    struct qk_shape_text shape;
    struct qk_shape_text expected_shape;
    expected.dims[axis] = qk_divide_up(length, granularity->block_size);
    if (qk_same_shape(&granularity->scale, &expected))
        return QK_OK;
    return qk_fail(error, QK_INVALID,
                   "%s: expected shape %s for blocks of %zu on axis %u of x, got %s",
                   op->inputs[SCALE].name, qk_shape_text(&expected, &expected_shape),
                   granularity->block_size, axis, qk_shape_text(&granularity->scale, &shape));
}

enum qk_status qk_granularity_fit(const struct qk_granularity *granularity,
                                  const struct qk_operator *op, const struct qk_tensor *x,
                                  struct qk_broadcast *broadcast, struct qk_error *error)
{
    uint32_t axis = 0;
    qk_broadcast_init(broadcast, x);
    if (granularity->block_size == 0 && qk_is_single(&granularity->scale))
        return QK_OK;
    enum qk_status status = resolve_axis(granularity, op, x, &axis, error);
    if (status != QK_OK)
        return status;
    if (granularity->block_size > 0) {
        status = check_blocks(granularity, op, x, axis, error);
        if (status == QK_OK)
            qk_broadcast_block(broadcast, &granularity->scale, axis, granularity->block_size);
        return status;
    }
    status = check_slices(granularity, op, x, axis, error);
    if (status == QK_OK)
        qk_broadcast_slice(broadcast, axis);
    return status;
}
