/* A loaded graph with deferred constants. These are inputs of the graph that its operators take
 * once, as constants, but that come with each request. ONNX's own tests have all their scales and
 * weights so. The graph is made anew for each request, as a built-in model's is. */
#ifndef SERVER_MODELS_DEFERRED_CONSTANTS_H
#define SERVER_MODELS_DEFERRED_CONSTANTS_H

#include "kernels/qk.h"
#include "server/memory/arena.h"
#include "server/models/onnx/onnx.h"

struct qd_deferred_graph {
    struct qk_graph_call call;
    const struct qd_onnx_deferred *deferred;
    size_t deferred_count;
};

/* A copy, with all that it points at, in the arena. NULL: the arena has no room. */
struct qd_deferred_graph *qd_deferred_copy(const struct qk_graph_call *call,
                                           const struct qd_onnx_deferred *deferred,
                                           size_t deferred_count, struct qd_arena *arena);

/* Prepares the graph with a request's tensors, one for each of its inputs. These and `deferred`
 * outlive it. */
enum qk_status qd_deferred_prepare(const struct qd_deferred_graph *deferred,
                                   const struct qk_kernels *kernels, const struct qk_tensor *inputs,
                                   struct qk_memory memory, struct qk_graph **graph,
                                   struct qk_error *error);

#endif
