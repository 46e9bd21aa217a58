/* Makes a graph of a call: checks its values, orders its nodes, prepares and packs them. */
#include "kernels/graph.h"

#include <stdio.h>
#include <string.h>

#include "kernels/operators/operator.h"

/* Longer names of nodes are cut off, in the graph and in error texts. */
#define NAME_BYTES_MAX 64

#define NOWHERE UINT32_MAX

/* ---- Errors -------------------------------------------------------------------------------- */

struct text {
    char bytes[160];
};

static const char *print_node(const char *name, uint32_t index, const struct qk_operator *op,
                              struct text *text)
{
    if (name && name[0])
        snprintf(text->bytes, sizeof(text->bytes), "node %u (\"%.*s\", %s)", index, NAME_BYTES_MAX,
                 name, op->name);
    else
        snprintf(text->bytes, sizeof(text->bytes), "node %u (%s)", index, op->name);
    return text->bytes;
}

size_t qk_node_bytes(const struct qk_operator *op)
{
    return offsetof(struct qk_node, call.inputs) + op->input_count * sizeof(struct qk_tensor);
}

uint32_t qk_graph_node_number(const struct qk_node *node, uint32_t index)
{
    return node->number == 0 ? index : node->number - 1;
}

enum qk_status qk_graph_fail_in(const struct qk_graph_node *node, const struct qk_operator *op,
                                const struct qk_error *cause, struct qk_error *error)
{
    struct text text;
    if (!node->name)
        return qk_fail(error, cause->status, "%s", cause->text);
    qk_fail(error, cause->status, "%s: %s", print_node(node->name, node->number, op, &text),
            cause->text);
    error->node = node->number;
    error->is_of_rank = cause->is_of_rank;
    return cause->status;
}

/* ---- A graph while it is made -------------------------------------------------------------- */

struct draft {
    const struct qk_graph_call *call;
    struct qk_memory memory;
    struct qk_error *error;
    struct qk_graph *graph;
    /* Until the nodes are in order, qk_graph_value.maker is an index in the call. positions[index]
     * is that node's index in the graph, or NOWHERE while it has none. */
    uint32_t positions[QK_GRAPH_NODE_COUNT_MAX];
};

static const char *print_call_node(const struct draft *draft, uint32_t index, struct text *text)
{
    const struct qk_node *node = &draft->call->nodes[index];
    return print_node(node->name, qk_graph_node_number(node, index), node->call.op, text);
}

static const char *print_value(const struct draft *draft, uint32_t value, struct text *text)
{
    const struct qk_graph_call *call = draft->call;
    const bool named = call->value_names && value < call->value_count;
    const char *name = named ? call->value_names[value] : "";
    if (name[0])
        snprintf(text->bytes, sizeof(text->bytes), "value %u (\"%.*s\")", value, NAME_BYTES_MAX,
                 name);
    else
        snprintf(text->bytes, sizeof(text->bytes), "value %u", value);
    return text->bytes;
}

/* Returns the index in the call of the node that makes a value. */
static uint32_t maker_of(const struct draft *draft, uint32_t value)
{
    const uint32_t maker = draft->graph->values[value].maker;
    return draft->graph->nodes ? draft->graph->nodes[maker].index : maker;
}

/* Prints where a value comes from. */
static const char *print_source(const struct draft *draft, uint32_t index, struct text *text)
{
    struct text node;
    if (index >= draft->call->value_count)
        snprintf(text->bytes, sizeof(text->bytes), "there are %zu", draft->call->value_count);
    else if (draft->graph->values[index].kind == QK_PLACEMENT_NONE)
        snprintf(text->bytes, sizeof(text->bytes), "nothing makes it");
    else if (draft->graph->values[index].kind == QK_PLACEMENT_INPUT)
        snprintf(text->bytes, sizeof(text->bytes), "it is input %u",
                 draft->graph->values[index].port);
    else
        snprintf(text->bytes, sizeof(text->bytes), "%s makes it",
                 print_call_node(draft, maker_of(draft, index), &node));
    return text->bytes;
}

