#include "kernels/network/pass.h"

#include <string.h>

#include "kernels/network/fate.h"
#include "kernels/operators/operator.h"

void *qk_pass_take(const struct qk_pass *pass, size_t count, size_t bytes)
{
    return pass->memory.alloc(pass->memory.context, (count + 1) * bytes);
}

enum qk_status qk_pass_no_memory(const struct qk_pass *pass)
{
    return qk_fail(pass->error, QK_NO_MEMORY, "out of memory for tables of a graph");
}

/* ---- The graph ----------------------------------------------------------------------------- */

uint32_t qk_pass_value(const struct qk_pass *pass, const struct qk_node *node, size_t input)
{
    const bool reads = node->call.variable >> input & 1;
    return reads && node->inputs[input] < pass->call->value_count ? node->inputs[input]
                                                                  : QK_VALUE_NONE;
}

static void list_values(struct qk_pass *pass)
{
    const struct qk_graph_call *call = pass->call;
    for (size_t i = 0; i < call->value_count; i++) {
        pass->makers[i] = QK_NOWHERE;
        pass->reads[i] = 0;
    }
    for (size_t i = 0; i < call->output_count; i++)
        if (call->outputs[i] < call->value_count)
            pass->reads[call->outputs[i]]++;
    for (uint32_t i = 0; i < call->node_count; i++) {
        const struct qk_node *node = &call->nodes[i];
        pass->is_removed[i] = false;
        for (size_t k = 0; k < node->call.op->input_count; k++)
            if (qk_pass_value(pass, node, k) != QK_VALUE_NONE)
                pass->reads[node->inputs[k]]++;
        for (size_t k = 0; k < node->call.op->output_count; k++)
            if (node->outputs[k] < call->value_count)
                pass->makers[node->outputs[k]] = i;
    }
}

enum qk_status qk_pass_start(struct qk_pass *pass)
{
    const struct qk_graph_call *call = pass->call;
    pass->makers = qk_pass_take(pass, call->value_count, sizeof(*pass->makers));
    pass->reads = qk_pass_take(pass, call->value_count, sizeof(*pass->reads));
    pass->is_removed = qk_pass_take(pass, call->node_count, sizeof(*pass->is_removed));
    pass->found = qk_pass_take(pass, call->node_count, sizeof(*pass->found));
    pass->nodes = qk_pass_take(pass, call->node_count, sizeof(*pass->nodes));
    if (!pass->makers || !pass->reads || !pass->is_removed || !pass->found || !pass->nodes)
        return qk_pass_no_memory(pass);
    memcpy(pass->nodes, call->nodes, call->node_count * sizeof(*pass->nodes));
    list_values(pass);
    return QK_OK;
}

/* ---- DequantizeLinear and QuantizeLinear --------------------------------------------------- */

bool qk_pass_is_per_tensor(const struct qk_pass *pass, const struct qk_node *node,
                           const struct qk_operator *op)
{
    const struct qk_call *call = &node->call;
    if (call->op != op || call->variable != 1U << QK_PASS_X ||
        qk_pass_value(pass, node, QK_PASS_X) == QK_VALUE_NONE ||
        call->inputs[QK_PASS_SCALE].type != QK_FP32)
        return false;
    for (size_t i = QK_PASS_SCALE; i <= QK_PASS_ZERO_POINT; i++)
        if (call->inputs[i].type != QK_NONE &&
            (!call->inputs[i].data || call->inputs[i].count != 1))
            return false;
    return true;
}

enum qk_type qk_pass_code_type(const struct qk_pass *pass, const struct qk_node *node)
{
    const enum qk_type type = node->call.inputs[QK_PASS_ZERO_POINT].type;
    if (type != QK_NONE || node->call.op != &qk_onnx_dequantize_linear)
        return type;
    for (size_t i = 0; i < pass->call->input_count; i++)
        if (pass->call->inputs[i].value == node->inputs[QK_PASS_X])
            return pass->call->inputs[i].type;
    const uint32_t maker = pass->makers[node->inputs[QK_PASS_X]];
    const struct qk_operator *op = maker == QK_NOWHERE ? NULL : pass->nodes[maker].call.op;
    return op == &qk_onnx_quantize_linear ? pass->nodes[maker].call.inputs[QK_PASS_ZERO_POINT].type
                                          : QK_NONE;
}

/* ---- Replacing nodes ----------------------------------------------------------------------- */

/* Takes back what a node reads. A node whose output nothing reads any more is removed. */
static void stop_reading(struct qk_pass *pass, const struct qk_node *node)
{
    for (size_t i = 0; i < node->call.op->input_count; i++) {
        const uint32_t value = qk_pass_value(pass, node, i);
        if (value == QK_VALUE_NONE || --pass->reads[value] > 0)
            continue;
        if (pass->makers[value] != QK_NOWHERE)
            pass->is_removed[pass->makers[value]] = true;
    }
}

void qk_pass_replace(struct qk_pass *pass, const struct qk_call *call, const uint32_t *inputs)
{
    const uint32_t last = pass->found[pass->found_count - 1];
    struct qk_node *made = &pass->nodes[last];
    /* Reads first what the new node reads, so that the maker of that is not removed. */
    for (size_t i = 0; i < call->op->input_count; i++)
        if (call->variable >> i & 1)
            pass->reads[inputs[i]]++;
    for (size_t left = pass->found_count; left > 0; left--) {
        const uint32_t found = pass->found[left - 1];
        qk_fate_set(pass->call, &pass->nodes[found], QK_FATE_TABLE, made);
        if (found == last || pass->is_removed[found])
            stop_reading(pass, &pass->nodes[found]);
    }
    made->call = *call;
    for (size_t i = 0; i < call->op->input_count; i++)
        made->inputs[i] = call->variable >> i & 1 ? inputs[i] : QK_VALUE_NONE;
}

enum qk_status qk_pass_finish(struct qk_pass *pass, const uint32_t **origins)
{
    struct qk_graph_call *call = pass->call;
    uint32_t *places = qk_pass_take(pass, call->node_count, sizeof(*places));
    size_t kept = 0;
    if (!places)
        return qk_pass_no_memory(pass);
    for (uint32_t i = 0; i < call->node_count; i++) {
        if (pass->is_removed[i])
            continue;
        places[kept] = i;
        if (kept != i)
            pass->nodes[kept] = pass->nodes[i];
        kept++;
    }
    call->nodes = pass->nodes;
    call->node_count = kept;
    *origins = places;
    return QK_OK;
}
