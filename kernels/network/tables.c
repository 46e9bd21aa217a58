/* Tables: float functions between DequantizeLinear and QuantizeLinear of 8 bits have 256 possible
 * inputs, so they become one table. The operators themselves compute it, when the graph is loaded.
 *
 *    x UINT8 -> DequantizeLinear -> HardSigmoid -> Div by 6 -> QuantizeLinear -> y UINT8
 *    x UINT8 -> quantd.Lookup -> y UINT8
 *
 * The functions need not be a chain: x * Sigmoid(x) is a function of one code, too. */
#include <string.h>

#include "kernels/graph.h"
#include "kernels/lookup/lookup.h"
#include "kernels/network/compute.h"
#include "kernels/network/pass.h"
#include "kernels/operators/operator.h"

/* quantd.Lookup */
enum { X, TABLE };
enum { X_TYPE, RANK };

/* All tables of a graph run at most this many nodes, because a node may be computed for several
 * tables. Functions stay as they are when this is used up. */
#define COMPUTED_NODES_MAX (4 * QK_GRAPH_NODE_COUNT_MAX)

struct tables {
    struct qk_pass pass;
    uint32_t *states; /* of each node: 2 * number of the search, and one more when it is done */
    uint32_t search;
    struct step {
        uint32_t node;
        uint32_t input;         /* the next input to look at */
    } * steps;                  /* the search's way from the QuantizeLinear */
    struct qk_tensor **results; /* of each node of pass.found: its output, for all codes */
    uint32_t x;                 /* the value that all functions found depend on */
    enum qk_type x_type;
    size_t computed;
    struct qk_computing computing;
};

/* ---- Finding functions of one value -------------------------------------------------------- */

/* Returns whether a constant is one number that is known, or absent. */
static bool is_number(const struct qk_tensor *constant)
{
    return constant->type == QK_NONE || (constant->data && constant->count == 1);
}

/* Adds a DequantizeLinear. Returns false if its codes are not those of the others. */
static bool add_source(struct tables *tables, uint32_t index)
{
    const struct qk_node *node = &tables->pass.nodes[index];
    const uint32_t x = node->inputs[QK_PASS_X];
    if (tables->x != QK_VALUE_NONE && tables->x != x)
        return false;
    tables->x = x;
    tables->x_type = qk_pass_code_type(&tables->pass, node);
    tables->states[index] = 2 * tables->search + 1;
    tables->pass.found[tables->pass.found_count++] = index;
    return tables->x_type == QK_UINT8 || tables->x_type == QK_INT8;
}

/* Goes on to the node that makes the step's next input. Returns false if the search fails. */
static bool take_step(struct tables *tables, size_t *depth)
{
    const struct qk_pass *pass = &tables->pass;
    struct step *step = &tables->steps[*depth - 1];
    const struct qk_node *node = &pass->nodes[step->node];
    const uint32_t input = step->input++;
    if (!(node->call.variable >> input & 1))
        return is_number(&node->call.inputs[input]);
    const uint32_t value = qk_pass_value(pass, node, input);
    const uint32_t maker = value == QK_VALUE_NONE ? QK_NOWHERE : pass->makers[value];
    if (maker == QK_NOWHERE || tables->states[maker] == 2 * tables->search)
        return false; /* an input of the graph, or a cycle, which qk_graph_prepare refuses */
    if (tables->states[maker] == 2 * tables->search + 1)
        return true;
    if (qk_pass_is_per_tensor(pass, &pass->nodes[maker], &qk_onnx_dequantize_linear))
        return add_source(tables, maker);
    if (!pass->nodes[maker].call.op->code->is_element_by_element)
        return false;
    tables->states[maker] = 2 * tables->search;
    tables->steps[(*depth)++] = (struct step){maker, 0};
    return true;
}

/* Finds the functions that a QuantizeLinear of 8 bits reads, back to codes of one value. Returns
 * false if there are none, or if they depend on anything else. */
static bool find_functions(struct tables *tables, uint32_t last)
{
    struct qk_pass *pass = &tables->pass;
    const enum qk_type type = qk_pass_code_type(pass, &pass->nodes[last]);
    size_t depth = 1;
    if (type != QK_NONE && type != QK_UINT8 && type != QK_INT8)
        return false;
    pass->found_count = 0;
    tables->x = QK_VALUE_NONE;
    tables->search++;
    tables->states[last] = 2 * tables->search;
    tables->steps[0] = (struct step){last, 0};
    while (depth > 0) {
        const struct step *step = &tables->steps[depth - 1];
        if (step->input < pass->nodes[step->node].call.op->input_count) {
            if (!take_step(tables, &depth))
                return false;
            continue;
        }
        tables->states[step->node] = 2 * tables->search + 1;
        pass->found[pass->found_count++] = step->node;
        depth--;
    }
    /* Functions of constants have no codes. They were not folded because one makes an output.
     * qk_graph_prepare refuses a QuantizeLinear that reads its own codes. */
    return pass->found_count > 1 && tables->x != QK_VALUE_NONE && pass->makers[tables->x] != last;
}

/* ---- Tables -------------------------------------------------------------------------------- */

