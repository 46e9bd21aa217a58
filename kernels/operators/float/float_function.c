#include "kernels/operators/float/float_function.h"

#include "kernels/dispatch.h"

struct instance {
    struct qk_instance base;
    enum qk_float_unary function;
    float parameters[2];
};

struct state {
    qk_float_unary_fn run;
    size_t count;
    size_t unit; /* elements of a unit */
};

enum qk_status qk_float_prepare(enum qk_float_unary function, float a, float b,
                                struct qk_memory memory, struct qk_instance **instance,
                                struct qk_error *error)
{
    struct instance *made = memory.alloc(memory.context, sizeof(*made));
    if (!made)
        return qk_fail(error, QK_NO_MEMORY, "out of memory for an operator");
    *made = (struct instance){
        .base = {.output_types = {QK_FP32}}, .function = function, .parameters = {a, b}};
    *instance = &made->base;
    return QK_OK;
}

static void run(const struct qk_plan *plan, const void *const *inputs, void *const *outputs,
                void *workspace, size_t begin, size_t end)
{
    const float *parameters = ((const struct instance *)plan->instance)->parameters;
    const struct state *state = plan->state;
    const size_t first = begin * state->unit;
    const size_t last = end < plan->unit_count ? end * state->unit : state->count;
    (void)workspace;
    if (first < last)
        state->run(parameters, (const char *)inputs[0] + first * sizeof(float),
                   (char *)outputs[0] + first * sizeof(float), last - first);
}

enum qk_status qk_float_plan(const struct qk_instance *instance, const struct qk_tensor *inputs,
                             struct qk_memory memory, struct qk_plan *plan, struct qk_error *error)
{
    const struct qk_elementwise_tuning *tuning = &instance->kernels->choice.elementwise;
    const struct qk_float_kernels *kernels = instance->kernels->floats;
    const enum qk_float_unary function = ((const struct instance *)instance)->function;
    const double compute_ns = kernels->element_cycles * kernels->costs[function] * tuning->cycle_ns;
    const double move_ns = 2 * (double)sizeof(float) * tuning->byte_ns;
    struct state *state = memory.alloc(memory.context, sizeof(*state));
    if (!state)
        return qk_fail(error, QK_NO_MEMORY, "out of memory for a plan");
    qk_tensor_copy(&plan->outputs[0], &inputs[0]);
    plan->outputs[0].data = NULL;
    state->run = kernels->unary[function];
    state->count = inputs[0].count;
    state->unit = qk_elementwise_set_units(
        state->count, compute_ns > move_ns ? compute_ns : move_ns, tuning, plan);
    plan->output_bytes[0] = state->count * sizeof(float); /* as many bytes as x has */
    plan->kernel = kernels->name;
    plan->run = run;
    plan->state = state;
    return QK_OK;
}
