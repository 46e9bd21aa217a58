/* Runs operators while a graph is loaded, for passes that compute constants. Private to kernels/.
 */
#pragma once

#include "kernels/qk.h"

/* The most time that all operators may take on one core while a graph is loaded, as their plans
 * guess it. All graphs that share a struct qk_graph_work share this time. Weights of a gigabyte
 * take less than a second; a file that asks for more was made to hold up the loader. */
#define QK_COMPUTE_NS_MAX UINT64_C(1000000000)

/* The most memory that all operators may take together while one graph is loaded, in all passes:
 * results, workspaces, and what their instances and plans keep. All of it stays until the graph is
 * packed. Weights that a graph dequantizes to
 * floats, transposes and quantizes again take 4 + 4 + 1 times their bytes, so QK_COMPUTE_BYTES_EACH
 * bytes for each byte of the constants that the first pass finds are plenty. QK_COMPUTE_BYTES_MIN
 * is for graphs that make small constants larger, such as tables of positions. */
#define QK_COMPUTE_BYTES_EACH 16
#define QK_COMPUTE_BYTES_MIN ((size_t)64 << 20)

/* What the operators of one graph share. */
struct qk_computing {
    const struct qk_kernels *kernels;
    struct qk_memory memory;
    struct qk_graph_work *work; /* of the call; NULL: own_work */
    struct qk_graph_work own_work;
    struct qk_graph_memory *taken; /* of the call; NULL: own_taken */
    struct qk_graph_memory own_taken;
    bool exceeded;
};

/* Starts. Sets the bound of memory by the constants of this graph, if no pass before has set it. */
enum qk_status qk_computing_init(struct qk_computing *computing, const struct qk_kernels *kernels,
                                 const struct qk_graph_call *call, struct qk_memory memory,
                                 struct qk_error *error);

/* Counts time that a pass is about to take. Returns false, and does not count it, if all of it
 * would exceed QK_COMPUTE_NS_MAX: the pass then has to do without. */
bool qk_computing_count(struct qk_computing *computing, uint64_t ns);

/* Runs a call whose inputs are all constant, and makes its outputs: tensors whose data lies in
 * `memory`. Fails if all calls together would take more time or memory than the bounds. The error
 * does not name a node. */
enum qk_status qk_compute(struct qk_computing *computing, const struct qk_call *call,
                          struct qk_tensor outputs[QK_OUTPUT_COUNT_MAX], struct qk_error *error);
