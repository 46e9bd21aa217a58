/* Plans a lookup: cuts x into units. */
#include "kernels/lookup/lookup.h"

struct state {
    const struct qk_lookup_table *table;
    const struct qk_lookup_kernel *kernel;
    size_t count;
    size_t unit; /* elements of a unit: a multiple of 64, so each begins at a line of y */
    bool stream;
};

static void run(const struct qk_plan *plan, const void *const *inputs, void *const *outputs,
                void *workspace, size_t begin, size_t end)
{
    const struct state *state = plan->state;
    const size_t first = begin * state->unit;
    const size_t last = end < plan->unit_count ? end * state->unit : state->count;
    (void)workspace;
    if (first >= last)
        return;
    state->kernel->run(state->table, (const uint8_t *)inputs[0] + first,
                       (uint8_t *)outputs[0] + first, last - first, state->stream);
    if (state->stream && state->kernel->finish)
        state->kernel->finish();
}

enum qk_status qk_lookup_plan(const struct qk_lookup_table *table,
                              const struct qk_lookup_kernel *kernel,
                              const struct qk_elementwise_tuning *tuning, const struct qk_tensor *x,
                              enum qk_type y_type, struct qk_memory memory, struct qk_plan *plan,
                              struct qk_error *error)
{
    double element_ns = kernel->element_cycles * tuning->cycle_ns;
    if (element_ns < 2 * tuning->byte_ns)
        element_ns = 2 * tuning->byte_ns; /* one byte is read and one is written */
    struct state *state = memory.alloc(memory.context, sizeof(*state));
    if (!state)
        return qk_fail(error, QK_NO_MEMORY, "out of memory for a plan");
    qk_tensor_copy(&plan->outputs[0], x);
    plan->outputs[0].type = y_type;
    plan->outputs[0].data = NULL;
    plan->output_bytes[0] = x->count;
    *state = (struct state){
        .table = table,
        .kernel = kernel,
        .count = x->count,
        .unit = qk_elementwise_set_units(x->count, element_ns, tuning, plan),
        .stream = x->count >= tuning->stream_bytes,
    };
    plan->kernel = kernel->name;
    plan->run = run;
    plan->state = state;
    return QK_OK;
}
