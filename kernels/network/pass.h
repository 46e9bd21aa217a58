/* What the passes share that put one node into the place of several: a copy of the nodes, who makes
 * and who reads each value, and which nodes are no longer needed. Private to kernels/. */
#ifndef KERNELS_NETWORK_PASS_H
#define KERNELS_NETWORK_PASS_H

#include "kernels/qk.h"

/* The inputs of DequantizeLinear and QuantizeLinear. */
enum { QK_PASS_X, QK_PASS_SCALE, QK_PASS_ZERO_POINT };

#define QK_NOWHERE UINT32_MAX

struct qk_pass {
    struct qk_graph_call *call;
    struct qk_memory memory;
    struct qk_error *error;
    struct qk_node *nodes; /* a copy of the call's */
    uint32_t *makers;      /* of each value: the node that makes it, or QK_NOWHERE */
    uint32_t
        *reads; /* of each value: how many inputs read it, and one more if it leaves the graph */
    bool *is_removed; /* of each node */
    uint32_t *found;  /* nodes that one node replaces, each behind those whose outputs it reads */
    size_t found_count;
};

/* Returns memory for one element more than `count`, so that there is always one, or NULL. */
void *qk_pass_take(const struct qk_pass *pass, size_t count, size_t bytes);

/* Fails for want of memory. */
enum qk_status qk_pass_no_memory(const struct qk_pass *pass);

/* Copies the nodes of pass->call, and fills all of the pass but its first members. */
enum qk_status qk_pass_start(struct qk_pass *pass);

/* Returns the value that an input reads. Returns QK_VALUE_NONE if it reads none, or one that the
 * call does not have, which qk_graph_prepare refuses. */
uint32_t qk_pass_value(const struct qk_pass *pass, const struct qk_node *node, size_t input);

/* Returns whether a node is this operator, DequantizeLinear or QuantizeLinear, and does it by one
 * scale of FP32 and one zero point that are known. It then reads a value. */
bool qk_pass_is_per_tensor(const struct qk_pass *pass, const struct qk_node *node,
                           const struct qk_operator *op);

/* Returns the type of codes that a per-tensor QuantizeLinear or DequantizeLinear has, or QK_NONE if
 * it is not known here. Without a zero point, x of a DequantizeLinear has the type that its maker
 * or the graph's caller gives it. */
enum qk_type qk_pass_code_type(const struct qk_pass *pass, const struct qk_node *node);

/* Makes the last of pass->found a node of another operator. Its inputs are those of `call` and the
 * values of `inputs`. Nodes of pass->found that nothing else reads are removed. */
void qk_pass_replace(struct qk_pass *pass, const struct qk_call *call, const uint32_t *inputs);

/* Gives the call the nodes that are left, and (*origins)[i], the index that node i had. */
enum qk_status qk_pass_finish(struct qk_pass *pass, const uint32_t **origins);

#endif
