/* Plans the nodes of a graph for certain shapes. Runs them. */
#include <string.h>

#include "kernels/graph.h"

/* ---- Nodes --------------------------------------------------------------------------------- */

struct planner {
    const struct qk_graph *graph;
    const struct qk_tensor *inputs; /* of the graph */
    struct qk_memory memory;
    struct qk_node_plan *plans;
    const void **planned; /* the data of the planned values that are computed */
    size_t planned_elements;
    size_t workspace_bytes; /* of the nodes that run */
    struct qk_error *error;
};

static enum qk_status no_memory(const struct planner *planner)
{
    return qk_fail(planner->error, QK_NO_MEMORY, "out of memory for a plan of %zu nodes",
                   planner->graph->node_count);
}

/* Finds the tensors that a node reads. Those that are planned values have data. */
static void find_inputs(const struct planner *planner, const struct qk_graph_node *node,
                        struct qk_tensor *tensors)
{
    for (size_t i = 0; i < node->instance->op->input_count; i++) {
        if (node->inputs[i] == QK_VALUE_NONE) {
            tensors[i].type = QK_NONE;
            continue;
        }
        const struct qk_graph_value *value = &planner->graph->values[node->inputs[i]];
        qk_tensor_copy(&tensors[i],
                       value->kind == QK_PLACEMENT_INPUT
                           ? &planner->inputs[value->port]
                           : &planner->plans[value->maker].plan.outputs[value->output]);
        tensors[i].data = value->planned == QK_VALUE_NONE ? NULL : planner->planned[value->planned];
    }
}

/* Counts the elements of a node's outputs, which are planned values. */
static enum qk_status count_planned(struct planner *planner, const struct qk_plan *plan,
                                    struct qk_error *cause)
{
    const struct qk_operator *op = plan->instance->op;
    for (size_t i = 0; i < op->output_count; i++) {
        const size_t count = plan->outputs[i].count;
        if (count > QK_PLANNED_COUNT_MAX)
            return qk_fail(cause, QK_INVALID,
                           "%s: expected at most %zu elements, because shapes depend on their "
                           "values, got %zu",
                           op->outputs[i].name, QK_PLANNED_COUNT_MAX, count);
        planner->planned_elements += count;
    }
    if (planner->planned_elements <= QK_PLANNED_ALL_MAX)
        return QK_OK;
    return qk_fail(cause, QK_INVALID,
                   "expected at most %zu elements in all values on which shapes depend, got at "
                   "least %zu",
                   QK_PLANNED_ALL_MAX, planner->planned_elements);
}

/* Computes a node's outputs, which are planned values. */
static enum qk_status compute(struct planner *planner, const struct qk_graph_node *node,
                              const struct qk_plan *plan, const struct qk_tensor *tensors)
{
    const struct qk_operator *op = node->instance->op;
    const struct qk_memory memory = planner->memory;
    const void *from[QK_INPUT_COUNT_MAX];
    void *to[QK_OUTPUT_COUNT_MAX];
    struct qk_error cause;
    const enum qk_status status = count_planned(planner, plan, &cause);
    if (status != QK_OK)
        return qk_graph_fail_in(node, op, &cause, planner->error);
    void *workspace = memory.alloc(memory.context, plan->workspace_bytes + 1); /* never 0 bytes */
    if (!workspace)
        return no_memory(planner);
    for (size_t i = 0; i < op->input_count; i++)
        from[i] = tensors[i].type == QK_NONE ? NULL : tensors[i].data;
    for (size_t i = 0; i < op->output_count; i++) {
        to[i] = memory.alloc(memory.context, plan->output_bytes[i] + 1);
        if (!to[i])
            return no_memory(planner);
        planner->planned[planner->graph->values[node->outputs[i]].planned] = to[i];
    }
    qk_run(plan, from, to, workspace, 0, plan->unit_count);
    return QK_OK;
}

