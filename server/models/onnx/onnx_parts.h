/* Which parts of an ONNX file could run alone, although a node of it is refused. Pure. */
#ifndef SERVER_MODELS_ONNX_ONNX_PARTS_H
#define SERVER_MODELS_ONNX_ONNX_PARTS_H

#include "server/models/onnx/onnx.h"

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

#endif