/* Fails with "<field>: expected <what>, got value 5 ("sum"): nothing makes it". */
static enum qk_status fail_value(const struct draft *draft, const char *field, const char *expected,
                                 uint32_t value)
{
    struct text name;
    struct text source;
    return qk_fail(draft->error, QK_INVALID, "%s: expected %s, got %s: %s", field, expected,
                   print_value(draft, value, &name), print_source(draft, value, &source));
}

static enum qk_status fail_port(const struct draft *draft, const char *port, size_t index,
                                const char *expected, uint32_t value)
{
    char field[32];
    snprintf(field, sizeof(field), "%s %zu", port, index);
    return fail_value(draft, field, expected, value);
}

static enum qk_status fail_field(const struct draft *draft, uint32_t node, const char *name,
                                 const char *expected, uint32_t value)
{
    char field[256];
    struct text text;
    snprintf(field, sizeof(field), "%s: %s", print_call_node(draft, node, &text), name);
    fail_value(draft, field, expected, value);
    draft->error->node = qk_graph_node_number(&draft->call->nodes[node], node);
    return QK_INVALID;
}

/* Allocates memory that the graph keeps. Returns NULL, with the error set, if there is none. */
static void *take(struct draft *draft, size_t bytes)
{
    void *made = draft->memory.alloc(draft->memory.context, bytes);
    if (!made)
        qk_fail(draft->error, QK_NO_MEMORY, "out of memory for a graph of %zu nodes",
                draft->call->node_count);
    else if (draft->graph)
        draft->graph->packed_bytes += bytes;
    return made;
}

/* ---- Values -------------------------------------------------------------------------------- */

static enum qk_status check_count(const char *what, size_t count, size_t least, size_t most,
                                  struct qk_error *error)
{
    if (count >= least && count <= most)
        return QK_OK;
    return qk_fail(error, QK_INVALID, "%s: expected %zu to %zu in a graph, got %zu", what, least,
                   most, count);
}

static enum qk_status check_counts(const struct qk_graph_call *call, struct qk_error *error)
{
    enum qk_status status =
        check_count("nodes", call->node_count, 1, QK_GRAPH_NODE_COUNT_MAX, error);
    if (status == QK_OK)
        status = check_count("values", call->value_count, 1, QK_GRAPH_VALUE_COUNT_MAX, error);
    if (status == QK_OK)
        status = check_count("inputs", call->input_count, 0, QK_GRAPH_PORT_COUNT_MAX, error);
    if (status == QK_OK)
        status = check_count("outputs", call->output_count, 1, QK_GRAPH_PORT_COUNT_MAX, error);
    return status;
}

/* Allocates the table of values: those of the call and, behind them, one for each output of a node
 * that the call does not want. */
static enum qk_status take_values(struct draft *draft)
{
    const struct qk_graph_call *call = draft->call;
    struct qk_graph *graph = draft->graph;
    size_t count = call->value_count;
    for (size_t i = 0; i < call->node_count; i++)
        for (size_t k = 0; k < call->nodes[i].call.op->output_count; k++)
            if (call->nodes[i].outputs[k] == QK_VALUE_NONE)
                count++;
    graph->values = take(draft, count * sizeof(*graph->values));
    if (!graph->values)
        return QK_NO_MEMORY;
    memset(graph->values, 0, count * sizeof(*graph->values));
    graph->value_count = call->value_count;
    return QK_OK;
}

/* Returns the value if no node and no input makes it yet. Returns NULL if the number is too large
 * or the value is made already. */
static struct qk_graph_value *find_unmade(const struct draft *draft, uint32_t value)
{
    if (value >= draft->call->value_count)
        return NULL;
    struct qk_graph_value *found = &draft->graph->values[value];
    return found->kind == QK_PLACEMENT_NONE ? found : NULL;
}

