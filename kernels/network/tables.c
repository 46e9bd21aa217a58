/* Tables: a chain of float functions between DequantizeLinear and QuantizeLinear of 8 bits has 256
 * possible inputs, so the chain becomes one table. The operators of the chain compute it, when the
 * graph is loaded.
 *
 *    x UINT8 -> DequantizeLinear -> HardSigmoid -> Div by 6 -> QuantizeLinear -> y UINT8
 *    x UINT8 -> quantd.Lookup -> y UINT8
 */
#include <string.h>

#include "kernels/graph.h"
#include "kernels/lookup/lookup.h"
#include "kernels/network/compute.h"
#include "kernels/operators/operator.h"

/* DequantizeLinear and QuantizeLinear have the same inputs. */
enum { X, SCALE, ZERO_POINT };
/* quantd.Lookup */
enum { TABLE = 1 };
enum { X_TYPE, RANK };

#define NOWHERE UINT32_MAX

struct pass {
    const struct qk_kernels *kernels;
    struct qk_graph_call *call;
    struct qk_memory memory;
    struct qk_error *error;
    struct qk_node *nodes; /* a copy of the call's */
    uint32_t *makers;      /* of each value: the node that makes it, or NOWHERE */
    /* Of each value: how many inputs read it, and one more if it leaves the graph. */
    uint32_t *reads;
    bool *is_removed; /* of each node */
    uint32_t *chain;  /* a QuantizeLinear, and the nodes before it up to a DequantizeLinear */
    size_t chain_count;
    uint64_t cost_ns;
};

static void *take(const struct pass *pass, size_t count, size_t bytes)
{
    return pass->memory.alloc(pass->memory.context, (count + 1) * bytes); /* never 0 bytes */
}

static enum qk_status no_memory(const struct pass *pass)
{
    return qk_fail(pass->error, QK_NO_MEMORY, "out of memory for tables of a graph");
}

/* ---- The graph ----------------------------------------------------------------------------- */

/* Returns the value that an input reads. Returns QK_VALUE_NONE if it reads none, or one that the
 * call does not have, which qk_graph_prepare refuses. */
static uint32_t value_of(const struct pass *pass, const struct qk_node *node, size_t input)
{
    const bool reads = node->call.variable >> input & 1;
    return reads && node->inputs[input] < pass->call->value_count ? node->inputs[input]
                                                                  : QK_VALUE_NONE;
}

static void list_values(struct pass *pass)
{
    const struct qk_graph_call *call = pass->call;
    for (size_t i = 0; i < call->value_count; i++) {
        pass->makers[i] = NOWHERE;
        pass->reads[i] = 0;
    }
    for (size_t i = 0; i < call->output_count; i++)
        if (call->outputs[i] < call->value_count)
            pass->reads[call->outputs[i]]++;
    for (uint32_t i = 0; i < call->node_count; i++) {
        const struct qk_node *node = &call->nodes[i];
        pass->is_removed[i] = false;
        for (size_t k = 0; k < node->call.op->input_count; k++)
            if (value_of(pass, node, k) != QK_VALUE_NONE)
                pass->reads[node->inputs[k]]++;
        for (size_t k = 0; k < node->call.op->output_count; k++)
            if (node->outputs[k] < call->value_count)
                pass->makers[node->outputs[k]] = i;
    }
}

static enum qk_status start(struct pass *pass)
{
    const struct qk_graph_call *call = pass->call;
    pass->makers = take(pass, call->value_count, sizeof(*pass->makers));
    pass->reads = take(pass, call->value_count, sizeof(*pass->reads));
    pass->is_removed = take(pass, call->node_count, sizeof(*pass->is_removed));
    pass->chain = take(pass, call->node_count, sizeof(*pass->chain));
    pass->nodes = take(pass, call->node_count, sizeof(*pass->nodes));
    if (!pass->makers || !pass->reads || !pass->is_removed || !pass->chain || !pass->nodes)
        return no_memory(pass);
    memcpy(pass->nodes, call->nodes, call->node_count * sizeof(*pass->nodes));
    list_values(pass);
    return QK_OK;
}

/* ---- Chains -------------------------------------------------------------------------------- */

/* Returns whether a node has one variable input, and whether each of its constants is one number
 * that is known. */
static bool has_one_operand(const struct pass *pass, const struct qk_node *node)
{
    const struct qk_call *call = &node->call;
    if (call->variable == 0 || (call->variable & (call->variable - 1)) != 0 ||
        value_of(pass, node, (size_t)__builtin_ctz(call->variable)) == QK_VALUE_NONE)
        return false;
    for (size_t i = 0; i < call->op->input_count; i++)
        if (!(call->variable >> i & 1) && call->inputs[i].type != QK_NONE &&
            (!call->inputs[i].data || call->inputs[i].count != 1))
            return false;
    return true;
}

