/* What operators share that compute plain functions of single elements of up to three operands,
 * which broadcast as NumPy's do. They serve shape arithmetic, whose tensors are tiny, so one
 * element is one call of a function. Private to kernels/. */
#pragma once

#include "kernels/operators/operator.h"

#define QK_POINTWISE_OPERANDS_MAX 3

/* Computes an element of y. Neither the operands nor y are aligned. `size` is the bytes of an
 * element of the last operand. */
typedef void (*qk_pointwise_fn)(const void *const *operands, void *y, size_t size);

/* Plans y = compute(operands) for the operator's first `count` inputs, which have whole bytes.
 * Output 0 gets the type y_type, and the shape to which the operands broadcast. */
enum qk_status qk_pointwise_plan(const struct qk_instance *instance, qk_pointwise_fn compute,
                                 const struct qk_tensor *inputs, size_t count, enum qk_type y_type,
                                 struct qk_memory memory, struct qk_plan *plan,
                                 struct qk_error *error);

/* Extends the shape `y`, which is [] at first, so that x broadcasts to it. `name` is x's. */
enum qk_status qk_broadcast_shape(const struct qk_tensor *x, const char *name, struct qk_tensor *y,
                                  struct qk_error *error);