static enum qk_status add_inputs(struct draft *draft)
{
    const struct qk_graph_call *call = draft->call;
    for (uint32_t i = 0; i < call->input_count; i++) {
        const struct qk_graph_input *input = &call->inputs[i];
        struct qk_graph_value *value = find_unmade(draft, input->value);
        if (!value)
            return fail_port(draft, "input", i, "a value of its own", input->value);
        if (input->type <= QK_NONE || input->type >= QK_TYPE_COUNT)
            return qk_fail(draft->error, QK_INVALID, "input %u: expected a datatype, got none", i);
        *value = (struct qk_graph_value){.kind = QK_PLACEMENT_INPUT,
                                         .type = input->type,
                                         .port = i,
                                         .maker = NOWHERE,
                                         .planned = QK_VALUE_NONE};
    }
    return QK_OK;
}

static enum qk_status add_made(struct draft *draft)
{
    const struct qk_graph_call *call = draft->call;
    struct qk_graph *graph = draft->graph;
    for (uint32_t i = 0; i < call->node_count; i++) {
        const struct qk_node *node = &call->nodes[i];
        for (uint32_t k = 0; k < node->call.op->output_count; k++) {
            const uint32_t wanted = node->outputs[k];
            struct qk_graph_value *value = wanted == QK_VALUE_NONE
                                               ? &graph->values[graph->value_count++]
                                               : find_unmade(draft, wanted);
            if (!value)
                return fail_field(draft, i, node->call.op->outputs[k].name,
                                  "a value that nothing else makes", wanted);
            *value = (struct qk_graph_value){
                .kind = QK_PLACEMENT_SCRATCH, .maker = i, .output = k, .planned = QK_VALUE_NONE};
        }
    }
    return QK_OK;
}

static enum qk_status add_outputs(struct draft *draft)
{
    const struct qk_graph_call *call = draft->call;
    struct qk_graph *graph = draft->graph;
    for (uint32_t i = 0; i < call->output_count; i++) {
        const uint32_t index = call->outputs[i];
        struct qk_graph_value *value = index < call->value_count ? &graph->values[index] : NULL;
        if (value && value->kind == QK_PLACEMENT_OUTPUT)
            return qk_fail(draft->error, QK_INVALID,
                           "output %u: expected a value that is no other output, got that of "
                           "output %u",
                           i, value->port);
        if (!value || value->kind != QK_PLACEMENT_SCRATCH)
            return fail_port(draft, "output", i, "a value that a node makes", index);
        value->kind = QK_PLACEMENT_OUTPUT;
        value->port = i;
        graph->outputs[i] = index;
    }
    graph->input_count = call->input_count;
    graph->output_count = call->output_count;
    return QK_OK;
}

/* Returns the value that a node's input reads, or QK_VALUE_NONE if the input is constant or absent.
 */
static uint32_t value_of(const struct qk_node *node, size_t input)
{
    return node->call.variable >> input & 1 ? node->inputs[input] : QK_VALUE_NONE;
}

static enum qk_status check_reads(const struct draft *draft)
{
    const struct qk_graph_call *call = draft->call;
    for (uint32_t i = 0; i < call->node_count; i++) {
        const struct qk_operator *op = call->nodes[i].call.op;
        for (size_t k = 0; k < op->input_count; k++) {
            const uint32_t value = value_of(&call->nodes[i], k);
            if (value != QK_VALUE_NONE && (value >= call->value_count ||
                                           draft->graph->values[value].kind == QK_PLACEMENT_NONE))
                return fail_field(draft, i, op->inputs[k].name,
                                  "a value that is an input, or that a node makes", value);
        }
    }
    return QK_OK;
}

/* ---- Order --------------------------------------------------------------------------------- */

/* Returns the first input of a node whose value comes from a node without a position. Returns the
 * number of inputs if there is none: the node is ready. */
static size_t find_unready(const struct draft *draft, uint32_t index)
{
    const struct qk_node *node = &draft->call->nodes[index];
    size_t input = 0;
    for (; input < node->call.op->input_count; input++) {
        const uint32_t value = value_of(node, input);
        const uint32_t maker = value == QK_VALUE_NONE ? NOWHERE : draft->graph->values[value].maker;
        if (maker != NOWHERE && draft->positions[maker] == NOWHERE)
            break;
    }
    return input;
}

