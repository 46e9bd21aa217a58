#include "kernels/operators/float/row_means.h"

#include "kernels/dispatch.h"

/* Rough costs in cycles: of an element and of a row. */
#define ELEMENT_CYCLES 0.3
#define ROW_CYCLES 15.0

struct state {
    enum qk_sum_kind kind;
    size_t length;
    size_t rows;
    size_t unit; /* rows of a unit */
};

static void run(const struct qk_plan *plan, const void *const *inputs, void *const *outputs,
                void *workspace, size_t begin, size_t end)
{
    const struct state *state = plan->state;
    const size_t first = begin * state->unit;
    const size_t last = end < plan->unit_count ? end * state->unit : state->rows;
    const size_t at = first * state->length;
    (void)workspace;
    qk_means(state->kind, (const char *)inputs[0] + at * sizeof(float), state->length, last - first,
             at, (char *)outputs[0] + first * sizeof(float));
}

enum qk_status qk_row_means_plan(enum qk_sum_kind kind, const struct qk_instance *instance,
                                 const struct qk_tensor *x, size_t length, struct qk_memory memory,
                                 struct qk_plan *plan, struct qk_error *error)
{
    const struct qk_elementwise_tuning *tuning = &instance->kernels->choice.elementwise;
    const double row_ns = (ROW_CYCLES + ELEMENT_CYCLES * (double)length) * tuning->cycle_ns;
    struct state *state = memory.alloc(memory.context, sizeof(*state));
    if (!state)
        return qk_fail(error, QK_NO_MEMORY, "out of memory for a plan");
    *state = (struct state){.kind = kind, .length = length, .rows = x->count / length};
    state->unit = qk_set_units(state->rows, row_ns, tuning, plan);
    plan->outputs[0].count = plan->outputs[0].stored = state->rows;
    plan->outputs[0].data = NULL;
    plan->output_bytes[0] = state->rows * sizeof(float); /* at most as many bytes as x has */
    plan->kernel = "float_mean";
    plan->run = run;
    plan->state = state;
    return QK_OK;
}