/* Returns the only value that has_one_operand's node reads. */
static uint32_t operand_of(const struct qk_node *node)
{
    return node->inputs[__builtin_ctz(node->call.variable)];
}

/* Returns whether a node dequantizes or quantizes by one scale of FP32. */
static bool is_per_tensor(const struct pass *pass, const struct qk_node *node,
                          const struct qk_operator *op)
{
    return node->call.op == op && node->call.variable == 1U << X && has_one_operand(pass, node) &&
           node->call.inputs[SCALE].type == QK_FP32;
}

/* Returns the type of codes that a per-tensor QuantizeLinear or DequantizeLinear has, or QK_NONE if
 * it is not known here. Without a zero point, x of a DequantizeLinear has the type that its maker
 * or the graph's caller gives it. */
static enum qk_type code_type(const struct pass *pass, const struct qk_node *node)
{
    const enum qk_type type = node->call.inputs[ZERO_POINT].type;
    if (type != QK_NONE || node->call.op != &qk_onnx_dequantize_linear)
        return type;
    for (size_t i = 0; i < pass->call->input_count; i++)
        if (pass->call->inputs[i].value == node->inputs[X])
            return pass->call->inputs[i].type;
    const uint32_t maker = pass->makers[node->inputs[X]];
    const struct qk_operator *op = maker == NOWHERE ? NULL : pass->nodes[maker].call.op;
    return op == &qk_onnx_quantize_linear ? pass->nodes[maker].call.inputs[ZERO_POINT].type
                                          : QK_NONE;
}

/* Fills in the chain that ends at a node. Returns false if none does. */
static bool find_chain(struct pass *pass, uint32_t last)
{
    uint32_t index = last;
    if (!is_per_tensor(pass, &pass->nodes[last], &qk_onnx_quantize_linear))
        return false;
    pass->chain_count = 0;
    for (;;) {
        const struct qk_node *node = &pass->nodes[index];
        const uint32_t value = operand_of(node);
        pass->chain[pass->chain_count++] = index;
        index = pass->makers[value];
        if (index == NOWHERE)
            return false;
        node = &pass->nodes[index];
        if (is_per_tensor(pass, node, &qk_onnx_dequantize_linear))
            break;
        /* A value of the chain has no other reader. So no node comes twice, even in a cycle, which
         * qk_graph_prepare refuses. */
        if (!node->call.op->code->floats_as_tables || !has_one_operand(pass, node) ||
            pass->reads[value] != 1)
            return false;
    }
    pass->chain[pass->chain_count++] = index;
    const enum qk_type type = code_type(pass, &pass->nodes[index]);
    return pass->chain_count > 2 && (type == QK_UINT8 || type == QK_INT8);
}

/* ---- Tables -------------------------------------------------------------------------------- */

/* Runs the nodes of the chain on all codes, which then are in *tensor. */
static enum qk_status run_chain(struct pass *pass, struct qk_tensor *tensor)
{
    enum qk_status status = QK_OK;
    for (size_t i = pass->chain_count; i-- > 0 && status == QK_OK;) {
        const struct qk_node *node = &pass->nodes[pass->chain[i]];
        const struct qk_graph_node named = {.name = node->name, .index = pass->chain[i]};
        struct qk_call call = node->call;
        struct qk_tensor outputs[QK_OUTPUT_COUNT_MAX];
        struct qk_error cause;
        call.inputs[__builtin_ctz(call.variable)] = *tensor;
        call.variable = 0;
        status = qk_compute(pass->kernels, &call, pass->memory, &pass->cost_ns, outputs, &cause);
        if (status != QK_OK)
            return qk_graph_fail_in(&named, call.op, &cause, pass->error);
        qk_tensor_copy(tensor, &outputs[0]);
    }
    return status;
}

/* Removes a reader of a value. Its maker goes if nothing else needs it. */
static void remove_read(struct pass *pass, uint32_t value)
{
    const uint32_t maker = pass->makers[value];
    if (--pass->reads[value] == 0 && maker != NOWHERE)
        pass->is_removed[maker] = true;
}

/* Returns the largest rank of the numbers that nodes of the chain take beside an operand of any
 * shape, such as the [1] in Div: no value behind such a node has a smaller rank. */
static uint32_t least_rank(const struct pass *pass)
{
    uint32_t rank = 0;
    for (size_t i = 0; i < pass->chain_count; i++) {
        const struct qk_call *call = &pass->nodes[pass->chain[i]].call;
        const uint32_t numbers = call->op->variable_inputs & ~call->variable;
        for (size_t k = 0; k < call->op->input_count; k++)
            if (numbers >> k & 1 && call->inputs[k].rank > rank)
                rank = call->inputs[k].rank;
    }
    return rank;
}

