/* The oracle of the tests of QuantizeLinear. It does not compute like kernels/: it computes in
 * doubles, from the types of a call, and searches for the nearest of all values of a type. */
#pragma once

#include "kernels/qk.h"

struct quantize_rule {
    enum qk_type x_type;
    enum qk_type scale_type;
    enum qk_type y_type;
    enum qk_type precision; /* QK_NONE: not given */
    bool saturates;
    unsigned version; /* version of the operator; 0: any before 23 */
};

/* Returns true if ONNX Runtime supports the rule. Otherwise only onnx's reference evaluator
 * does. */
bool quantize_is_onnxruntime(const struct quantize_rule *rule);

/* Returns the type to which x and the scale are rounded before the division, and the quotient after
 * it. QK_NONE means FP64. */
enum qk_type quantize_precision(const struct quantize_rule *rule);

/* Returns the bits of y. `zero` is NULL if there is no zero point. */
uint32_t quantize_expected(const struct quantize_rule *rule, double x, double scale,
                           const double *zero);

/* Return the i-th type of x, of scale or of y that ONNX allows, or QK_NONE. */
enum qk_type quantize_x_type(size_t i);
enum qk_type quantize_scale_type(size_t i);
enum qk_type quantize_y_type(size_t i);

/* Returns the bits of a value of FP32, FP16, BF16, INT32 or FP8E8M0. It may be any value, a special
 * one, or, mostly, one whose quotients of x and scale are small. */
uint32_t quantize_random_x(uint64_t *random, enum qk_type type);
uint32_t quantize_random_scale(uint64_t *random, enum qk_type type);
