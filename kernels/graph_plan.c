/* Plans a graph for certain shapes: plans its nodes, and places intermediate values in the scratch.
 * Runs the nodes. */
#include <string.h>

#include "kernels/graph.h"

/* The size of the widest vectors, and of a cache line. */
#define ALIGNMENT ((size_t)64)

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
                   "expected at most %zu elements in all values on which shapes depend, got more",
                   QK_PLANNED_ALL_MAX);
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

/* ---- Where values lie ---------------------------------------------------------------------- */

/* Where a value lies. An alias lies where its root does: it has the same bytes. All other values
 * are their own roots. */
struct spot {
    uint32_t root;
    enum qk_placement_kind kind; /* of a root */
    uint32_t port;               /* of a root that is an input or an output of the graph */
    uint32_t maker;
    uint32_t
        last; /* the last node that makes or reads the value; of a root: or one of its aliases */
};

static struct spot *take_spots(const struct qk_graph *graph, struct qk_memory memory)
{
    struct spot *spots = memory.alloc(memory.context, graph->value_count * sizeof(*spots));
    for (uint32_t i = 0; spots && i < graph->value_count; i++) {
        const struct qk_graph_value *value = &graph->values[i];
        spots[i] = (struct spot){i, value->kind, value->port, value->maker, value->last};
    }
    return spots;
}

/* Puts an alias and its source at one place. Returns false if they cannot share one, because both
 * are the caller's: the node then copies. */
static bool share_place(struct spot *spots, uint32_t source, uint32_t alias)
{
    struct spot *root = &spots[spots[source].root];
    if (spots[alias].kind == QK_PLACEMENT_OUTPUT) {
        if (root->kind != QK_PLACEMENT_SCRATCH)
            return false;
        root->kind = QK_PLACEMENT_OUTPUT;
        root->port = spots[alias].port;
    }
    if (spots[alias].last > root->last)
        root->last = spots[alias].last;
    spots[alias].root = spots[source].root;
    return true;
}

/* Finds the aliases. Their nodes have nothing to do. */
static void find_aliases(const struct qk_graph *graph, struct qk_node_plan *plans,
                         struct spot *spots)
{
    for (size_t i = 0; i < graph->node_count; i++) {
        const struct qk_graph_node *node = &graph->nodes[i];
        if (node->runs && plans[i].plan.is_alias && node->inputs[0] != QK_VALUE_NONE &&
            share_place(spots, node->inputs[0], node->outputs[0]))
            plans[i].plan.unit_count = 0;
    }
}

/* ---- The scratch --------------------------------------------------------------------------- */

/* The bytes of a root in the scratch. Roots that are alive at the same time never share a byte. A
 * node's inputs and outputs are alive at the same time. */
struct room {
    const struct spot *spot;
    size_t bytes;
    double weight; /* heavier rooms are placed first */
    size_t begin;
    size_t best_begin; /* in the smallest scratch so far */
    struct room *next; /* the placed room that begins next */
};

struct rooms {
    struct room *list;
    size_t count;
    size_t node_count;
};

/* Sorts by weight. Of two rooms of the same weight, the value with the lower number comes first. */
static void sort_by_weight(const struct rooms *rooms)
{
    struct room *list = rooms->list;
    for (size_t i = 1; i < rooms->count; i++) {
        const struct room room = list[i];
        size_t at = i;
        for (; at > 0 && (list[at - 1].weight < room.weight ||
                          (list[at - 1].weight == room.weight && list[at - 1].spot > room.spot));
             at--)
            list[at] = list[at - 1];
        list[at] = room;
    }
}

static bool live_together(const struct spot *a, const struct spot *b)
{
    return a->maker <= b->last && b->maker <= a->last;
}

/* Puts a room into the lowest gap that is large enough. Returns false if its end would overflow. */
static bool place(struct room *room, struct room **first, size_t *scratch_bytes)
{
    size_t end;
    room->begin = 0;
    for (const struct room *other = *first; other; other = other->next) {
        if (!live_together(other->spot, room->spot))
            continue;
        if (other->begin >= room->begin && other->begin - room->begin >= room->bytes)
            break;
        if (other->begin + other->bytes > room->begin)
            room->begin = other->begin + other->bytes;
    }
    if (__builtin_add_overflow(room->begin, room->bytes, &end))
        return false;
    if (end > *scratch_bytes)
        *scratch_bytes = end;
    struct room **link = first;
    while (*link && (*link)->begin <= room->begin)
        link = &(*link)->next;
    room->next = *link;
    *link = room;
    return true;
}