static uint32_t find_unready_maker(const struct draft *draft, uint32_t node)
{
    const uint32_t value = draft->call->nodes[node].inputs[find_unready(draft, node)];
    return draft->graph->values[value].maker;
}

/* Fails with the names of the nodes of a cycle, as many as the text holds. Every node without a
 * position waits for another one, so following these links node_count times ends inside a cycle. */
static enum qk_status fail_cycle(const struct draft *draft)
{
    uint32_t first = 0;
    while (draft->positions[first] != NOWHERE)
        first++;
    for (size_t i = 0; i < draft->call->node_count; i++)
        first = find_unready_maker(draft, first);
    const struct qk_operator *op = draft->call->nodes[first].call.op;
    struct text text;
    char chain[256];
    size_t used = 0;
    uint32_t node = first;
    do {
        node = find_unready_maker(draft, node);
        used += (size_t)snprintf(chain + used, sizeof(chain) - used, "%s%s",
                                 used ? ", which reads " : "", print_call_node(draft, node, &text));
    } while (node != first && used < sizeof(chain));
    return qk_fail(draft->error, QK_INVALID, "%s: %s: expected no cycle, got one: it reads %s",
                   print_call_node(draft, first, &text),
                   op->inputs[find_unready(draft, first)].name, chain);
}

/* Gives each node a position behind the nodes that it reads. Nodes that are in order keep it. Each
 * pass places at least one node, or there is a cycle. */
static enum qk_status order(struct draft *draft)
{
    const uint32_t count = (uint32_t)draft->call->node_count;
    uint32_t placed = 0;
    uint32_t before;
    for (uint32_t i = 0; i < count; i++)
        draft->positions[i] = NOWHERE;
    do {
        before = placed;
        for (uint32_t i = 0; i < count; i++)
            if (draft->positions[i] == NOWHERE &&
                find_unready(draft, i) == draft->call->nodes[i].call.op->input_count)
                draft->positions[i] = placed++;
    } while (placed > before && placed < count);
    return placed == count ? QK_OK : fail_cycle(draft);
}

/* ---- Nodes --------------------------------------------------------------------------------- */

static void add_node(struct draft *draft, uint32_t index, char *name)
{
    const struct qk_node *node = &draft->call->nodes[index];
    struct qk_graph *graph = draft->graph;
    struct qk_graph_node *made = &graph->nodes[draft->positions[index]];
    *made = (struct qk_graph_node){
        .name = name, .index = index, .number = qk_graph_node_number(node, index)};
    for (size_t i = 0; i < QK_INPUT_COUNT_MAX; i++)
        made->inputs[i] = i < node->call.op->input_count ? value_of(node, i) : QK_VALUE_NONE;
    for (size_t i = 0; i < QK_OUTPUT_COUNT_MAX; i++)
        made->outputs[i] = QK_VALUE_NONE;
}

/* Rewrites the links between values and nodes from indexes in the call to positions in the graph.
 */
static void link_values(struct draft *draft)
{
    struct qk_graph *graph = draft->graph;
    for (uint32_t i = 0; i < graph->value_count; i++) {
        struct qk_graph_value *value = &graph->values[i];
        if (value->kind == QK_PLACEMENT_NONE || value->kind == QK_PLACEMENT_INPUT)
            continue;
        value->maker = value->last = draft->positions[value->maker];
        graph->nodes[value->maker].outputs[value->output] = i;
    }
}

/* Returns how many bytes the graph keeps for a node's name. */
static size_t name_bytes(const struct qk_node *node)
{
    return node->name ? strnlen(node->name, NAME_BYTES_MAX) + 1 : 0;
}

/* Allocates the nodes and links them with the values. Nodes are in order, so a value's last reader
 * is never before its maker. */
