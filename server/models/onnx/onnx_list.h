/* Lists the nodes of an ONNX file as the file has them, for people, and finds parts that could run.
 * Pure. */
#pragma once

#include "server/models/onnx/onnx.h"

/* The most nodes that are listed. A graph that runs has fewer (QK_GRAPH_NODE_COUNT_MAX), but a file
 * may have Constant nodes, and nodes that no output needs. */
#define QD_ONNX_LISTED_MAX ((size_t)16384)

/* The most refusals that are listed with their reason. */
#define QD_ONNX_REFUSALS_MAX ((size_t)256)

/* What became of a node of the file: constant, name in JSON, words for people. In these, %s is the
 * operator that it runs as, and %u is node `into`. The order counts: a node that became several has
 * the first of their fates, so those that runs compute come first (explain/nodes.c, which finds the
 * fates of nodes that are READ here). */
#define QD_FATE_LIST(X)                                                                         \
    X(READ, "read", "")           /* the model is refused, but not because of this node */      \
    X(OPERATOR, "operator", "%s") /* runs compute it */                                         \
    X(TABLE, "table", "a table")  /* runs look it up in a table, with other nodes */            \
    X(ALIAS, "alias", "%s, moves nothing")           /* its outputs lie where its inputs lie */ \
    X(PLANNED, "planned", "%s, once for each shape") /* shapes depend on it */                  \
    X(UNUSED, "unused", "%s, needed by no run")                                                 \
    X(FOLDED, "folded", "a constant")                                                           \
    X(FUSED, "fused", "in node %u")                                                             \
    X(IN_TABLE, "in_table", "in node %u")        /* which is the table */                       \
    X(CANCELLED, "cancelled", "cancels node %u") /* undoes what that does */                    \
    X(REMOVED, "removed", "no node needs it")                                                   \
    X(CONSTANT, "constant", "a constant")         /* a Constant node */                         \
    X(LEFT_OUT, "left_out", "no output needs it") /* or it is cut off */                        \
    X(REFUSED, "refused", "refused")              /* qd_onnx_read would refuse it */

enum qd_onnx_fate {
#define X(name, json, words) QD_FATE_##name,
    QD_FATE_LIST(X)
#undef X
};

struct qd_onnx_listed {
    /* In the arena. Bytes that are no UTF-8, and control characters, may be among them. */
    const char *name;          /* "" if it has none */
    const char *operator_name; /* "Conv" or, of other domains, "com.microsoft.QLinearAdd" */
    const uint32_t *reads;     /* [read_count]: the listed nodes whose outputs it reads */
    size_t read_count;
    enum qd_onnx_fate fate;
    const char *refusal; /* why it is refused, without the node's name; NULL: not said */
    /* Not known before the graph is prepared. */
    uint32_t into;            /* index of a node in the file, or QK_VALUE_NONE */
    const char *runs_as;      /* quantd's operator, if runs or plans compute it; or NULL */
    const char *kernel;       /* NULL: not known */
    uint64_t multiplications; /* for the sizes of the plan */
};

struct qd_onnx_list {
    struct qd_onnx_listed *nodes; /* [count]: those of the file, in its order */
    size_t count;
    size_t unlisted; /* nodes behind those that are listed */
};

/* Lists the nodes of a file that is refused, as source->cut cuts it, and finds all nodes that would
 * be refused, not only the first. Takes time that is linear in the size of the file. Fails if the
 * file is not one, or if the arena has no room. Reads no external data. (qd_onnx_read lists those
 * of a file that it reads.)
 */
enum qd_status qd_onnx_list_refused(const struct qd_onnx_source *source, struct qd_arena *arena,
                                    struct qd_onnx_list *list, struct qd_error *error);

/* ---- Parts that could run alone, although a node is refused: onnx_parts.c ------------------ */

/* A part that needs no refused node. */
struct qd_onnx_part {
    struct qd_onnx_cut cut; /* cuts the file at the part's borders; its names lie in the arena */
    size_t node_count;      /* how many of the nodes compute from the inputs; 0: there is no part */
};

struct qd_onnx_parts {
    size_t node_count;          /* how many nodes of the file compute from the inputs */
    struct qd_onnx_part before; /* nodes that do not depend on a refused node */
    struct qd_onnx_part
        after; /* nodes on which no refused node depends, except those of `before` */
};

/* Finds the parts of a file, as source->cut cuts it. A node is refused if quantd does not have its
 * operator, or if qd_onnx_read would refuse it for another reason. `also` are indexes of further
 * nodes in the file that count as refused. A part counts only if it has at least two nodes, and a
 * sixteenth of the weights: the first two nodes of a network are no help to anybody. Takes time
 * that is linear in the size of the file. Returns false if the file cannot be looked at, such as
 * for want of memory. */
bool qd_onnx_find_parts(const struct qd_onnx_source *source, const uint32_t *also,
                        size_t also_count, struct qd_arena *arena, struct qd_onnx_parts *parts);
