/* Constant folding: what a graph computes from constants alone is computed once, when the graph is
 * loaded, by the operators themselves. Exporters leave such nodes in files: scales that are
 * quantized again, weights that are stored as floats and quantized by the graph. */
#include <string.h>

#include "kernels/graph.h"
#include "kernels/network/compute.h"
#include "kernels/network/fate.h"
#include "kernels/network/fold.h"
#include "kernels/operators/operator.h"

struct folder {
    struct qk_graph_call *call;
    struct qk_memory memory;
    struct qk_error *error;
    struct qk_node *nodes;
    /* reads[first[v]] to reads[first[v + 1]] are the inputs that read value v. */
    size_t *first;
    struct read {
        uint32_t node;
        uint32_t input;
    } * reads;
    bool *is_output; /* of each value: it leaves the graph */
    bool *is_folded; /* of each node */
    bool keeps_pairs;
    uint32_t *ready; /* nodes without variable inputs, in the order in which they are folded */
    size_t ready_count;
    struct qk_computing computing;
};

/* Returns memory for one element more than `count`, so that there is always one. Sets *all to its
 * size. */
static void *take_bytes(const struct folder *folder, size_t count, size_t bytes, size_t *all)
{
    return count < SIZE_MAX && qk_mul_size(count + 1, bytes, all)
               ? folder->memory.alloc(folder->memory.context, *all)
               : NULL;
}

/* Like take_bytes, but the memory is zeroed. */
static void *take(const struct folder *folder, size_t count, size_t bytes)
{
    size_t all;
    void *made = take_bytes(folder, count, bytes, &all);
    return made ? memset(made, 0, all) : NULL;
}

/* Takes the nodes of the call, or a copy if they are the caller's. NULL: there is no memory. */
static struct qk_node *take_nodes(const struct folder *folder)
{
    const struct qk_graph_call *call = folder->call;
    size_t all;
    if (call->node_room > 0)
        return (struct qk_node *)(uintptr_t)call->nodes;
    struct qk_node *nodes = take_bytes(folder, call->node_count, sizeof(*nodes), &all);
    for (size_t i = 0; nodes && i < call->node_count; i++)
        memcpy(&nodes[i], &call->nodes[i], qk_node_bytes(call->nodes[i].call.op));
    return nodes;
}

/* Fails with the error of a node. */
static enum qk_status fail_in(const struct folder *folder, uint32_t index,
                              const struct qk_error *cause)
{
    const struct qk_node *node = &folder->nodes[index];
    const struct qk_graph_node named = {.name = node->name,
                                        .number = qk_graph_node_number(node, index)};
    return qk_graph_fail_in(&named, node->call.op, cause, folder->error);
}

static enum qk_status no_memory(const struct folder *folder)
{
    return qk_fail(folder->error, QK_NO_MEMORY, "out of memory for constants that nodes compute");
}

/* Returns whether the input reads a value that the call has. qk_graph_prepare refuses others. */
static bool reads_value(const struct folder *folder, const struct qk_node *node, size_t input)
{
    return node->call.variable >> input & 1 && node->inputs[input] < folder->call->value_count;
}

/* Lists, for each value, the inputs that read it. */
static enum qk_status list_reads(struct folder *folder)
{
    const struct qk_graph_call *call = folder->call;
    size_t count = 0;
    folder->first = take(folder, call->value_count + 1, sizeof(*folder->first));
    if (!folder->first)
        return no_memory(folder);
    for (size_t i = 0; i < call->node_count; i++)
        for (size_t k = 0; k < call->nodes[i].call.op->input_count; k++)
            if (reads_value(folder, &call->nodes[i], k)) {
                folder->first[call->nodes[i].inputs[k] + 1]++;
                count++;
            }
    for (size_t i = 0; i < call->value_count; i++)
        folder->first[i + 1] += folder->first[i];
    folder->reads = take(folder, count, sizeof(*folder->reads));
    size_t *next = take(folder, call->value_count, sizeof(*next));
    if (!folder->reads || !next)
        return no_memory(folder);
    memcpy(next, folder->first, call->value_count * sizeof(*next));
    for (uint32_t i = 0; i < call->node_count; i++)
        for (uint32_t k = 0; k < call->nodes[i].call.op->input_count; k++)
            if (reads_value(folder, &call->nodes[i], k))
                folder->reads[next[call->nodes[i].inputs[k]]++] = (struct read){i, k};
    return QK_OK;
}

static enum qk_status take_all(struct folder *folder)
{
    const struct qk_graph_call *call = folder->call;
    folder->is_output = take(folder, call->value_count, sizeof(*folder->is_output));
    folder->is_folded = take(folder, call->node_count, sizeof(*folder->is_folded));
    folder->ready = take(folder, call->node_count, sizeof(*folder->ready));
    folder->nodes = take_nodes(folder);
    if (!folder->is_output || !folder->is_folded || !folder->ready || !folder->nodes)
        return no_memory(folder);
    for (size_t i = 0; i < call->output_count; i++)
        if (call->outputs[i] < call->value_count)
            folder->is_output[call->outputs[i]] = true;
    return list_reads(folder);
}

/* ---- One node ------------------------------------------------------------------------------ */

/* Returns whether a pass may need the codes from which a node computes floats: whether something
 * else than a DequantizeLinear or QuantizeLinear, for its scale, reads them. */
static bool codes_matter(const struct folder *folder, const struct qk_node *node)
{
    const uint32_t value = node->outputs[0];
    if (node->call.op != &qk_onnx_dequantize_linear || value >= folder->call->value_count)
        return false;
    for (size_t i = folder->first[value]; i < folder->first[value + 1]; i++) {
        const struct read *read = &folder->reads[i];
        const struct qk_operator *op = folder->nodes[read->node].call.op;
        if (read->input == 0 ||
            (op != &qk_onnx_dequantize_linear && op != &qk_onnx_quantize_linear))
            return true;
    }
    return false;
}

