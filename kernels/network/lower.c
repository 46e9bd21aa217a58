/* qk_graph_lower: the passes, one after another. */
#include "kernels/network/compose.h"
#include "kernels/network/fold.h"

struct lowering {
    struct qk_memory memory;
    const uint32_t *origins; /* of the call's nodes; NULL: they are as they came */
};

/* Goes on from the origins of a pass to those of the passes before it. Returns false if memory has
 * run out. */
static bool add_origins(struct lowering *lowering, const uint32_t *passed, size_t count)
{
    const struct qk_memory memory = lowering->memory;
    uint32_t *origins = memory.alloc(memory.context, (count + 1) * sizeof(*origins));
    for (size_t i = 0; origins && i < count; i++)
        origins[i] = lowering->origins ? lowering->origins[passed[i]] : passed[i];
    lowering->origins = origins;
    return origins != NULL;
}

static enum qk_status lower(const struct qk_kernels *kernels, struct qk_graph_call *call,
                            struct qk_memory memory, const uint32_t **origins,
                            struct qk_error *error)
{
    enum { FOLD, FUSE, FOLD_ALL, TABULATE, COMPOSE, PASSES };
    struct lowering lowering = {.memory = memory};
    for (unsigned pass = FOLD; pass < PASSES; pass++) {
        const uint32_t *passed = NULL;
        const enum qk_status status =
            pass == FUSE       ? qk_graph_fuse(kernels, call, memory, &passed, error)
            : pass == TABULATE ? qk_graph_tabulate(kernels, call, memory, &passed, error)
            : pass == COMPOSE  ? qk_graph_compose(kernels, call, memory, &passed, error)
                               : qk_fold(kernels, call, memory, pass == FOLD, &passed, error);
        if (status != QK_OK)
            return status;
        if (call->node_count > QK_GRAPH_NODE_COUNT_MAX)
            return qk_fail(error, QK_INVALID,
                           "expected at most %d nodes once each DequantizeLinear is behind what "
                           "moves its codes, got %zu",
                           QK_GRAPH_NODE_COUNT_MAX, call->node_count);
        if (!add_origins(&lowering, passed, call->node_count))
            return qk_fail(error, QK_NO_MEMORY, "out of memory for a graph");
    }
    *origins = lowering.origins;
    return QK_OK;
}

enum qk_status qk_graph_lower(const struct qk_kernels *kernels, struct qk_graph_call *call,
                              struct qk_memory memory, const uint32_t **origins,
                              struct qk_error *error)
{
    struct qk_graph_memory own = {0};
    struct qk_graph_memory *const given = call->memory;
    if (!given)
        call->memory = &own;
    const enum qk_status status = lower(kernels, call, memory, origins, error);
    call->memory = given;
    call->node_room = 0;
    return status;
}

/* The DequantizeLinear of constants stay for qk_graph_fuse, which needs the types of inputs. */
enum qk_status qk_graph_lower_once(const struct qk_kernels *kernels, struct qk_graph_call *call,
                                   struct qk_memory memory, const uint32_t **origins,
                                   struct qk_error *error)
{
    const enum qk_status status = qk_fold(kernels, call, memory, true, origins, error);
    call->node_room = 0;
    return status;
}
