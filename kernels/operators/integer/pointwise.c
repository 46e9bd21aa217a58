#include "kernels/operators/integer/pointwise.h"

#include <string.h>

#include "kernels/dispatch.h"
#include "kernels/move/move.h"
#include "kernels/operators/shape_text.h"
#include "kernels/wrap.h"

/* The time of one element, which has a call of its own: a rough guess. */
#define ELEMENT_NS 8.0

struct state {
    qk_pointwise_fn compute;
    size_t operand_count;
    size_t size;   /* bytes of an element of the last operand */
    size_t y_size; /* bytes of an element of y */
    size_t count;
    size_t unit; /* elements of a unit */
    uint32_t rank;
    size_t dims[QK_RANK_MAX];
    size_t strides[QK_POINTWISE_OPERANDS_MAX][QK_RANK_MAX]; /* in bytes; 0: the axis broadcasts */
};

/* ---- Shapes -------------------------------------------------------------------------------- */

enum qk_status qk_broadcast_shape(const struct qk_tensor *x, const char *name, struct qk_tensor *y,
                                  struct qk_error *error)
{
    struct qk_shape_text expected;
    struct qk_shape_text got;
    const struct qk_tensor before = *y;
    if (x->rank > y->rank) {
        const uint32_t ones = x->rank - y->rank;
        for (uint32_t i = 0; i < x->rank; i++)
            y->dims[i] = i < ones ? 1 : before.dims[i - ones];
        y->rank = x->rank;
    }
    for (uint32_t i = 0; i < x->rank; i++) {
        size_t *dim = &y->dims[y->rank - x->rank + i];
        if (*dim == 1)
            *dim = x->dims[i];
        else if (x->dims[i] != 1 && x->dims[i] != *dim)
            return qk_fail(error, QK_INVALID,
                           "%s: expected a shape that broadcasts with %s, got %s", name,
                           qk_shape_text(&before, &expected), qk_shape_text(x, &got));
    }
    return QK_OK;
}

static size_t bytes_of(enum qk_type type)
{
    return qk_type_info(type)->bits / 8U;
}

static void set_strides(const struct qk_tensor *x, struct state *state, size_t operand)
{
    size_t stride = bytes_of(x->type);
    const uint32_t ones = state->rank - x->rank;
    for (uint32_t left = state->rank; left > 0; left--) {
        const uint32_t i = left - 1;
        const size_t dim = i < ones ? 1 : x->dims[i - ones];
        state->strides[operand][i] = dim == 1 ? 0 : stride;
        stride *= dim;
    }
}

/* ---- Runs ---------------------------------------------------------------------------------- */

/* Finds the position of element `index` of y: its index on each axis, and the offsets of its
 * operands. */
static void seek(const struct state *state, size_t index, size_t *position, size_t *offsets)
{
    memset(offsets, 0, QK_POINTWISE_OPERANDS_MAX * sizeof(*offsets));
    for (uint32_t left = state->rank; left > 0; left--) {
        const uint32_t i = left - 1;
        position[i] = index % state->dims[i];
        index /= state->dims[i];
        for (size_t k = 0; k < state->operand_count; k++)
            offsets[k] += position[i] * state->strides[k][i];
    }
}

QK_WRAPS static void step(const struct state *state, size_t *position, size_t *offsets)
{
    for (uint32_t left = state->rank; left > 0; left--) {
        const uint32_t i = left - 1;
        const bool is_last = ++position[i] == state->dims[i];
        for (size_t k = 0; k < state->operand_count; k++)
            offsets[k] +=
                is_last ? state->strides[k][i] * (1 - state->dims[i]) : state->strides[k][i];
        if (!is_last)
            return;
        position[i] = 0;
    }
}

static void run(const struct qk_plan *plan, const void *const *inputs, void *const *outputs,
                void *workspace, size_t begin, size_t end)
{
    const struct state *state = plan->state;
    const size_t last = end < plan->unit_count ? end * state->unit : state->count;
    size_t position[QK_RANK_MAX];
    size_t offsets[QK_POINTWISE_OPERANDS_MAX];
    const void *operands[QK_POINTWISE_OPERANDS_MAX];
    (void)workspace;
    if (begin == end)
        return;
    seek(state, begin * state->unit, position, offsets);
    for (size_t i = begin * state->unit; i < last; i++) {
        for (size_t k = 0; k < state->operand_count; k++)
            operands[k] = (const char *)inputs[k] + offsets[k];
        state->compute(operands, (char *)outputs[0] + i * state->y_size, state->size);
        step(state, position, offsets);
    }
}

/* ---- Plans --------------------------------------------------------------------------------- */

enum qk_status qk_pointwise_plan(const struct qk_instance *instance, qk_pointwise_fn compute,
                                 const struct qk_tensor *inputs, size_t count, enum qk_type y_type,
                                 struct qk_memory memory, struct qk_plan *plan,
                                 struct qk_error *error)
{
    const struct qk_operator *op = instance->op;
    struct qk_tensor y = {.rank = 0};
    enum qk_status status = QK_OK;
    for (size_t i = 0; i < count && status == QK_OK; i++) {
        status = qk_move_check_input(&inputs[i], op->inputs[i].name, error);
        if (status == QK_OK)
            status = qk_broadcast_shape(&inputs[i], op->inputs[i].name, &y, error);
    }
    if (status == QK_OK)
        status = qk_move_set_output(plan, 0, y_type, y.rank, y.dims, error);
    if (status != QK_OK)
        return status;
    struct state *state = memory.alloc(memory.context, sizeof(*state));
    if (!state)
        return qk_fail(error, QK_NO_MEMORY, "out of memory for a plan");
    *state = (struct state){.compute = compute,
                            .operand_count = count,
                            .size = bytes_of(inputs[count - 1].type),
                            .y_size = bytes_of(y_type),
                            .count = plan->outputs[0].count,
                            .rank = y.rank};
    memcpy(state->dims, y.dims, y.rank * sizeof(y.dims[0]));
    for (size_t i = 0; i < count; i++)
        set_strides(&inputs[i], state, i);
    state->unit = qk_elementwise_set_units(state->count, ELEMENT_NS,
                                           &instance->kernels->choice.elementwise, plan);
    plan->kernel = "pointwise";
    plan->run = run;
    plan->state = state;
    return QK_OK;
}