static enum qk_status take_nodes(struct draft *draft)
{
    const struct qk_graph_call *call = draft->call;
    struct qk_graph *graph = draft->graph;
    size_t all_bytes = 1; /* never 0, even if no node has a name */
    for (size_t i = 0; i < call->node_count; i++)
        all_bytes += name_bytes(&call->nodes[i]);
    graph->node_count = call->node_count;
    graph->nodes = take(draft, graph->node_count * sizeof(*graph->nodes));
    char *names = graph->nodes ? take(draft, all_bytes) : NULL;
    if (!names)
        return QK_NO_MEMORY;
    for (uint32_t i = 0; i < call->node_count; i++) {
        const size_t bytes = name_bytes(&call->nodes[i]);
        add_node(draft, i, bytes > 0 ? names : NULL);
        if (bytes == 0)
            continue;
        memcpy(names, call->nodes[i].name, bytes - 1);
        names[bytes - 1] = '\0';
        names += bytes;
    }
    link_values(draft);
    return QK_OK;
}

static uint32_t find_unplanned_of(const struct qk_graph *graph, uint32_t node)
{
    return qk_graph_find_unplanned(graph, &graph->nodes[node], graph->nodes[node].instance->op);
}

/* Returns the value that keeps another value from following from shapes alone: an input of the
 * graph, or what a node makes that cannot run while a plan is made. */
static uint32_t find_cause(const struct qk_graph *graph, uint32_t value)
{
    uint32_t cause = value;
    while (cause != QK_VALUE_NONE) {
        value = cause;
        cause = graph->values[value].kind == QK_PLACEMENT_INPUT
                    ? QK_VALUE_NONE
                    : find_unplanned_of(graph, graph->values[value].maker);
    }
    return value;
}

/* Refuses a planned input that depends on more than shapes. */
static enum qk_status check_planned(const struct draft *draft, const struct qk_graph_node *node,
                                    const struct qk_operator *op)
{
    for (size_t i = 0; i < op->input_count; i++) {
        const uint32_t value = node->inputs[i];
        struct text text[4];
        if (!(op->planned_inputs >> i & 1) || value == QK_VALUE_NONE ||
            draft->graph->values[value].from_shapes)
            continue;
        const uint32_t cause = find_cause(draft->graph, value);
        return qk_fail(draft->error, QK_INVALID,
                       "%s: %s: expected a constant, or a value that follows from shapes alone, "
                       "got %s%s%s: %s",
                       print_call_node(draft, node->index, &text[0]), op->inputs[i].name,
                       print_value(draft, value, &text[1]),
                       cause == value ? "" : ", which depends on ",
                       cause == value ? "" : print_value(draft, cause, &text[2]),
                       print_source(draft, cause, &text[3]));
    }
    return QK_OK;
}

static enum qk_status prepare_node(struct draft *draft, const struct qk_kernels *kernels,
                                   struct qk_graph_node *node)
{
    struct qk_graph *graph = draft->graph;
    struct qk_call call = draft->call->nodes[node->index].call;
    struct qk_error cause;
    for (size_t i = 0; i < call.op->input_count; i++)
        if (call.variable >> i & 1)
            call.inputs[i].type =
                node->inputs[i] == QK_VALUE_NONE ? QK_NONE : graph->values[node->inputs[i]].type;
    if (check_planned(draft, node, call.op) != QK_OK)
        return QK_INVALID;
    const enum qk_status status =
        qk_prepare(kernels, &call, draft->memory, &node->instance, &cause);
    if (status != QK_OK)
        return qk_graph_fail_in(node, call.op, &cause, draft->error);
    /* A plan may be made before packing is done, so an operator that packs cannot run then. */
    const bool from_shapes = node->instance->pack_unit_count == 0 &&
                             qk_graph_find_unplanned(graph, node, call.op) == QK_VALUE_NONE;
    for (size_t i = 0; i < call.op->output_count; i++) {
        graph->values[node->outputs[i]].type = node->instance->output_types[i];
        graph->values[node->outputs[i]].from_shapes = from_shapes;
    }
    graph->packed_bytes += node->instance->packed_bytes;
    return QK_OK;
}

