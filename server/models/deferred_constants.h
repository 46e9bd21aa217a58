/* A loaded graph with deferred constants. A deferred constant is an input of the graph that an
 * operator uses as a constant, such as a scale or a weight. Its value must be known when the graph
 * is prepared, but comes with each request. ONNX's own tests pass all their scales and weights in
 * this way. Each request therefore prepares a graph of its own, as for a built-in model. */
#ifndef SERVER_MODELS_DEFERRED_CONSTANTS_H
#define SERVER_MODELS_DEFERRED_CONSTANTS_H

#include "kernels/qk.h"
#include "server/memory/arena.h"

/* Copies the call, with everything it points at, into the arena. Returns NULL if the arena has no
 * room. In the call's nodes, a deferred constant is an input that is not variable and has a type,
 * but no data. The entry of qk_node.inputs, which libqk does not read then, is the number of the
 * graph's input, which is also that of its value. */
struct qk_graph_call *qd_deferred_copy(const struct qk_graph_call *call, struct qd_arena *arena);

/* Prepares the graph with a request's tensors. inputs[i] belongs to the graph's input i. The
 * tensors and `deferred` must outlive the graph. */
enum qk_status qd_deferred_prepare(const struct qk_graph_call *deferred,
                                   const struct qk_kernels *kernels, const struct qk_tensor *inputs,
                                   struct qk_memory memory, struct qk_graph **graph,
                                   struct qk_error *error);

#endif
