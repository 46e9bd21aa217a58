/* qk_graph_fuse: orders the nodes, moves what only moves codes, and fuses. */
#include "kernels/network/qdq.h"

#include <string.h>

#include "kernels/network/pair.h"
#include "kernels/operators/operator.h"

/* Returns whether each value that is read exists, and at most one node or input makes it. Passes
 * rely on this. qk_graph_prepare says what is wrong with other graphs. */
static bool is_sound(const struct qk_edit *edit)
{
    const struct qk_graph_call *call = edit->call;
    for (size_t i = 0; i < call->input_count; i++)
        if (call->inputs[i].value >= call->value_count ||
            edit->makers[call->inputs[i].value] != QK_NO_NODE)
            return false;
    for (size_t i = 0; i < call->output_count; i++)
        if (call->outputs[i] >= call->value_count)
            return false;
    for (uint32_t i = 0; i < edit->node_count; i++) {
        const struct qk_node *node = &edit->nodes[i];
        for (size_t k = 0; k < node->call.op->input_count; k++)
            if (node->call.variable >> k & 1 && node->inputs[k] >= edit->value_count)
                return false;
        for (size_t k = 0; k < node->call.op->output_count; k++)
            if (node->outputs[k] != QK_VALUE_NONE &&
                (node->outputs[k] >= edit->value_count || edit->makers[node->outputs[k]] != i))
                return false;
    }
    return true;
}

/* ---- The order ----------------------------------------------------------------------------- */

/* first[v] to first[v + 1] are the places in `nodes` of the inputs that read value v. */
struct readers {
    uint32_t *first;
    uint32_t *nodes;
};

static bool list_readers(const struct qk_edit *edit, struct readers *readers)
{
    size_t count = 0;
    uint32_t *first = qk_edit_take(edit, edit->value_count + 1, sizeof(*first));
    for (size_t i = 0; first && i <= edit->value_count; i++)
        first[i] = 0;
    for (uint32_t i = 0; first && i < edit->node_count; i++)
        for (size_t k = 0; k < edit->nodes[i].call.op->input_count; k++) {
            const uint32_t value = qk_edit_value_of(edit, i, k);
            if (value != QK_VALUE_NONE) {
                first[value]++;
                count++;
            }
        }
    uint32_t *nodes = first ? qk_edit_take(edit, count, sizeof(*nodes)) : NULL;
    *readers = (struct readers){first, nodes};
    if (!nodes)
        return false;
    /* Each first[v] becomes the end of its range, and the next loop moves it to the beginning. */
    for (size_t i = 0; i < edit->value_count; i++)
        first[i + 1] += first[i];
    for (uint32_t i = 0; i < edit->node_count; i++)
        for (size_t k = 0; k < edit->nodes[i].call.op->input_count; k++) {
            const uint32_t value = qk_edit_value_of(edit, i, k);
            if (value != QK_VALUE_NONE)
                nodes[--first[value]] = i;
        }
    return true;
}

/* Lists the nodes, each behind those that make what it reads. Nodes in and behind a cycle are not
 * in the list. `waits` gets how many inputs of each node still wait for a node before it. */
static size_t sort(const struct qk_edit *edit, const struct readers *readers, uint32_t *order,
                   uint32_t *waits)
{
    size_t count = 0;
    for (uint32_t i = 0; i < edit->node_count; i++) {
        waits[i] = 0;
        for (size_t k = 0; k < edit->nodes[i].call.op->input_count; k++)
            waits[i] += qk_edit_maker_of(edit, i, k) != QK_NO_NODE;
        if (waits[i] == 0)
            order[count++] = i;
    }
    for (size_t next = 0; next < count; next++) {
        const struct qk_node *node = &edit->nodes[order[next]];
        for (size_t k = 0; k < node->call.op->output_count; k++) {
            const uint32_t value = node->outputs[k];
            if (value == QK_VALUE_NONE)
                continue;
            for (uint32_t i = readers->first[value]; i < readers->first[value + 1]; i++)
                if (--waits[readers->nodes[i]] == 0)
                    order[count++] = readers->nodes[i];
        }
    }
    return count;
}

/* ---- Types --------------------------------------------------------------------------------- */