/* Plans one node, for the shapes that the nodes before it make. */
static enum qk_status plan_node(struct planner *planner, size_t index)
{
    const struct qk_graph_node *node = &planner->graph->nodes[index];
    const struct qk_operator *op = node->instance->op;
    const struct qk_memory memory = planner->memory;
    struct qk_node_plan *made = &planner->plans[index];
    struct qk_tensor tensors[QK_INPUT_COUNT_MAX];
    struct qk_error cause;
    find_inputs(planner, node, tensors);
    enum qk_status status = qk_plan(node->instance, tensors, memory, &made->plan, &cause);
    if (status != QK_OK)
        return qk_graph_fail_in(node, op, &cause, planner->error);
    if (node->computes)
        status = compute(planner, node, &made->plan, tensors);
    if (status != QK_OK)
        return status;
    if (!node->runs)
        made->plan.unit_count = 0;
    else if (made->plan.workspace_bytes > planner->workspace_bytes)
        planner->workspace_bytes = made->plan.workspace_bytes;
    const size_t count = op->input_count + op->output_count;
    struct qk_placement *placements = memory.alloc(memory.context, count * sizeof(*placements));
    if (!placements)
        return no_memory(planner);
    made->inputs = placements;
    made->outputs = placements + op->input_count;
    return QK_OK;
}

/* ---- What callers see ---------------------------------------------------------------------- */

static enum qk_status describe_outputs(const struct qk_graph *graph,
                                       const struct qk_node_plan *plans, struct qk_memory memory,
                                       struct qk_graph_plan *plan, struct qk_error *error)
{
    const size_t count = graph->output_count;
    struct qk_tensor *tensors = memory.alloc(memory.context, count * sizeof(*tensors));
    size_t *bytes = tensors ? memory.alloc(memory.context, count * sizeof(*bytes)) : NULL;
    if (!bytes)
        return qk_fail(error, QK_NO_MEMORY, "out of memory for a plan of %zu outputs", count);
    for (size_t i = 0; i < count; i++) {
        const struct qk_graph_value *value = &graph->values[graph->outputs[i]];
        const struct qk_plan *maker = &plans[value->maker].plan;
        qk_tensor_copy(&tensors[i], &maker->outputs[value->output]);
        bytes[i] = maker->output_bytes[value->output];
    }
    plan->outputs = tensors;
    plan->output_bytes = bytes;
    plan->output_count = count;
    return QK_OK;
}

/* At least one node runs, because a graph has an output. */
static const char *join_kernels(const struct qk_graph *graph, const struct qk_node_plan *plans,
                                struct qk_memory memory)
{
    const char *kernels[QK_GRAPH_KERNELS_MAX];
    size_t count = 0;
    size_t bytes = 0;
    for (size_t i = 0; i < graph->node_count && count < QK_GRAPH_KERNELS_MAX; i++)
        if (graph->nodes[i].runs) {
            kernels[count++] = plans[i].plan.kernel;
            bytes += strlen(plans[i].plan.kernel) + 1;
        }
    if (count == 1)
        return kernels[0];
    char *joined = memory.alloc(memory.context, bytes);
    if (!joined)
        return NULL;
    char *to = joined;
    for (size_t i = 0; i < count; i++) {
        const size_t length = strlen(kernels[i]);
        memcpy(to, kernels[i], length);
        to += length;
        *to++ = i + 1 < count ? '+' : '\0';
    }
    return joined;
}

/* Plans a graph of one node: the graph's plan is the node's plan. */
static enum qk_status plan_single(const struct qk_graph *graph, const struct qk_tensor *inputs,
                                  struct qk_memory memory, struct qk_graph_plan *plan,
                                  struct qk_error *error)
{
    struct qk_node_plan *node = memory.alloc(memory.context, sizeof(*node));
    if (!node)
        return qk_fail(error, QK_NO_MEMORY, "out of memory for a plan");
    const enum qk_status status =
        qk_plan(graph->nodes[0].instance, inputs, memory, &node->plan, error);
    if (status != QK_OK)
        return status;
    *plan = (struct qk_graph_plan){
        .graph = graph,
        .kernel = node->plan.kernel,
        .outputs = node->plan.outputs,
        .output_bytes = node->plan.output_bytes,
        .output_count = node->plan.output_count,
        .workspace_bytes = node->plan.workspace_bytes,
        .nodes = node,
        .node_count = 1,
    };
    return QK_OK;
}

