/* An ONNX file becomes a graph of operators that quantd has, in the words of kernels/qk.h.
 *
 * Pure, but for external data, which a callback reads. The file is hostile: every size is checked
 * before memory is asked for, and the arena's bound is the bound. Errors name the part of the file,
 * the node with its index, name and operator, the field, the rule and what came.
 *
 * What is read: one graph of nodes in ONNX's own domain. Initializers and Constant nodes are
 * constants, also an initializer that is an input too and that ONNX would let a caller override.
 * Other domains, functions in their place, subgraphs, and sparse, sequence and map values are
 * refused where a node needs them. What no node reads is not looked at. */
#ifndef SERVER_MODELS_ONNX_ONNX_H
#define SERVER_MODELS_ONNX_ONNX_H

#include "kernels/qk.h"
#include "server/base/status.h"
#include "server/memory/arena.h"
#include "server/oip/signature.h"

/* Values of all kinds in one file. A graph of QK_GRAPH_NODE_COUNT_MAX nodes needs far less. */
#define QD_ONNX_VALUE_COUNT_MAX 65536

struct qd_onnx_source {
    const char *bytes; /* the file */
    size_t count;
    /* Gives bytes [offset, offset + length) of a file in the model's folder, which `location` names
     * as it stands in the ONNX file: anybody may have written it, and how long the file is has to
     * be looked at before memory is taken. The data lives as long as the arena; it is not read
     * before the graph is prepared or copied, and may come until then. NULL: there is no folder. */
    enum qd_status (*external)(void *context, const char *location, uint64_t offset,
                               uint64_t length, struct qd_arena *arena, const void **data,
                               struct qd_error *error);
    void *context;
};

/* A deferred constant: an input of the graph that a node takes once, as it does scales and weights.
 */
struct qd_onnx_deferred {
    uint32_t node;  /* in call.nodes */
    uint32_t input; /* of its operator */
    uint32_t port;  /* input of the graph */
};

/* All of it, weights too, lies in the arena: what it points at is good until the graph that is made
 * of it is packed. */
struct qd_onnx_graph {
    struct qk_graph_call call;
    const struct qd_port *inputs; /* [call.input_count] */
    struct qd_port *outputs;      /* [call.output_count]; of types that the file may not say: 0 */
    /* Empty for a model that brings its own constants, as nearly all do. Otherwise the graph cannot
     * be prepared at once: each request brings tensors for these ports, and has to put each, as a
     * constant, into call.nodes[node].call.inputs[input] of a copy of the nodes. */
    const struct qd_onnx_deferred *deferred;
    size_t deferred_count;
    uint64_t opset;
    const char *graph_name; /* "": it has none */
    const char *producer;   /* "": unknown */
};

/* QD_INVALID: the file; QD_TOO_LARGE and QD_UNAVAILABLE: the arena's memory; what `external` says.
 */
enum qd_status qd_onnx_read(const struct qd_onnx_source *source, struct qd_arena *arena,
                            struct qd_onnx_graph *graph, struct qd_error *error);

/* Settles what the outputs are: `types` is qk_graph's, or NULL where there are deferred constants.
 * Refuses a file that says otherwise, or nothing where only it could say. */
enum qd_status qd_onnx_settle_outputs(const struct qd_onnx_graph *graph, const enum qk_type *types,
                                      struct qd_error *error);

#endif
