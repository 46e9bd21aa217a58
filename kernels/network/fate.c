#include "kernels/network/fate.h"

/* Returns the index of a node in its file, or QK_VALUE_NONE if it is not known. */
static uint32_t index_of(const struct qk_node *node)
{
    return node && node->number > 0 ? node->number - 1 : QK_VALUE_NONE;
}

void qk_fate_set(const struct qk_graph_call *call, const struct qk_node *node,
                 enum qk_fate_kind kind, const struct qk_node *into)
{
    const uint32_t index = index_of(node);
    if (!call->fates || index >= call->fate_count)
        return;
    struct qk_fate *fate = &call->fates[index];
    const bool is_final = fate->kind != QK_FATE_KEPT && fate->kind != QK_FATE_REMOVED;
    if (!is_final || (fate->into == index && kind != QK_FATE_REMOVED))
        *fate = (struct qk_fate){kind, index_of(into)};
}

static bool is_joined(const struct qk_graph_call *call, uint32_t node)
{
    const struct qk_fate *fate = &call->fates[node];
    return fate->kind == QK_FATE_TABLE && fate->into != node && fate->into < call->fate_count;
}

void qk_fate_settle_tables(const struct qk_graph_call *call)
{
    if (!call->fates)
        return;
    /* From the last node on, because a table mostly joins a later one: a few steps each. */
    for (size_t left = call->fate_count; left > 0; left--) {
        const size_t i = left - 1;
        struct qk_fate *fate = &call->fates[i];
        if (!is_joined(call, (uint32_t)i))
            continue;
        for (size_t steps = 0; steps < call->fate_count && is_joined(call, fate->into); steps++)
            fate->into = call->fates[fate->into].into;
    }
}