/* Returns whether the node can be computed now: all its inputs are constants whose data is there.
 * Data that comes with each request is not. A node that makes an output stays, because a graph
 * needs a node for each output. */
static bool is_foldable(const struct folder *folder, const struct qk_node *node)
{
    if (node->call.variable != 0 || (folder->keeps_pairs && codes_matter(folder, node)))
        return false;
    for (size_t i = 0; i < node->call.op->input_count; i++)
        if (node->call.inputs[i].type != QK_NONE && !node->call.inputs[i].data)
            return false;
    for (size_t i = 0; i < node->call.op->output_count; i++)
        if (node->outputs[i] < folder->call->value_count && folder->is_output[node->outputs[i]])
            return false;
    return true;
}

static void add_ready(struct folder *folder, uint32_t node)
{
    if (is_foldable(folder, &folder->nodes[node]))
        folder->ready[folder->ready_count++] = node;
}

/* Makes a value a constant of every node that reads it. */
static void put_constant(struct folder *folder, uint32_t value, const struct qk_tensor *tensor)
{
    for (size_t i = folder->first[value]; i < folder->first[value + 1]; i++) {
        const struct read *read = &folder->reads[i];
        struct qk_node *node = &folder->nodes[read->node];
        if (!(node->call.variable >> read->input & 1))
            continue; /* two nodes make the value, which qk_graph_prepare refuses */
        node->call.variable &= ~(UINT32_C(1) << read->input);
        node->call.inputs[read->input] = *tensor;
        node->inputs[read->input] = QK_VALUE_NONE;
        if (node->call.variable == 0)
            add_ready(folder, read->node);
    }
}

static enum qk_status fold(struct folder *folder, uint32_t index)
{
    const struct qk_node *node = &folder->nodes[index];
    struct qk_tensor outputs[QK_OUTPUT_COUNT_MAX];
    struct qk_error cause;
    const enum qk_status status = qk_compute(&folder->computing, &node->call, outputs, &cause);
    if (status != QK_OK)
        return fail_in(folder, index, &cause);
    folder->is_folded[index] = true;
    qk_fate_set(folder->call, node, QK_FATE_FOLDED, NULL);
    for (size_t i = 0; i < node->call.op->output_count; i++)
        if (node->outputs[i] < folder->call->value_count)
            put_constant(folder, node->outputs[i], &outputs[i]);
    return QK_OK;
}

/* ---- All nodes ----------------------------------------------------------------------------- */

static enum qk_status fold_all(struct folder *folder)
{
    enum qk_status status = QK_OK;
    for (uint32_t i = 0; i < folder->call->node_count; i++)
        add_ready(folder, i);
    for (size_t i = 0; i < folder->ready_count && status == QK_OK; i++)
        status = fold(folder, folder->ready[i]);
    return status;
}

/* Refuses a node that needs a constant and reads what another node computes from the inputs. */
static enum qk_status check_constants(const struct folder *folder, uint32_t index)
{
    const struct qk_node *node = &folder->nodes[index];
    const struct qk_operator *op = node->call.op;
    const uint32_t wrong = node->call.variable & ~(op->variable_inputs | op->planned_inputs);
    struct qk_error cause;
    if (wrong == 0)
        return QK_OK;
    const int input = __builtin_ctz(wrong);
    const uint32_t value = node->inputs[input];
    const char *const *names = folder->call->value_names;
    qk_fail(&cause, QK_INVALID,
            "%s: expected a constant or an input of the graph, because the operator takes it once, "
            "got value %u (\"%.64s\"), which a node computes from the graph's inputs",
            op->inputs[input].name, value,
            names && value < folder->call->value_count ? names[value] : "");
    return fail_in(folder, index, &cause);
}

/* Removes the folded nodes from the list. */
static void keep_others(struct folder *folder, uint32_t *origins)
{
    struct qk_graph_call *call = folder->call;
    size_t kept = 0;
    for (uint32_t i = 0; i < call->node_count; i++) {
        if (folder->is_folded[i])
            continue;
        origins[kept] = i;
        if (kept != i)
            memcpy(&folder->nodes[kept], &folder->nodes[i],
                   qk_node_bytes(folder->nodes[i].call.op));
        kept++;
    }
    if (call->nodes != folder->nodes)
        call->node_room = call->node_count;
    call->nodes = folder->nodes;
    call->node_count = kept;
}

enum qk_status qk_fold(const struct qk_kernels *kernels, struct qk_graph_call *call,
                       struct qk_memory memory, bool keeps_pairs, const uint32_t **origins,
                       struct qk_error *error)
{
    struct folder folder = {
        .call = call, .memory = memory, .error = error, .keeps_pairs = keeps_pairs};
    uint32_t *places = take(&folder, call->node_count, sizeof(*places));
    enum qk_status status = places ? take_all(&folder) : no_memory(&folder);
    if (status == QK_OK)
        status = qk_computing_init(&folder.computing, kernels, call, memory, error);
    if (status == QK_OK)
        status = fold_all(&folder);
    for (uint32_t i = 0; i < call->node_count && status == QK_OK && !keeps_pairs; i++)
        status = check_constants(&folder, i);
    if (status != QK_OK)
        return status;
    keep_others(&folder, places);
    *origins = places;
    return QK_OK;
}

enum qk_status qk_graph_fold(const struct qk_kernels *kernels, struct qk_graph_call *call,
                             struct qk_memory memory, const uint32_t **origins,
                             struct qk_error *error)
{
    return qk_fold(kernels, call, memory, false, origins, error);
}
