/* QuantizeLinear by another way than kernels/ goes: in doubles, from the types of a call, and by
 * looking for the nearest of all values that a type has. */
#ifndef TESTS_SUPPORT_KERNELS_QUANTIZE_ORACLE_H
#define TESTS_SUPPORT_KERNELS_QUANTIZE_ORACLE_H

#include "kernels/qk.h"

struct quantize_rule {
    enum qk_type x_type;
    enum qk_type scale_type;
    enum qk_type y_type;
    enum qk_type precision; /* QK_NONE: not given */
    bool saturates;
    unsigned version; /* of the operator; 0: any before 23 */
};

/* Whether ONNX Runtime has it, and not onnx's reference evaluator alone. */
bool quantize_is_onnxruntime(const struct quantize_rule *rule);

/* The type that x and the scale are rounded to before the division, and the quotient after it;
 * QK_NONE: FP64. */
enum qk_type quantize_precision(const struct quantize_rule *rule);

/* The bits of y. `zero` is NULL where there is no zero point. */
uint32_t quantize_expected(const struct quantize_rule *rule, double x, double scale,
                           const double *zero);

/* Any type of x, scale and y that a test may want: the i-th of all that ONNX has, or QK_NONE. */
enum qk_type quantize_x_type(size_t i);
enum qk_type quantize_scale_type(size_t i);
enum qk_type quantize_y_type(size_t i);

/* A value of FP32, FP16, BF16, INT32 or FP8E8M0 as its bits: any at all, a special one, or such
 * that quotients of x and scale are small, which most are to be. */
uint32_t quantize_random_x(uint64_t *random, enum qk_type type);
uint32_t quantize_random_scale(uint64_t *random, enum qk_type type);

#endif
