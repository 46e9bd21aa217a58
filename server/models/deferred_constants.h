/* A loaded graph with deferred constants. A deferred constant is an input of the graph that an
 * operator uses as a constant, such as a scale or a weight. Its value must be known when the graph
 * is prepared, but comes with each request. ONNX's own tests pass all their scales and weights in
 * this way. Each request therefore prepares a graph of its own, as for a built-in model. */
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

/* Copies the call and `deferred`, with everything they point at, into the arena. Returns NULL if
 * the arena has no room. */
struct qd_deferred_graph *qd_deferred_copy(const struct qk_graph_call *call,
                                           const struct qd_onnx_deferred *deferred,
                                           size_t deferred_count, struct qd_arena *arena);

/* Prepares the graph with a request's tensors. inputs[i] belongs to the graph's input i. The
 * tensors and `deferred` must outlive the graph. */
enum qk_status qd_deferred_prepare(const struct qd_deferred_graph *deferred,
                                   const struct qk_kernels *kernels, const struct qk_tensor *inputs,
                                   struct qk_memory memory, struct qk_graph **graph,
                                   struct qk_error *error);

#endif
