/* Plans ArgMax: cuts x into rows or pieces of columns, and those into units. */
#include "kernels/argmax/argmax.h"

/* The most a call of a kernel costs beside its elements: a rough guess, in elements. */
#define CALL_ELEMENTS 64

/* x is [outer, length, inner], and y is [outer, inner]. An item is a call of a kernel: a row, if
 * inner is 1, or up to QK_ARGMAX_COLUMNS_MAX columns of one outer index. */
struct state {
    const struct qk_argmax_kernels *kernels;
    enum qk_argmax_kind kind;
    bool last;
    uint32_t flip;
    size_t element_bytes;
    size_t length, inner;
    size_t pieces; /* items of an outer index */
    size_t item_count;
    size_t unit_items;
};

static void run_item(const struct state *state, size_t item, const char *x, int64_t *y)
{
    const size_t outer = item / state->pieces;
    const size_t column = item % state->pieces * QK_ARGMAX_COLUMNS_MAX;
    const size_t left = state->inner - column;
    x += (outer * state->length * state->inner + column) * state->element_bytes;
    y += outer * state->inner + column;
    if (state->inner == 1)
        *y = state->kernels->row[state->kind][state->last](x, state->length, state->flip);
    else
        state->kernels->columns[state->kind][state->last](
            x, state->length, state->inner,
            left < QK_ARGMAX_COLUMNS_MAX ? left : QK_ARGMAX_COLUMNS_MAX, state->flip, y);
}

static void run(const struct qk_plan *plan, const void *const *inputs, void *const *outputs,
                void *workspace, size_t begin, size_t end)
{
    const struct state *state = plan->state;
    const size_t last = end < plan->unit_count ? end * state->unit_items : state->item_count;
    (void)workspace;
    for (size_t i = begin * state->unit_items; i < last; i++)
        run_item(state, i, inputs[0], outputs[0]);
}

/* ---- Plans --------------------------------------------------------------------------------- */

/* Sets how elements are compared. Other bits of an INT8 have the order of UINT8. */
static void set_order(struct state *state, enum qk_type type, bool is_min)
{
    state->element_bytes = qk_type_info(type)->bits / 8;
    if (type == QK_FP32) {
        state->kind = QK_ARGMAX_FLOAT;
        state->flip = is_min ? 0x80000000 : 0;
    } else {
        state->kind = type == QK_INT32 ? QK_ARGMAX_WORD : QK_ARGMAX_BYTE;
        state->flip = (type == QK_INT8 ? 0x80 : 0) ^ (is_min ? UINT32_MAX : 0);
    }
}

static void set_units(struct state *state, size_t count, const struct qk_elementwise_tuning *tuning,
                      struct qk_plan *plan)
{
    const double cycles_ns = state->kernels->element_cycles * tuning->cycle_ns;
    const double bytes_ns = (double)state->element_bytes * tuning->byte_ns;
    const double elements =
        (double)count / (double)state->item_count + CALL_ELEMENTS; /* of an item, on average */
    const double item_ns = elements * (cycles_ns > bytes_ns ? cycles_ns : bytes_ns);
    state->unit_items = qk_set_units(state->item_count, item_ns, tuning, plan);
}

static enum qk_status set_output(const struct qk_argmax *argmax, const struct qk_tensor *x,
                                 uint32_t axis, struct qk_plan *plan, struct qk_error *error)
{
    struct qk_tensor *y = &plan->outputs[0];
    y->type = QK_INT64;
    y->rank = 0;
    y->data = NULL;
    for (uint32_t i = 0; i < x->rank; i++)
        if (i != axis)
            y->dims[y->rank++] = x->dims[i];
        else if (argmax->keeps)
            y->dims[y->rank++] = 1;
    if (!qk_tensor_set_count(y) || !qk_type_bytes(QK_INT64, y->count, &plan->output_bytes[0]))
        return qk_fail(error, QK_INVALID,
                       "data: expected an output that fits in memory, got a larger one");
    return QK_OK;
}

enum qk_status qk_argmax_plan(const struct qk_argmax *argmax,
                              const struct qk_argmax_kernels *kernels,
                              const struct qk_elementwise_tuning *tuning, const struct qk_tensor *x,
                              uint32_t axis, struct qk_memory memory, struct qk_plan *plan,
                              struct qk_error *error)
{
    const size_t length = x->dims[axis];
    const enum qk_status status = set_output(argmax, x, axis, plan, error);
    if (status != QK_OK)
        return status;
    const size_t y_count = plan->outputs[0].count;
    if (length > QK_ARGMAX_LENGTH_MAX || (length == 0 && y_count > 0))
        return qk_fail(error, QK_INVALID, "data: expected 1 to %zu elements along axis, got %zu",
                       QK_ARGMAX_LENGTH_MAX, length);
    struct state *state = memory.alloc(memory.context, sizeof(*state));
    if (!state)
        return qk_fail(error, QK_NO_MEMORY, "out of memory for a plan");
    *state = (struct state){.kernels = kernels, .last = argmax->last, .length = length, .inner = 1};
    for (uint32_t i = axis + 1; i < x->rank; i++)
        state->inner *= x->dims[i];
    set_order(state, x->type, argmax->is_min);
    if (y_count > 0) {
        state->pieces = (state->inner - 1) / QK_ARGMAX_COLUMNS_MAX + 1;
        state->item_count = y_count / state->inner * state->pieces;
        set_units(state, x->count, tuning, plan);
    }
    plan->kernel = kernels->name;
    plan->run = run;
    plan->state = state;
    return QK_OK;
}