/* Runs a node on all codes. */
static enum qk_status run_node(struct tables *tables, uint32_t index, const struct qk_tensor *codes)
{
    const struct qk_pass *pass = &tables->pass;
    const struct qk_node *node = &pass->nodes[index];
    const struct qk_graph_node named = {.name = node->name,
                                        .number = qk_graph_node_number(node, index)};
    struct qk_tensor outputs[QK_OUTPUT_COUNT_MAX];
    struct qk_error cause;
    struct qk_call call = node->call;
    tables->results[index] = qk_pass_take(pass, 1, sizeof(struct qk_tensor));
    if (!tables->results[index])
        return qk_pass_no_memory(pass);
    for (size_t i = 0; i < call.op->input_count; i++)
        if (call.variable >> i & 1)
            call.inputs[i] = node->inputs[i] == tables->x
                                 ? *codes
                                 : *tables->results[pass->makers[node->inputs[i]]];
    call.variable = 0;
    const enum qk_status status = qk_compute(&tables->computing, &call, outputs, &cause);
    if (status != QK_OK)
        return qk_graph_fail_in(&named, call.op, &cause, pass->error);
    *tables->results[index] = outputs[0];
    return QK_OK;
}

/* Returns the largest rank of the numbers that nodes take beside an operand of any shape, such as
 * the [1] in Div: no value behind such a node has a smaller rank. */
static uint32_t least_rank(const struct qk_pass *pass)
{
    uint32_t rank = 0;
    for (size_t i = 0; i < pass->found_count; i++) {
        const struct qk_call *call = &pass->nodes[pass->found[i]].call;
        const uint32_t numbers = call->op->variable_inputs & ~call->variable;
        for (size_t k = 0; k < call->op->input_count; k++)
            if (numbers >> k & 1 && call->inputs[k].rank > rank)
                rank = call->inputs[k].rank;
    }
    return rank;
}

/* Puts the table into the place of the QuantizeLinear. */
static void replace(struct tables *tables, const struct qk_tensor *table)
{
    struct qk_pass *pass = &tables->pass;
    const uint32_t inputs[] = {[X] = tables->x, [TABLE] = QK_VALUE_NONE};
    struct qk_call call = {.op = &qk_quantd_lookup, .variable = 1U << X};
    call.version = &qk_quantd_lookup.versions[0];
    call.constants_stay = pass->nodes[pass->found[pass->found_count - 1]].call.constants_stay;
    call.attributes[X_TYPE] =
        (struct qk_attribute){.present = true, .number = qk_type_info(tables->x_type)->onnx};
    call.attributes[RANK] = (struct qk_attribute){.present = true, .number = least_rank(pass)};
    call.inputs[X] = (struct qk_tensor){.type = tables->x_type};
    call.inputs[TABLE] = *table;
    call.inputs[TABLE].rank = 1;
    call.inputs[TABLE].dims[0] = QK_LOOKUP_ENTRIES;
    qk_pass_replace(pass, &call, inputs);
}

/* Makes the functions found a table, if its codes have 8 bits. */
static enum qk_status make_table(struct tables *tables)
{
    const struct qk_pass *pass = &tables->pass;
    uint8_t *codes = qk_pass_take(pass, QK_LOOKUP_ENTRIES, 1);
    const struct qk_tensor tensor = {.type = tables->x_type,
                                     .rank = 1,
                                     .dims = {QK_LOOKUP_ENTRIES},
                                     .count = QK_LOOKUP_ENTRIES,
                                     .stored = QK_LOOKUP_ENTRIES,
                                     .data = codes};
    enum qk_status status = codes ? QK_OK : qk_pass_no_memory(pass);
    for (size_t i = 0; i < QK_LOOKUP_ENTRIES && codes; i++)
        codes[i] = (uint8_t)i;
    for (size_t i = 0; i < pass->found_count && status == QK_OK; i++)
        status = run_node(tables, pass->found[i], &tensor);
    if (status != QK_OK)
        return status;
    tables->computed += pass->found_count;
    const struct qk_tensor *table = tables->results[pass->found[pass->found_count - 1]];
    if (table->type == QK_UINT8 || table->type == QK_INT8)
        replace(tables, table);
    return QK_OK;
}

/* ---- All nodes ----------------------------------------------------------------------------- */

static enum qk_status start(struct tables *tables)
{
    struct qk_pass *pass = &tables->pass;
    const size_t count = pass->call->node_count;
    const enum qk_status status = qk_pass_start(pass);
    if (status != QK_OK)
        return status;
    tables->states = qk_pass_take(pass, count, sizeof(*tables->states));
    tables->steps = qk_pass_take(pass, count, sizeof(*tables->steps));
    tables->results = qk_pass_take(pass, count, sizeof(*tables->results));
    if (!tables->states || !tables->steps || !tables->results)
        return qk_pass_no_memory(pass);
    memset(tables->states, 0, count * sizeof(*tables->states));
    return QK_OK;
}

/* Replaces what lies before node `last`, if it is a QuantizeLinear. */
static enum qk_status replace_before(struct tables *tables, uint32_t last)
{
    struct qk_pass *pass = &tables->pass;
    if (!qk_pass_is_per_tensor(pass, &pass->nodes[last], &qk_onnx_quantize_linear) ||
        tables->computed > COMPUTED_NODES_MAX || !find_functions(tables, last))
        return QK_OK;
    return make_table(tables);
}

enum qk_status qk_graph_tabulate(const struct qk_kernels *kernels, struct qk_graph_call *call,
                                 struct qk_memory memory, const uint32_t **origins,
                                 struct qk_error *error)
{
    struct tables tables = {.pass = {.call = call, .memory = memory, .error = error}};
    enum qk_status status = start(&tables);
    if (status == QK_OK)
        status = qk_computing_init(&tables.computing, kernels, call, memory, error);
    for (uint32_t i = 0; i < call->node_count && status == QK_OK; i++)
        status = replace_before(&tables, i);
    return status == QK_OK ? qk_pass_finish(&tables.pass, origins) : status;
}
