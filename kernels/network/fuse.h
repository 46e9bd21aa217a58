/* An operator on floats that becomes one on codes, and what the steps of fuse.c know of it. Private
 * to kernels/. */
#pragma once

#include "kernels/network/pair.h"

/* What an input of the operator on codes is: of the operand that the operator on floats has at
 * `input`, or of the output. */
enum part { NOTHING, CODES, SCALE, ZERO_POINT, BIAS, Y_SCALE, Y_ZERO_POINT };
struct slot {
    enum part part;
    uint32_t input;
};
#define QK_SLOT_OPERAND(input)      \
    {CODES, input}, {SCALE, input}, \
    {                               \
        ZERO_POINT, input           \
    }

/* Which axis of operand 1 may have a scale for each index. */
enum channels { NO_CHANNELS, FIRST_AXIS, LAST_AXIS, GEMM_COLUMNS };

struct fusion;
struct rule {
    const struct qk_operator *from;
    const struct qk_operator *to;
    struct slot slots[9];
    enum channels channels;
    bool has_floats; /* quantd has `from`, too */
    bool one_type;   /* all operands and the output have codes of the same type */
    bool y_as_x;     /* the first operand and the output do */
    bool has_sums;   /* `to` makes sums of INT32, which have no scales yet */
    /* Does the rest, if there is more to do. Returns false if the operator cannot be fused. */
    bool (*adapt)(struct fusion *fusion);
};

struct fusion {
    struct qk_edit *edit;
    const struct rule *rule;
    uint32_t index; /* of the operator on floats */
    uint32_t bias;  /* the node whose input 2, or Add's `bias_input`, is the bias */
    size_t bias_input;
    const char *why; /* the reason of a refusal; NULL: none yet */
    size_t why_port;
    struct qk_pair operands[2];
    uint32_t dequantizers[2];
    bool has_output;
    struct qk_pair output;
    struct qk_node made;
};

/* Reads the DequantizeLinear nodes before the operator. Returns false if the operator cannot be
 * fused, which fusion->why then says. */
bool qk_fusion_read_operands(struct fusion *fusion);

/* Makes the operator on codes. Returns false if this operator stays on floats. */
bool qk_fusion_make(struct fusion *fusion);

/* fuse_ends.c: makes operators on codes whose results are floats, and what they still need, in the
 * place of an operator on floats that no QuantizeLinear has fused. */
enum qk_status qk_fuse_end(struct qk_edit *edit, uint32_t index);

/* Returns whether qk_fuse_end has a rule for an operator. */
bool qk_fuse_end_knows(const struct qk_operator *op);

/* The most nodes that qk_fuse_end adds. */
#define QK_FUSE_END_NODES_MAX 2

/* Reads the bias as floats that are known. Returns false if there is none or memory has run out. */
bool qk_fusion_float_bias(struct fusion *fusion, struct qk_tensor *made);

/* Returns the scale of the sums of channel `channel`. */
float qk_fusion_sum_scale(const struct fusion *fusion, size_t channel);

/* Notes why the operator stays on floats, unless a reason is known. `port` is the index of an input
 * of the operator on floats, or its input_count for the output. Returns false. */
bool qk_fusion_refuse(struct fusion *fusion, size_t port, const char *why);

/* Says of the DequantizeLinear nodes of the operands and of the bias that they are a part of
 * fusion->made. */
void qk_fusion_tell_inputs(const struct fusion *fusion);

/* Puts the reason into the call of the operator on floats, for its error. */
void qk_fusion_note(const struct fusion *fusion);

/* Returns an attribute of the operator on floats. */
const struct qk_attribute *qk_fusion_attribute(const struct qk_node *node, const char *name);

/* Returns whether a factor of the operator on floats, such as Gemm's beta, is 1. */
bool qk_fusion_is_one(const struct fusion *fusion, const char *name);