/* Places all rooms in the order of their weights. Keeps the result if the scratch is smaller than
 * *best_bytes. */
static void try_weights(const struct rooms *rooms, size_t *best_bytes)
{
    struct room *first = NULL;
    size_t bytes = 0;
    bool fits = true;
    sort_by_weight(rooms);
    for (size_t i = 0; i < rooms->count && fits; i++)
        fits = place(&rooms->list[i], &first, &bytes);
    if (!fits || bytes >= *best_bytes)
        return;
    for (size_t i = 0; i < rooms->count; i++)
        rooms->list[i].best_begin = rooms->list[i].begin;
    *best_bytes = bytes;
}

/* Returns the most bytes that are alive at one node. No scratch can be smaller. */
static size_t most_alive(const struct rooms *rooms)
{
    size_t most = 0;
    for (uint32_t node = 0; node < rooms->node_count; node++) {
        size_t alive = 0;
        for (size_t i = 0; i < rooms->count; i++) {
            const struct room *room = &rooms->list[i];
            if (room->spot->maker <= node && node <= room->spot->last)
                alive += room->bytes;
        }
        most = alive > most ? alive : most;
    }
    return most;
}

/* Places all rooms, and returns the size of the scratch, or SIZE_MAX if it would be larger. The
 * largest rooms come first, which is nearly always the best order. If it leaves gaps, the rooms
 * that are large for a long time come first, and the smaller scratch counts. */
static size_t place_rooms(const struct rooms *rooms)
{
    size_t best_bytes = SIZE_MAX;
    for (size_t i = 0; i < rooms->count; i++)
        rooms->list[i].weight = (double)rooms->list[i].bytes;
    try_weights(rooms, &best_bytes);
    if (best_bytes == SIZE_MAX || best_bytes == most_alive(rooms))
        return best_bytes;
    for (size_t i = 0; i < rooms->count; i++) {
        struct room *room = &rooms->list[i];
        room->weight *= room->spot->last - room->spot->maker + 1;
    }
    try_weights(rooms, &best_bytes);
    return best_bytes;
}

static bool is_in_scratch(const struct spot *spots, uint32_t value)
{
    return spots[value].root == value && spots[value].kind == QK_PLACEMENT_SCRATCH;
}

static size_t count_rooms(const struct qk_graph *graph, const struct spot *spots)
{
    size_t count = 0;
    for (uint32_t i = 0; i < graph->value_count; i++)
        count += is_in_scratch(spots, i);
    return count;
}

static struct qk_placement *placement_by_maker(const struct qk_graph *graph,
                                               const struct qk_node_plan *plans, uint32_t value)
{
    return &plans[graph->values[value].maker].outputs[graph->values[value].output];
}

/* Lists the roots that lie in the scratch. Returns false if the size of one would overflow. */
static bool list_rooms(const struct qk_graph *graph, const struct spot *spots,
                       const struct qk_node_plan *plans, struct room *rooms)
{
    for (uint32_t i = 0; i < graph->value_count; i++) {
        const struct qk_graph_value *value = &graph->values[i];
        if (!is_in_scratch(spots, i))
            continue;
        const size_t bytes = plans[value->maker].plan.output_bytes[value->output];
        *rooms = (struct room){.spot = &spots[i]};
        if (__builtin_add_overflow(bytes, ALIGNMENT - 1, &rooms->bytes))
            return false;
        rooms->bytes -= rooms->bytes % ALIGNMENT;
        rooms++;
    }
    return true;
}