/* Puts the table into the place of the QuantizeLinear. */
static void replace_chain(struct pass *pass, enum qk_type x_type, const struct qk_tensor *table)
{
    const uint32_t dequantizer = pass->chain[pass->chain_count - 1];
    const uint32_t x = operand_of(&pass->nodes[dequantizer]);
    struct qk_node *made = &pass->nodes[pass->chain[0]];
    const uint32_t rank = least_rank(pass);
    for (size_t i = 0; i + 1 < pass->chain_count; i++)
        remove_read(pass, operand_of(&pass->nodes[pass->chain[i]]));
    if (pass->is_removed[dequantizer])
        pass->reads[x]--;
    pass->reads[x]++;
    struct qk_call *call = &made->call;
    call->op = &qk_quantd_lookup;
    call->version = &qk_quantd_lookup.versions[0];
    call->variable = 1U << X;
    memset(call->attributes, 0, sizeof(call->attributes));
    call->attributes[X_TYPE] =
        (struct qk_attribute){.present = true, .number = qk_type_info(x_type)->onnx};
    call->attributes[RANK] = (struct qk_attribute){.present = true, .number = rank};
    call->inputs[X] = (struct qk_tensor){.type = x_type};
    call->inputs[TABLE] = *table;
    call->inputs[TABLE].rank = 1;
    call->inputs[TABLE].dims[0] = QK_LOOKUP_ENTRIES;
    made->inputs[X] = x;
    made->inputs[TABLE] = QK_VALUE_NONE;
}

/* Makes the chain a table, if its codes have 8 bits. */
static enum qk_status make_table(struct pass *pass)
{
    const enum qk_type x_type = code_type(pass, &pass->nodes[pass->chain[pass->chain_count - 1]]);
    uint8_t *codes = take(pass, QK_LOOKUP_ENTRIES, 1);
    struct qk_tensor tensor = {.type = x_type,
                               .rank = 1,
                               .dims = {QK_LOOKUP_ENTRIES},
                               .count = QK_LOOKUP_ENTRIES,
                               .stored = QK_LOOKUP_ENTRIES,
                               .data = codes};
    if (!codes)
        return no_memory(pass);
    for (size_t i = 0; i < QK_LOOKUP_ENTRIES; i++)
        codes[i] = (uint8_t)i;
    const enum qk_status status = run_chain(pass, &tensor);
    if (status == QK_OK && (tensor.type == QK_UINT8 || tensor.type == QK_INT8))
        replace_chain(pass, x_type, &tensor);
    return status;
}

/* ---- All nodes ----------------------------------------------------------------------------- */

static void keep_others(struct pass *pass, uint32_t *origins)
{
    struct qk_graph_call *call = pass->call;
    size_t kept = 0;
    for (uint32_t i = 0; i < call->node_count; i++) {
        if (pass->is_removed[i])
            continue;
        origins[kept] = i;
        if (kept != i)
            pass->nodes[kept] = pass->nodes[i];
        kept++;
    }
    call->nodes = pass->nodes;
    call->node_count = kept;
}

enum qk_status qk_graph_tabulate(const struct qk_kernels *kernels, struct qk_graph_call *call,
                                 struct qk_memory memory, const uint32_t **origins,
                                 struct qk_error *error)
{
    struct pass pass = {.kernels = kernels, .call = call, .memory = memory, .error = error};
    uint32_t *places = take(&pass, call->node_count, sizeof(*places));
    enum qk_status status = places ? start(&pass) : no_memory(&pass);
    for (uint32_t i = 0; i < call->node_count && status == QK_OK; i++)
        if (find_chain(&pass, i))
            status = make_table(&pass);
    if (status != QK_OK)
        return status;
    keep_others(&pass, places);
    *origins = places;
    return QK_OK;
}

enum qk_status qk_graph_lower(const struct qk_kernels *kernels, struct qk_graph_call *call,
                              struct qk_memory memory, const uint32_t **origins,
                              struct qk_error *error)
{
    const uint32_t *folded;
    const uint32_t *tabulated;
    enum qk_status status = qk_graph_fold(kernels, call, memory, &folded, error);
    if (status == QK_OK)
        status = qk_graph_tabulate(kernels, call, memory, &tabulated, error);
    if (status != QK_OK)
        return status;
    uint32_t *places = memory.alloc(memory.context, (call->node_count + 1) * sizeof(*places));
    if (!places)
        return qk_fail(error, QK_NO_MEMORY, "out of memory for a graph");
    for (size_t i = 0; i < call->node_count; i++)
        places[i] = folded[tabulated[i]];
    *origins = places;
    return QK_OK;
}