static void sum_units(struct qk_graph *graph)
{
    uint64_t cost_ns = 0;
    for (size_t i = 0; i < graph->node_count; i++) {
        struct qk_graph_node *node = &graph->nodes[i];
        node->pack_begin = graph->pack_unit_count;
        graph->pack_unit_count += node->instance->pack_unit_count;
        cost_ns += node->instance->pack_unit_count * node->instance->pack_unit_cost_ns;
    }
    if (graph->pack_unit_count > 0)
        graph->pack_unit_cost_ns = cost_ns / graph->pack_unit_count;
}

enum qk_status qk_graph_prepare(const struct qk_kernels *kernels, const struct qk_graph_call *call,
                                struct qk_memory memory, struct qk_graph **graph,
                                struct qk_error *error)
{
    struct draft draft = {.call = call, .memory = memory, .error = error};
    enum qk_status status = check_counts(call, error);
    if (status != QK_OK)
        return status;
    struct qk_graph *made = take(&draft, sizeof(*made));
    if (!made)
        return QK_NO_MEMORY;
    *made = (struct qk_graph){.packed_bytes = sizeof(*made)};
    draft.graph = made;
    status = take_values(&draft);
    if (status == QK_OK)
        status = add_inputs(&draft);
    if (status == QK_OK)
        status = add_made(&draft);
    if (status == QK_OK)
        status = add_outputs(&draft);
    if (status == QK_OK)
        status = check_reads(&draft);
    if (status == QK_OK)
        status = order(&draft);
    if (status == QK_OK)
        status = take_nodes(&draft);
    for (size_t i = 0; i < made->node_count && status == QK_OK; i++)
        status = prepare_node(&draft, kernels, &made->nodes[i]);
    if (status != QK_OK)
        return status;
    qk_graph_decide(made);
    for (size_t i = 0; i < made->node_count; i++)
        made->plans_tables |= made->nodes[i].instance->op->plans_tables;
    for (size_t i = 0; i < made->output_count; i++)
        made->output_types[i] = made->values[made->outputs[i]].type;
    sum_units(made);
    *graph = made;
    return QK_OK;
}

void qk_graph_pack(struct qk_graph *graph, size_t begin, size_t end)
{
    for (size_t i = 0; i < graph->node_count && begin < end; i++) {
        struct qk_graph_node *node = &graph->nodes[i];
        const size_t node_end = node->pack_begin + node->instance->pack_unit_count;
        const size_t until = end < node_end ? end : node_end;
        if (begin >= until)
            continue;
        qk_pack(node->instance, begin - node->pack_begin, until - node->pack_begin);
        begin = until;
    }
}

void qk_graph_pack_ranges(const struct qk_graph *graph, struct qk_pack_range *ranges)
{
    for (size_t i = 0; i < graph->node_count; i++) {
        const struct qk_graph_node *node = &graph->nodes[i];
        ranges[node->index].begin = node->pack_begin;
        ranges[node->index].end = node->pack_begin + node->instance->pack_unit_count;
    }
}

/* ---- A graph of one node ------------------------------------------------------------------- */

/* All that a graph of one node needs, as one allocation. */
struct single {
    struct qk_graph graph;
    struct qk_graph_node node;
};

enum qk_status qk_graph_of(struct qk_instance *instance, struct qk_memory memory,
                           struct qk_graph **graph, struct qk_error *error)
{
    const struct qk_operator *op = instance->op;
    struct single *made = memory.alloc(memory.context, sizeof(*made));
    if (!made)
        return qk_fail(error, QK_NO_MEMORY, "out of memory for a graph");
    made->graph = (struct qk_graph){
        .node_count = 1,
        .input_count = op->input_count,
        .output_count = op->output_count,
        .packed_bytes = instance->packed_bytes + sizeof(*made),
        .pack_unit_count = instance->pack_unit_count,
        .pack_unit_cost_ns = instance->pack_unit_cost_ns,
        .plans_tables = op->plans_tables,
        .nodes = &made->node,
    };
    made->node.instance = instance;
    made->node.name = NULL;
    made->node.number = 0;
    made->node.pack_begin = 0;
    for (size_t i = 0; i < op->output_count; i++)
        made->graph.output_types[i] = instance->output_types[i];
    *graph = &made->graph;
    return QK_OK;
}
