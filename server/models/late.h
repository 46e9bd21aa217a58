/* A loaded graph of which requests bring constants, too: inputs of the graph that its operators
 * take once, as ONNX's own tests have all their scales and weights. It is made anew for each
 * request, as a built-in model's is. */
#ifndef SERVER_MODELS_LATE_H
#define SERVER_MODELS_LATE_H

#include "kernels/qk.h"
#include "server/memory/arena.h"
#include "server/models/onnx/onnx.h"

struct qd_late_graph {
    struct qk_graph_call call;
    const struct qd_onnx_late *lates;
    size_t late_count;
};

/* A copy, with all that it points at, in the arena. NULL: the arena has no room. */
struct qd_late_graph *qd_late_copy(const struct qk_graph_call *call,
                                   const struct qd_onnx_late *lates, size_t late_count,
                                   struct qd_arena *arena);

/* Prepares the graph with a request's tensors, one for each of its inputs. These and `late` outlive
 * it. */
enum qk_status qd_late_prepare(const struct qd_late_graph *late, const struct qk_kernels *kernels,
                               const struct qk_tensor *inputs, struct qk_memory memory,
                               struct qk_graph **graph, struct qk_error *error);

#endif
