#include "kernels/network/edit.h"

#include <string.h>

#include "kernels/network/fate.h"

void *qk_edit_take(const struct qk_edit *edit, size_t count, size_t bytes)
{
    size_t all;
    void *made = count < SIZE_MAX && qk_mul_size(count + 1, bytes, &all)
                     ? edit->memory.alloc(edit->memory.context, all)
                     : NULL;
    if (!made)
        qk_fail(edit->error, QK_NO_MEMORY, "out of memory for a graph of %zu nodes",
                edit->call->node_count);
    return made;
}

/* ---- Who makes and reads what -------------------------------------------------------------- */

uint32_t qk_edit_value_of(const struct qk_edit *edit, uint32_t node, size_t input)
{
    const struct qk_node *at = &edit->nodes[node];
    return at->call.variable >> input & 1 && at->inputs[input] < edit->value_count
               ? at->inputs[input]
               : QK_VALUE_NONE;
}

uint32_t qk_edit_maker_of(const struct qk_edit *edit, uint32_t node, size_t input)
{
    const uint32_t value = qk_edit_value_of(edit, node, input);
    return value == QK_VALUE_NONE ? QK_NO_NODE : edit->makers[value];
}

static bool is_read(const struct qk_edit *edit, uint32_t node)
{
    const struct qk_node *at = &edit->nodes[node];
    for (size_t i = 0; i < at->call.op->output_count; i++)
        if (at->outputs[i] < edit->value_count && edit->makers[at->outputs[i]] == node &&
            edit->reads[at->outputs[i]] > 0)
            return true;
    return false;
}

/* Marks a node as removed. remove_dead does the rest. */
static void kill_node(struct qk_edit *edit, uint32_t node)
{
    edit->is_removed[node] = true;
    qk_fate_set(edit->call, &edit->nodes[node], QK_FATE_REMOVED, NULL);
    edit->dead[edit->dead_count++] = node;
}

/* Removes a reader of a value. If nothing else needs the node that makes it, that is marked. */
static void release(struct qk_edit *edit, uint32_t value)
{
    const uint32_t maker = edit->makers[value];
    if (--edit->reads[value] == 0 && maker != QK_NO_NODE && !edit->is_removed[maker] &&
        !is_read(edit, maker))
        kill_node(edit, maker);
}

/* Removes marked nodes and those that only they need. There is no recursion, because a chain may be
 * as long as the graph. */
static void remove_dead(struct qk_edit *edit)
{
    while (edit->dead_count > 0) {
        const uint32_t node = edit->dead[--edit->dead_count];
        const struct qk_node *at = &edit->nodes[node];
        for (size_t i = 0; i < at->call.op->output_count; i++)
            if (at->outputs[i] < edit->value_count && edit->makers[at->outputs[i]] == node)
                edit->makers[at->outputs[i]] = QK_NO_NODE;
        for (size_t i = 0; i < at->call.op->input_count; i++) {
            const uint32_t value = qk_edit_value_of(edit, node, i);
            if (value != QK_VALUE_NONE)
                release(edit, value);
        }
    }
}

static void note_reads(struct qk_edit *edit, uint32_t node)
{
    for (size_t i = 0; i < edit->nodes[node].call.op->input_count; i++) {
        const uint32_t value = qk_edit_value_of(edit, node, i);
        if (value != QK_VALUE_NONE)
            edit->reads[value]++;
    }
}

static void note_outputs(struct qk_edit *edit, uint32_t node)
{
    const struct qk_node *at = &edit->nodes[node];
    for (size_t i = 0; i < at->call.op->output_count; i++)
        if (at->outputs[i] < edit->value_count)
            edit->makers[at->outputs[i]] = node;
}

void qk_edit_set_input(struct qk_edit *edit, uint32_t node, size_t input, uint32_t value)
{
    const uint32_t old = qk_edit_value_of(edit, node, input);
    edit->nodes[node].inputs[input] = value;
    edit->reads[value]++;
    if (old != QK_VALUE_NONE)
        release(edit, old);
    remove_dead(edit);
}

void qk_edit_set_output(struct qk_edit *edit, uint32_t node, size_t output, uint32_t value)
{
    const uint32_t old = edit->nodes[node].outputs[output];
    if (old < edit->value_count && edit->makers[old] == node)
        edit->makers[old] = QK_NO_NODE;
    edit->nodes[node].outputs[output] = value;
    edit->makers[value] = node;
}

/* ---- Nodes and values ---------------------------------------------------------------------- */

void qk_edit_remove(struct qk_edit *edit, uint32_t node)
{
    kill_node(edit, node);
    remove_dead(edit);
}

