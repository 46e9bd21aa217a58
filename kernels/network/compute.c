#include "kernels/network/compute.h"

#include <stdlib.h>

/* ---- Bounds -------------------------------------------------------------------------------- */

struct constant {
    const void *data;
    size_t bytes;
};

/* Sorts by address. Of constants at one address, the largest comes first. */
static int compare(const void *left, const void *right)
{
    const struct constant *a = left;
    const struct constant *b = right;
    const uintptr_t at = (uintptr_t)a->data, other = (uintptr_t)b->data;
    if (at != other)
        return at < other ? -1 : 1;
    return (a->bytes < b->bytes) - (a->bytes > b->bytes);
}

/* Lists the constants of the graph that are known. Without `list`, only counts them. */
static size_t list_constants(const struct qk_graph_call *call, struct constant *list)
{
    size_t count = 0;
    for (size_t i = 0; i < call->node_count; i++)
        for (size_t k = 0; k < call->nodes[i].call.op->input_count; k++) {
            const struct qk_tensor *tensor = &call->nodes[i].call.inputs[k];
            size_t bytes;
            if ((call->nodes[i].call.variable >> k & 1) || tensor->type == QK_NONE ||
                !tensor->data || !qk_type_bytes(tensor->type, tensor->stored, &bytes))
                continue;
            if (list)
                list[count] = (struct constant){tensor->data, bytes};
            count++;
        }
    return count;
}

/* Returns the bound for these constants. A constant that several nodes read counts once. */
static size_t bound_of(struct constant *list, size_t count)
{
    size_t bound = QK_COMPUTE_BYTES_MIN;
    qsort(list, count, sizeof(*list), compare);
    for (size_t i = 0; i < count; i++) {
        size_t bytes;
        if (i > 0 && list[i].data == list[i - 1].data)
            continue;
        if (!qk_mul_size(list[i].bytes, QK_COMPUTE_BYTES_EACH, &bytes) ||
            __builtin_add_overflow(bound, bytes, &bound))
            bound = SIZE_MAX;
    }
    return bound;
}

static struct qk_graph_memory *taken_of(struct qk_computing *computing)
{
    return computing->taken ? computing->taken : &computing->own_taken;
}

enum qk_status qk_computing_init(struct qk_computing *computing, const struct qk_kernels *kernels,
                                 const struct qk_graph_call *call, struct qk_memory memory,
                                 struct qk_error *error)
{
    *computing = (struct qk_computing){
        .kernels = kernels, .memory = memory, .work = call->work, .taken = call->memory};
    struct qk_graph_memory *taken = taken_of(computing);
    if (taken->bytes_max > 0)
        return QK_OK;
    const size_t count = list_constants(call, NULL);
    struct constant *list = memory.alloc(memory.context, (count + 1) * sizeof(*list));
    if (!list)
        return qk_fail(error, QK_NO_MEMORY, "out of memory for constants that nodes compute");
    list_constants(call, list);
    taken->bytes_max = bound_of(list, count);
    return QK_OK;
}

bool qk_computing_count(struct qk_computing *computing, uint64_t ns)
{
    struct qk_graph_work *work = computing->work ? computing->work : &computing->own_work;
    if (ns > QK_COMPUTE_NS_MAX - work->cost_ns) {
        work->is_refused = true;
        return false;
    }
    work->cost_ns += ns;
    return true;
}

/* Counts a plan before it is run. */
static bool add_cost(struct qk_computing *computing, const struct qk_plan *plan)
{
    uint64_t plan_ns;
    if (__builtin_mul_overflow(plan->unit_count, plan->unit_cost_ns, &plan_ns))
        plan_ns = UINT64_MAX;
    return qk_computing_count(computing, plan_ns);
}

/* Allocates at least one byte, within the bound. */
static void *take(void *context, size_t bytes)
{
    struct qk_computing *computing = context;
    struct qk_graph_memory *taken = taken_of(computing);
    if (bytes > taken->bytes_max - taken->bytes) {
        computing->exceeded = true;
        return NULL;
    }
    taken->bytes += bytes;
    return computing->memory.alloc(computing->memory.context, bytes > 0 ? bytes : 1);
}

/* ---- One call ------------------------------------------------------------------------------ */

static enum qk_status plan_call(struct qk_computing *computing, const struct qk_call *call,
                                struct qk_plan *plan, struct qk_error *error)
{
    const struct qk_memory memory = {take, computing};
    struct qk_call lent = *call;
    const struct qk_instance *instance;
    lent.constants_stay = true;
    enum qk_status status = qk_create(computing->kernels, &lent, memory, &instance, error);
    if (status == QK_OK)
        status = qk_plan(instance, NULL, memory, plan, error);
    if (status == QK_OK && !add_cost(computing, plan))
        return qk_fail(error, QK_INVALID,
                       "expected constants that take at most %llu s to compute, got more",
                       (unsigned long long)(QK_COMPUTE_NS_MAX / 1000000000));
    return status;
}

static enum qk_status run_call(struct qk_computing *computing, const struct qk_call *call,
                               struct qk_tensor outputs[QK_OUTPUT_COUNT_MAX],
                               struct qk_error *error)
{
    void *data[QK_OUTPUT_COUNT_MAX];
    struct qk_plan plan;
    const enum qk_status status = plan_call(computing, call, &plan, error);
    if (status != QK_OK)
        return status;
    void *workspace = take(computing, plan.workspace_bytes);
    bool taken = workspace != NULL;
    for (size_t i = 0; i < call->op->output_count && taken; i++) {
        data[i] = take(computing, plan.output_bytes[i]);
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

enum qk_status qk_compute(struct qk_computing *computing, const struct qk_call *call,
                          struct qk_tensor outputs[QK_OUTPUT_COUNT_MAX], struct qk_error *error)
{
    const enum qk_status status = run_call(computing, call, outputs, error);
    if (status == QK_NO_MEMORY && computing->exceeded)
        return qk_fail(error, QK_INVALID,
                       "expected constants that take at most %zu bytes to compute, which is %zu "
                       "MiB and %d times the graph's constants, got more",
                       taken_of(computing)->bytes_max, QK_COMPUTE_BYTES_MIN >> 20,
                       QK_COMPUTE_BYTES_EACH);
    return status;
}