/* Places each root that lies in the scratch. The plan of the node that makes it keeps the place. */
static enum qk_status place_all(const struct qk_graph *graph, const struct spot *spots,
                                struct qk_memory memory, struct qk_node_plan *plans,
                                size_t *scratch_bytes, struct qk_error *error)
{
    struct rooms rooms = {.count = count_rooms(graph, spots), .node_count = graph->node_count};
    *scratch_bytes = 0;
    if (rooms.count == 0)
        return QK_OK;
    rooms.list = memory.alloc(memory.context, rooms.count * sizeof(*rooms.list));
    if (!rooms.list)
        return qk_fail(error, QK_NO_MEMORY, "out of memory for a plan of %zu values", rooms.count);
    *scratch_bytes = list_rooms(graph, spots, plans, rooms.list) ? place_rooms(&rooms) : SIZE_MAX;
    if (*scratch_bytes == SIZE_MAX)
        return qk_fail(error, QK_INVALID,
                       "the graph: expected intermediate tensors of less than %zu bytes, got more",
                       SIZE_MAX);
    for (size_t i = 0; i < rooms.count; i++)
        placement_by_maker(graph, plans, (uint32_t)(rooms.list[i].spot - spots))->at =
            rooms.list[i].best_begin;
    return QK_OK;
}

static struct qk_placement placement_of(const struct qk_graph *graph, const struct spot *spots,
                                        const struct qk_node_plan *plans, uint32_t index)
{
    if (index == QK_VALUE_NONE)
        return (struct qk_placement){.kind = QK_PLACEMENT_NONE};
    const uint32_t root = spots[index].root;
    const bool is_placed = spots[root].kind == QK_PLACEMENT_SCRATCH;
    return (struct qk_placement){
        .kind = spots[root].kind,
        .at = is_placed ? placement_by_maker(graph, plans, root)->at : spots[root].port,
    };
}

/* A root's placement is filled in before its aliases', because its node comes first. */
static void fill_placements(const struct qk_graph *graph, const struct spot *spots,
                            struct qk_node_plan *plans)
{
    for (size_t i = 0; i < graph->node_count; i++) {
        const struct qk_graph_node *node = &graph->nodes[i];
        const struct qk_operator *op = node->instance->op;
        for (size_t k = 0; k < op->input_count; k++)
            plans[i].inputs[k] = placement_of(graph, spots, plans, node->inputs[k]);
        for (size_t k = 0; k < op->output_count; k++)
            plans[i].outputs[k] = placement_of(graph, spots, plans, node->outputs[k]);
    }
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
    struct spot *spots = status == QK_OK ? take_spots(graph, memory) : NULL;
    if (status == QK_OK && !spots)
        return no_memory(&planner);
    if (status == QK_OK)
        find_aliases(graph, plans, spots);
    if (status == QK_OK)
        status = place_all(graph, spots, memory, plans, &plan->scratch_bytes, error);
    if (status == QK_OK)
        status = describe_outputs(graph, plans, memory, plan, error);
    if (status != QK_OK)
        return status;
    fill_placements(graph, spots, plans);
    plan->kernel = join_kernels(graph, plans, memory);
    return plan->kernel ? QK_OK : qk_fail(error, QK_NO_MEMORY, "out of memory for a plan's name");
}

/* ---- For people ---------------------------------------------------------------------------- */

static enum qk_node_role role_of(const struct qk_graph_node *node, const struct qk_plan *plan)
{
    if (!node->runs)
        return node->computes ? QK_NODE_IN_PLAN : QK_NODE_UNUSED;
    return plan && plan->unit_count == 0 && plan->output_bytes[0] > 0 ? QK_NODE_MOVES_NOTHING
                                                                      : QK_NODE_RUNS;
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
        if (placement->kind == QK_PLACEMENT_NONE)
            from[i] = NULL;
        else if (placement->kind == QK_PLACEMENT_INPUT)
            from[i] = inputs[placement->at];
        else if (placement->kind == QK_PLACEMENT_OUTPUT)
            from[i] = outputs[placement->at];
        else if (placement->kind == QK_PLACEMENT_PLANNED)
            from[i] = plan->planned[placement->at];
        else
            from[i] = (const char *)scratch + placement->at;
    }
    for (size_t i = 0; i < op->output_count; i++) {
        const struct qk_placement *placement = &run->outputs[i];
        to[i] = placement->kind == QK_PLACEMENT_OUTPUT ? outputs[placement->at]
                                                       : (char *)scratch + placement->at;
    }
    qk_run(&run->plan, from, to, workspace, begin, end);
}
