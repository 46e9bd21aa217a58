/* Decides which values of a graph are computed while plans are made, and which nodes run. Both are
 * known when the graph is prepared. */
#include "kernels/graph.h"
#include "kernels/operators/operator.h"

/* ---- Inputs -------------------------------------------------------------------------------- */

/* Returns whether the data of an input is read, and not only its shape. */
static bool reads_data(const struct qk_operator *op, size_t input)
{
    return !(op->code->shape_only_inputs >> input & 1);
}

/* Returns whether runs read the data of an input. */
static bool is_read_by_runs(const struct qk_operator *op, size_t input)
{
    return reads_data(op, input) && !(op->planned_inputs >> input & 1);
}

uint32_t qk_graph_find_unplanned(const struct qk_graph *graph, const struct qk_graph_node *node,
                                 const struct qk_operator *op)
{
    for (size_t i = 0; i < op->input_count; i++)
        if (node->inputs[i] != QK_VALUE_NONE && reads_data(op, i) &&
            !graph->values[node->inputs[i]].from_shapes)
            return node->inputs[i];
    return QK_VALUE_NONE;
}

static bool makes_output(const struct qk_graph *graph, const struct qk_graph_node *node)
{
    for (size_t i = 0; i < node->instance->op->output_count; i++)
        if (graph->values[node->outputs[i]].kind == QK_PLACEMENT_OUTPUT)
            return true;
    return false;
}

/* ---- Plans --------------------------------------------------------------------------------- */

/* Gives an index to all outputs of a node that plans compute. If the node does not run, they lie in
 * the plan. */
static void plan_outputs(struct qk_graph *graph, struct qk_graph_node *node)
{
    const bool placed = makes_output(graph, node);
    node->computes = true;
    for (size_t i = 0; i < node->instance->op->output_count; i++) {
        struct qk_graph_value *value = &graph->values[node->outputs[i]];
        value->planned = (uint32_t)graph->planned_count++;
        if (placed)
            continue;
        value->kind = QK_PLACEMENT_PLANNED;
        value->port = value->planned;
    }
}

/* Finds the planned values. A value's readers come after its maker, so that going backwards finds
 * all readers first. */
static void decide_plans(struct qk_graph *graph)
{
    for (size_t left = graph->node_count; left > 0; left--) {
        struct qk_graph_node *node = &graph->nodes[left - 1];
        const struct qk_operator *op = node->instance->op;
        bool is_needed = false;
        for (size_t k = 0; k < op->output_count; k++)
            is_needed = is_needed || graph->values[node->outputs[k]].is_planned;
        if (is_needed)
            plan_outputs(graph, node);
        for (size_t k = 0; k < op->input_count; k++)
            if (node->inputs[k] != QK_VALUE_NONE &&
                (op->planned_inputs >> k & 1 || (is_needed && reads_data(op, k))))
                graph->values[node->inputs[k]].is_planned = true;
    }
}

/* ---- Runs ---------------------------------------------------------------------------------- */

static bool is_needed_by_runs(const struct qk_graph *graph, const struct qk_graph_node *node)
{
    if (makes_output(graph, node))
        return true;
    for (size_t i = 0; i < node->instance->op->output_count; i++)
        if (graph->values[node->outputs[i]].is_read)
            return true;
    return false;
}

/* Finds the nodes that run, and the last readers of values. */
static void decide_runs(struct qk_graph *graph)
{
    for (uint32_t left = (uint32_t)graph->node_count; left > 0; left--) {
        const uint32_t i = left - 1;
        struct qk_graph_node *node = &graph->nodes[i];
        const struct qk_operator *op = node->instance->op;
        node->runs = is_needed_by_runs(graph, node);
        for (size_t k = 0; k < op->output_count && !node->runs; k++)
            if (graph->values[node->outputs[k]].kind == QK_PLACEMENT_SCRATCH)
                graph->values[node->outputs[k]].kind = QK_PLACEMENT_NONE;
        for (size_t k = 0; k < op->input_count && node->runs; k++) {
            if (node->inputs[k] == QK_VALUE_NONE || !is_read_by_runs(op, k))
                continue;
            struct qk_graph_value *value = &graph->values[node->inputs[k]];
            value->is_read = value->kind != QK_PLACEMENT_PLANNED;
            value->last = value->last < i ? i : value->last;
        }
    }
}

void qk_graph_decide(struct qk_graph *graph)
{
    decide_plans(graph);
    decide_runs(graph);
}
