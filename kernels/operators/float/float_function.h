/* What operators share that compute FP32 element by element. Such an operator's input 0 is FP32,
 * and so is its output. Private to kernels/. */
#pragma once

#include "kernels/floats/kernels.h"
#include "kernels/operators/operator.h"

/* Allocates an instance of a function of one number (kernels/floats/functions.h) with the
 * parameters a and b. Returns QK_NO_MEMORY if `memory` has run out. */
enum qk_status qk_float_prepare(enum qk_float_unary function, float a, float b,
                                struct qk_memory memory, struct qk_instance **instance,
                                struct qk_error *error);

/* The function `plan` of such an operator's struct qk_operator_code. The output has the shape of
 * input 0. */
enum qk_status qk_float_plan(const struct qk_instance *instance, const struct qk_tensor *inputs,
                             struct qk_memory memory, struct qk_plan *plan, struct qk_error *error);
