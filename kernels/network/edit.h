/* A copy of a graph call that a pass rewrites: who makes and who reads each value is kept up to
 * date while nodes are replaced, added and removed. Private to kernels/. */
#pragma once

#include "kernels/network/compute.h"
#include "kernels/qk.h"

#define QK_NO_NODE UINT32_MAX

struct qk_edit {
    /* Not changed before qk_edit_end, but for its nodes if node_room is enough for the pass: the
     * edit then does without a copy of them, and the call is of no use if the pass fails. */
    struct qk_graph_call *call;
    struct qk_memory memory;
    struct qk_error *error;
    struct qk_node *nodes;
    size_t node_count;
    size_t node_room, value_room; /* one of each is spare */
    /* A pass asked for less room than it needs, and wrote the spare node or value. The edit then
     * must not end. */
    bool is_full;
    uint32_t *origins;                    /* of each node: the call's node that it comes from */
    const struct qk_operator **operators; /* of each of the call's nodes, before the pass */
    bool *is_removed;                     /* of each node */
    size_t value_count;
    const char **value_names;
    uint32_t *makers; /* of each value: the node that makes it, or QK_NO_NODE */
    uint32_t *reads;  /* of each value: how many inputs read it, one more if it leaves the graph */
    enum qk_type *types; /* of each value; QK_NONE: not known */
    bool is_quantized;   /* a node quantizes, dequantizes or computes quantized values; qk_qdq_fuse
                            sets it */
    uint32_t *dead;      /* nodes that are being removed */
    size_t dead_count;
    struct qk_computing computing; /* not used here: for what a pass computes */
};

/* Begins with a copy of the call, with room for new nodes and new values. Of the types, those of
 * the graph's inputs are known. */
enum qk_status qk_edit_begin(struct qk_edit *edit, size_t new_nodes, size_t new_values);

/* Puts the nodes that are left into the call, in their order. (*origins)[i] says where node i comes
 * from. */
void qk_edit_end(struct qk_edit *edit, const uint32_t **origins);

/* Returns memory for one element more than `count`, so that it is never 0 bytes. NULL: there is
 * none, which is in the error. */
void *qk_edit_take(const struct qk_edit *edit, size_t count, size_t bytes);

/* Returns the value that an input reads. Returns QK_VALUE_NONE if it reads none, or one that the
 * call does not have, which qk_graph_prepare refuses. */
uint32_t qk_edit_value_of(const struct qk_edit *edit, uint32_t node, size_t input);

/* Returns the node that makes the value of an input, or QK_NO_NODE. */
uint32_t qk_edit_maker_of(const struct qk_edit *edit, uint32_t node, size_t input);

/* Has a variable input read another value. A node whose outputs nothing reads any more is removed,
 * and what it read is read once less. */
void qk_edit_set_input(struct qk_edit *edit, uint32_t node, size_t input, uint32_t value);

/* Has an output make another value, which no other node makes. The old value then has no maker. */
void qk_edit_set_output(struct qk_edit *edit, uint32_t node, size_t output, uint32_t value);

/* Removes a node: its inputs read nothing, and its outputs have no maker. */
void qk_edit_remove(struct qk_edit *edit, uint32_t node);

/* Adds a node, whose inputs read values and whose outputs get new makers. */
uint32_t qk_edit_add_node(struct qk_edit *edit, const struct qk_node *node, uint32_t origin);

/* Puts a node into the place of another, which is removed. */
void qk_edit_replace(struct qk_edit *edit, uint32_t index, const struct qk_node *node,
                     uint32_t origin);

/* Adds a value with the name of another. */
uint32_t qk_edit_add_value(struct qk_edit *edit, uint32_t namesake, enum qk_type type);
