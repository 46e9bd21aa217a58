/* What operators share that compute floats element by element. They are plain code, because a graph
 * only uses them to compute tables and constants while it is loaded. Such an operator's input 0 is
 * FP32, and so is its output, which has the same shape. Private to kernels/. */
#ifndef KERNELS_OPERATORS_FLOAT_FLOAT_FUNCTION_H
#define KERNELS_OPERATORS_FLOAT_FLOAT_FUNCTION_H

#include "kernels/operators/operator.h"

/* A function of an element, with up to two parameters. */
struct qk_float_function {
    float (*compute)(const struct qk_float_function *function, float x);
    float a, b;
};

/* Allocates an instance of the function, which is copied. Returns QK_NO_MEMORY if `memory` has run
 * out. */
enum qk_status qk_float_prepare(const struct qk_float_function *function, struct qk_memory memory,
                                struct qk_instance **instance, struct qk_error *error);

/* The function `plan` of such an operator's struct qk_operator_code. */
enum qk_status qk_float_plan(const struct qk_instance *instance, const struct qk_tensor *inputs,
                             struct qk_memory memory, struct qk_plan *plan, struct qk_error *error);

#endif