enum qk_status qk_graph_plan(const struct qk_graph *graph, const struct qk_tensor *inputs,
                             struct qk_memory memory, struct qk_graph_plan *plan,
                             struct qk_error *error)
{
    const size_t count = graph->node_count;
    if (!graph->values)
        return plan_single(graph, inputs, memory, plan, error);
    struct planner planner = {.graph = graph, .inputs = inputs, .memory = memory, .error = error};
    struct qk_node_plan *plans = memory.alloc(memory.context, count * sizeof(*plans));
    const size_t planned_bytes = (graph->planned_count + 1) * sizeof(*planner.planned);
    planner.plans = plans;
    planner.planned = plans ? memory.alloc(memory.context, planned_bytes) : NULL;
    if (!planner.planned)
        return no_memory(&planner);
    enum qk_status status = QK_OK;
    for (size_t i = 0; i < count && status == QK_OK; i++)
        status = plan_node(&planner, i);
    *plan = (struct qk_graph_plan){.graph = graph,
                                   .workspace_bytes = planner.workspace_bytes,
                                   .nodes = plans,
                                   .node_count = count,
                                   .planned = planner.planned};
    if (status == QK_OK)
        status = qk_graph_place(graph, plans, memory, &plan->scratch_bytes, error);
    if (status == QK_OK)
        status = describe_outputs(graph, plans, memory, plan, error);
    if (status != QK_OK)
        return status;
    plan->kernel = join_kernels(graph, plans, memory);
    return plan->kernel ? QK_OK : qk_fail(error, QK_NO_MEMORY, "out of memory for a plan's name");
}

/* ---- For people ---------------------------------------------------------------------------- */

static bool is_empty(const struct qk_plan *plan)
{
    for (size_t i = 0; i < plan->output_count; i++)
        if (plan->output_bytes[i] > 0)
            return false;
    return true;
}

static enum qk_node_role role_of(const struct qk_graph_node *node, const struct qk_plan *plan)
{
    if (!node->runs)
        return node->computes ? QK_NODE_IN_PLAN : QK_NODE_UNUSED;
    return plan && plan->unit_count == 0 && !is_empty(plan) ? QK_NODE_MOVES_NOTHING : QK_NODE_RUNS;
}

void qk_graph_report(const struct qk_graph *graph, const struct qk_graph_plan *plan, size_t node,
                     struct qk_node_report *report)
{
    const struct qk_graph_node *from = &graph->nodes[node];
    const struct qk_plan *planned = plan ? &plan->nodes[node].plan : NULL;
    *report = (struct qk_node_report){
        .index = from->number,
        .name = from->name ? from->name : "",
        .op = from->instance->op,
        .kernel = planned ? planned->kernel : NULL,
        .role = graph->values ? role_of(from, planned) : QK_NODE_RUNS,
        .multiplications = planned ? planned->multiplications : 0,
    };
}

/* ---- Run ----------------------------------------------------------------------------------- */

/* Returns base + bytes. An empty tensor may be NULL. */
static const void *advance(const void *base, size_t bytes)
{
    return bytes > 0 ? (const char *)base + bytes : base;
}

void qk_graph_run(const struct qk_graph_plan *plan, size_t node, const void *const *inputs,
                  void *const *outputs, void *scratch, void *workspace, size_t begin, size_t end)
{
    const struct qk_node_plan *run = &plan->nodes[node];
    const struct qk_operator *op = run->plan.instance->op;
    const void *from[QK_INPUT_COUNT_MAX];
    void *to[QK_OUTPUT_COUNT_MAX];
    if (!plan->graph->values) {
        qk_run(&run->plan, inputs, outputs, workspace, begin, end);
        return;
    }
    for (size_t i = 0; i < op->input_count; i++) {
        const struct qk_placement *placement = &run->inputs[i];
        const void *base = scratch;
        if (placement->kind == QK_PLACEMENT_NONE)
            base = NULL;
        else if (placement->kind == QK_PLACEMENT_INPUT)
            base = inputs[placement->port];
        else if (placement->kind == QK_PLACEMENT_OUTPUT)
            base = outputs[placement->port];
        else if (placement->kind == QK_PLACEMENT_PLANNED)
            base = plan->planned[placement->port];
        from[i] = advance(base, placement->at);
    }
    for (size_t i = 0; i < op->output_count; i++) {
        const struct qk_placement *placement = &run->outputs[i];
        void *base = placement->kind == QK_PLACEMENT_OUTPUT ? outputs[placement->port] : scratch;
        to[i] = (char *)base + placement->at;
    }
    qk_run(&run->plan, from, to, workspace, begin, end);
}
