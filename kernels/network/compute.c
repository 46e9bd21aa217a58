#include "kernels/network/compute.h"

static bool add_cost(const struct qk_plan *plan, uint64_t *cost_ns)
{
    uint64_t plan_ns;
    return !__builtin_mul_overflow(plan->unit_count, plan->unit_cost_ns, &plan_ns) &&
           !__builtin_add_overflow(*cost_ns, plan_ns, cost_ns) && *cost_ns <= QK_COMPUTE_NS_MAX;
}

/* Allocates at least one byte. */
static void *take(struct qk_memory memory, size_t bytes)
{
    return memory.alloc(memory.context, bytes > 0 ? bytes : 1);
}

static enum qk_status plan_call(const struct qk_kernels *kernels, const struct qk_call *call,
                                struct qk_memory memory, struct qk_plan *plan,
                                struct qk_error *error)
{
    struct qk_call lent = *call;
    const struct qk_instance *instance;
    lent.constants_stay = true;
    const enum qk_status status = qk_create(kernels, &lent, memory, &instance, error);
    return status == QK_OK ? qk_plan(instance, NULL, memory, plan, error) : status;
}

enum qk_status qk_compute(const struct qk_kernels *kernels, const struct qk_call *call,
                          struct qk_memory memory, uint64_t *cost_ns,
                          struct qk_tensor outputs[QK_OUTPUT_COUNT_MAX], struct qk_error *error)
{
    void *data[QK_OUTPUT_COUNT_MAX];
    struct qk_plan plan;
    const enum qk_status status = plan_call(kernels, call, memory, &plan, error);
    if (status != QK_OK)
        return status;
    if (!add_cost(&plan, cost_ns))
        return qk_fail(error, QK_INVALID,
                       "expected constants that take at most %llu s to compute, got more",
                       (unsigned long long)(QK_COMPUTE_NS_MAX / 1000000000));
    void *workspace = take(memory, plan.workspace_bytes);
    bool taken = workspace != NULL;
    for (size_t i = 0; i < call->op->output_count && taken; i++) {
        data[i] = take(memory, plan.output_bytes[i]);
        taken = data[i] != NULL;
    }
    if (!taken)
        return qk_fail(error, QK_NO_MEMORY, "out of memory for constants that nodes compute");
    qk_run(&plan, NULL, data, workspace, 0, plan.unit_count);
    for (size_t i = 0; i < call->op->output_count; i++) {
        qk_tensor_copy(&outputs[i], &plan.outputs[i]);
        outputs[i].stored = outputs[i].count;
        outputs[i].data = data[i];
    }
    return QK_OK;
}