uint32_t qk_edit_add_node(struct qk_edit *edit, const struct qk_node *node, uint32_t origin)
{
    const uint32_t index = (uint32_t)edit->node_count;
    edit->is_full |= edit->node_count + 1 == edit->node_room;
    edit->node_count += !edit->is_full;
    if (node != &edit->nodes[index])
        memcpy(&edit->nodes[index], node, qk_node_bytes(node->call.op));
    edit->origins[index] = origin;
    edit->is_removed[index] = false;
    note_reads(edit, index);
    note_outputs(edit, index);
    return index;
}

void qk_edit_replace(struct qk_edit *edit, uint32_t index, const struct qk_node *node,
                     uint32_t origin)
{
    const uint32_t added = qk_edit_add_node(edit, node, origin);
    qk_edit_remove(edit, index);
    memcpy(&edit->nodes[index], node, qk_node_bytes(node->call.op));
    edit->origins[index] = origin;
    edit->is_removed[index] = false;
    edit->node_count = added;
    note_outputs(edit, index);
}

uint32_t qk_edit_add_value(struct qk_edit *edit, uint32_t namesake, enum qk_type type)
{
    const uint32_t value = (uint32_t)edit->value_count;
    edit->is_full |= edit->value_count + 1 == edit->value_room;
    edit->value_count += !edit->is_full;
    if (edit->value_names)
        edit->value_names[value] = edit->value_names[namesake];
    edit->makers[value] = QK_NO_NODE;
    edit->reads[value] = 0;
    edit->types[value] = type;
    return value;
}

/* ---- Begin and end ------------------------------------------------------------------------- */

enum qk_status qk_edit_begin(struct qk_edit *edit, size_t new_nodes, size_t new_values)
{
    const struct qk_graph_call *call = edit->call;
    const size_t node_room = call->node_count + new_nodes + 2; /* qk_edit_replace needs one */
    const size_t value_room = call->value_count + new_values + 1;
    edit->node_room = node_room;
    edit->value_room = value_room;
    edit->nodes = call->node_room >= node_room
                      ? (struct qk_node *)(uintptr_t)call->nodes
                      : qk_edit_take(edit, node_room, sizeof(*edit->nodes));
    edit->origins = qk_edit_take(edit, node_room, sizeof(*edit->origins));
    edit->operators = qk_edit_take(edit, call->node_count, sizeof(*edit->operators));
    edit->is_removed = qk_edit_take(edit, node_room, sizeof(*edit->is_removed));
    edit->makers = qk_edit_take(edit, value_room, sizeof(*edit->makers));
    edit->reads = qk_edit_take(edit, value_room, sizeof(*edit->reads));
    edit->types = qk_edit_take(edit, value_room, sizeof(*edit->types));
    edit->dead = qk_edit_take(edit, node_room, sizeof(*edit->dead));
    edit->value_names =
        call->value_names ? qk_edit_take(edit, value_room, sizeof(*edit->value_names)) : NULL;
    if (!edit->nodes || !edit->origins || !edit->operators || !edit->is_removed || !edit->makers ||
        !edit->reads || !edit->types || !edit->dead || (call->value_names && !edit->value_names))
        return QK_NO_MEMORY;
    edit->value_count = call->value_count;
    for (size_t i = 0; i < call->value_count; i++) {
        edit->makers[i] = QK_NO_NODE;
        edit->reads[i] = 0;
        edit->types[i] = QK_NONE;
        if (edit->value_names)
            edit->value_names[i] = call->value_names[i];
    }
    for (size_t i = 0; i < call->input_count; i++)
        if (call->inputs[i].value < call->value_count)
            edit->types[call->inputs[i].value] = call->inputs[i].type;
    for (size_t i = 0; i < call->output_count; i++)
        if (call->outputs[i] < call->value_count)
            edit->reads[call->outputs[i]]++;
    for (uint32_t i = 0; i < call->node_count; i++) {
        edit->operators[i] = call->nodes[i].call.op;
        qk_edit_add_node(edit, &call->nodes[i], i);
    }
    return QK_OK;
}

void qk_edit_end(struct qk_edit *edit, const uint32_t **origins)
{
    size_t kept = 0;
    for (size_t i = 0; i < edit->node_count; i++) {
        if (edit->is_removed[i])
            continue;
        edit->origins[kept] = edit->origins[i];
        if (kept != i)
            memcpy(&edit->nodes[kept], &edit->nodes[i], qk_node_bytes(edit->nodes[i].call.op));
        kept++;
    }
    if (edit->call->nodes != edit->nodes)
        edit->call->node_room = edit->node_room;
    edit->call->nodes = edit->nodes;
    edit->call->node_count = kept;
    edit->call->value_count = edit->value_count;
    edit->call->value_names = edit->value_names;
    *origins = edit->origins;
}
