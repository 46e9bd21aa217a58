/* The nodes and values of a prepared graph: what qk_graph_prepare hands to qk_graph_plan and to
 * qk_graph_run. graph.c makes them, graph_plan.c reads them. Private to kernels/. */
#pragma once

#include "kernels/qk.h"

struct qk_graph_node {
    struct qk_instance *instance;
    const char *name;  /* NULL: errors do not name the node */
    uint32_t index;    /* of the node in qk_graph_call.nodes */
    uint32_t number;   /* for errors: its index in its file, if that is known, or `index` */
    size_t pack_begin; /* the graph's first unit of packing that is this node's */
    bool computes;     /* plans compute its outputs, which are planned values */
    bool runs;         /* runs need its outputs */
    /* Values that the node reads and makes. Constant and absent inputs, and indexes beyond the
     * operator's outputs, are QK_VALUE_NONE. */
    uint32_t inputs[QK_INPUT_COUNT_MAX];
    uint32_t outputs[QK_OUTPUT_COUNT_MAX];
};

struct qk_graph_value {
    enum qk_placement_kind kind; /* QK_PLACEMENT_NONE: not an input of the graph, and made by no
                                    node that runs, so no run reads it */
    enum qk_type type;
    uint32_t port;    /* index of the graph's input or output, or of the planned value; not used for
                         values in the scratch */
    uint32_t maker;   /* the node that makes it, unless it is an input */
    uint32_t output;  /* which of that node's outputs */
    uint32_t last;    /* the last node that makes it or reads it in a run */
    uint32_t planned; /* its index if plans compute it, or QK_VALUE_NONE; an output of the graph may
                         have one, too */
    bool from_shapes; /* it follows from shapes alone, so plans could compute it */
    bool is_planned;  /* a plan depends on its data */
    bool is_read;     /* a run reads it from the scratch or from an output */
};

/* Returns the number of nodes[index] of a call in error texts. */
uint32_t qk_graph_node_number(const struct qk_node *node, uint32_t index);

/* Returns the first value that a node reads and that does not follow from shapes alone. Inputs of
 * which only the shape counts do not matter. Returns QK_VALUE_NONE if there is none, so that the
 * node's outputs follow from shapes alone, too. */
uint32_t qk_graph_find_unplanned(const struct qk_graph *graph, const struct qk_graph_node *node,
                                 const struct qk_operator *op);

/* Decides which nodes compute planned values, and which nodes run. Sets the kind of all values that
 * nodes make, and their last readers. */
void qk_graph_decide(struct qk_graph *graph);

/* Decides where each value lies, and fills in the placements of all nodes. Nodes that then have
 * nothing to do get no units. Sets *scratch_bytes. */
enum qk_status qk_graph_place(const struct qk_graph *graph, struct qk_node_plan *plans,
                              struct qk_memory memory, size_t *scratch_bytes,
                              struct qk_error *error);

/* Fails with `cause`, the error of a node. Puts the node before the text: 'node 3 ("conv1",
 * onnx.QLinearConv): x: ...'. */
enum qk_status qk_graph_fail_in(const struct qk_graph_node *node, const struct qk_operator *op,
                                const struct qk_error *cause, struct qk_error *error);
