/* DequantizeLinear and QuantizeLinear nodes as passes see them. Private to kernels/. */
#pragma once

#include "kernels/network/edit.h"

/* The inputs of both operators. */
enum { QK_PAIR_X, QK_PAIR_SCALE, QK_PAIR_ZERO_POINT };

/* What a DequantizeLinear or QuantizeLinear computes with: constants whose data is known. */
struct qk_pair {
    enum qk_type type; /* of the codes */
    bool is_per_tensor;
    int64_t axis; /* as in the file, if there is a scale for each channel */
    struct qk_tensor scale;
    struct qk_tensor zero_point; /* 0 if the file has none */
};

/* Reads a node of `op`, one of the two operators, with codes of 8 or 16 bits or INT32, floats of
 * FP32, and no blocks. Returns false if it is another node. */
bool qk_pair_read(const struct qk_edit *edit, uint32_t node, const struct qk_operator *op,
                  struct qk_pair *pair);

/* Returns whether there is one scale, by which a greater number never has a smaller code. */
bool qk_pair_is_positive(const struct qk_pair *pair);

/* Returns whether both have the same scale and zero point for all of a tensor. */
bool qk_pair_same(const struct qk_pair *a, const struct qk_pair *b);

/* Returns the index of an attribute of an operator, or op->attribute_count. */
size_t qk_pair_attribute(const struct qk_operator *op, const char *name);