/* Returns the type of what a node makes, as far as a DequantizeLinear without a zero point needs
 * it, or QK_NONE. */
static enum qk_type type_of(const struct qk_edit *edit, uint32_t index)
{
    const struct qk_call *call = &edit->nodes[index].call;
    struct qk_pair pair;
    if (qk_pair_read(edit, index, &qk_onnx_quantize_linear, &pair))
        return pair.type;
    for (size_t i = 0; i < call->op->input_count; i++) {
        const char *name = call->op->inputs[i].name;
        if (strcmp(name, "y_zero_point") == 0 || strcmp(name, "Y_zero_point") == 0 ||
            strcmp(name, "C_zero_point") == 0)
            return call->inputs[i].type;
    }
    const uint32_t moved = qk_qdq_moved_inputs(&edit->nodes[index]);
    const uint32_t value =
        moved == 0 ? QK_VALUE_NONE : qk_edit_value_of(edit, index, (size_t)__builtin_ctz(moved));
    return value == QK_VALUE_NONE ? QK_NONE : edit->types[value];
}

static void find_types(const struct qk_edit *edit, const uint32_t *order, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct qk_node *node = &edit->nodes[order[i]];
        const enum qk_type type = type_of(edit, order[i]);
        for (size_t k = 0; k < node->call.op->output_count; k++)
            if (node->outputs[k] != QK_VALUE_NONE)
                edit->types[node->outputs[k]] = type;
    }
}

/* ---- All ----------------------------------------------------------------------------------- */

static bool has_quantizer(const struct qk_graph_call *call)
{
    size_t i = 0;
    while (i < call->node_count && call->nodes[i].call.op != &qk_onnx_quantize_linear)
        i++;
    return i < call->node_count;
}

/* Returns how many nodes the steps may add. A QuantizeLinear that rises before the inputs of a
 * Concat or Where may then be fused, too. Most nodes make no others, and a node takes 10 KB. */
static size_t count_new_nodes(const struct qk_graph_call *call)
{
    const bool rises = has_quantizer(call);
    size_t count = 0;
    for (size_t i = 0; i < call->node_count; i++) {
        const struct qk_node *node = &call->nodes[i];
        const uint32_t moved = qk_qdq_moved_inputs(node);
        count += qk_qdq_fused_nodes(node) + (node->call.op == &qk_onnx_pad);
        if (moved == 0)
            continue;
        if (rises && (moved & ~UINT32_C(1)) != 0) /* not input 0 alone */
            count += 2 * (size_t)__builtin_popcount(moved);
        for (size_t k = 0; k < node->call.op->output_count; k++)
            count += node->outputs[k] < call->value_count;
    }
    return count;
}

enum qk_status qk_graph_fuse(const struct qk_kernels *kernels, struct qk_graph_call *call,
                             struct qk_memory memory, const uint32_t **origins,
                             struct qk_error *error)
{
    struct qk_edit edit = {.call = call, .memory = memory, .error = error};
    const size_t added = count_new_nodes(call);
    const enum qk_status begun = qk_edit_begin(&edit, added, 2 * added);
    uint32_t *order = begun == QK_OK ? qk_edit_take(&edit, edit.node_count, sizeof(*order)) : NULL;
    uint32_t *waits = order ? qk_edit_take(&edit, edit.node_count, sizeof(*waits)) : NULL;
    struct readers readers;
    if (!waits || !list_readers(&edit, &readers))
        return QK_NO_MEMORY;
    enum qk_status status = qk_computing_init(&edit.computing, kernels, call, memory, error);
    if (status != QK_OK)
        return status;
    if (is_sound(&edit) && sort(&edit, &readers, order, waits) == edit.node_count) {
        const size_t count = edit.node_count;
        find_types(&edit, order, count);
        status = qk_qdq_widen(&edit);
        if (status == QK_OK)
            status = qk_qdq_move(&edit, order, count);
        if (status == QK_OK)
            status = qk_qdq_fuse(&edit);
    }
    if (status == QK_OK && edit.is_full)
        return qk_fail(error, QK_NO_MEMORY, "the graph needs more room than was counted for it");
    if (status == QK_OK)
        qk_edit_end(&edit, origins);
    return status;
}
