#include "kernels/operators/float/float_function.h"

#include <string.h>

#include "kernels/dispatch.h"
#include "kernels/element/load.h"

/* The time of one element, which has a call of its own: a rough guess. */
#define ELEMENT_NS 5.0

struct instance {
    struct qk_instance base;
    struct qk_float_function function;
};

struct state {
    size_t count;
    size_t unit; /* elements of a unit */
};

enum qk_status qk_float_prepare(const struct qk_float_function *function, struct qk_memory memory,
                                struct qk_instance **instance, struct qk_error *error)
{
    struct instance *made = memory.alloc(memory.context, sizeof(*made));
    if (!made)
        return qk_fail(error, QK_NO_MEMORY, "out of memory for an operator");
    *made = (struct instance){.base = {.output_types = {QK_FP32}}, .function = *function};
    *instance = &made->base;
    return QK_OK;
}

static void run(const struct qk_plan *plan, const void *const *inputs, void *const *outputs,
                void *workspace, size_t begin, size_t end)
{
    const struct qk_float_function *function = &((const struct instance *)plan->instance)->function;
    const struct state *state = plan->state;
    const size_t last = end < plan->unit_count ? end * state->unit : state->count;
    (void)workspace;
    for (size_t i = begin * state->unit; i < last; i++) {
        const float y = function->compute(function, qk_load_f32(inputs[0], i));
        memcpy((char *)outputs[0] + i * sizeof(y), &y, sizeof(y));
    }
}

enum qk_status qk_float_plan(const struct qk_instance *instance, const struct qk_tensor *inputs,
                             struct qk_memory memory, struct qk_plan *plan, struct qk_error *error)
{
    const struct qk_elementwise_tuning *tuning = &instance->kernels->choice.elementwise;
    struct state *state = memory.alloc(memory.context, sizeof(*state));
    if (!state)
        return qk_fail(error, QK_NO_MEMORY, "out of memory for a plan");
    qk_tensor_copy(&plan->outputs[0], &inputs[0]);
    plan->outputs[0].data = NULL;
    state->count = inputs[0].count;
    state->unit = qk_elementwise_set_units(state->count, ELEMENT_NS, tuning, plan);
    plan->output_bytes[0] = state->count * sizeof(float); /* as many bytes as x has */
    plan->kernel = "float";
    plan->run = run;
    plan->state = state;
    return QK_OK;
}
