/* The steps of qk_graph_fuse (qk.h), which makes operators on codes from operators on floats that
 * lie between DequantizeLinear and QuantizeLinear. Private to kernels/. */
#pragma once

#include "kernels/network/edit.h"

/* Returns which inputs of a node have the elements that it moves. 0: the node is no mover. */
uint32_t qk_qdq_moved_inputs(const struct qk_node *node);

/* weights.c: widens constant codes to 8 bits. Gives weights in blocks one scale, or one for each
 * channel, if that is exact. Returns QK_OK or QK_NO_MEMORY. */
enum qk_status qk_qdq_widen(struct qk_edit *edit);

/* moves.c. `order` are the nodes, each behind those that make what it reads. Needs room for a node
 * and two values for each output of a mover, and for each input that it moves. Returns QK_OK or
 * QK_NO_MEMORY. */
enum qk_status qk_qdq_move(struct qk_edit *edit, const uint32_t *order, size_t count);

/* Returns how many nodes, and values, qk_qdq_fuse may add for a node. */
size_t qk_qdq_fused_nodes(const struct qk_node *node);

/* fuse.c. Needs room for the nodes and values of qk_qdq_fused_nodes. */
enum qk_status qk_qdq_fuse(struct qk_edit *edit);
