/* What the operators that multiply matrices share: rules of their inputs, and lowering to the core
 * (kernels/matmul/matmul.h). Private to kernels/. */
#pragma once

#include "kernels/matmul/matmul.h"
#include "kernels/operators/operator.h"

/* The instance of each of these operators. */
struct qk_matrix_product {
    struct qk_instance base;
    struct qk_matmul matmul;
    struct qk_matmul_desc desc;
    /* Only the shapes, if these are constants. */
    struct qk_tensor b_scale, b_zero_point;
};

/* Checks that a scale or zero point, if it is there, has shape [] or [1]. */
enum qk_status qk_matrix_product_check_single(const struct qk_operator *op, size_t input,
                                              const struct qk_tensor *parameter,
                                              struct qk_error *error);

/* Checks that B, a stack of matrices or a vector, has at least one axis. */
enum qk_status qk_matrix_product_check_b(const struct qk_operator *op, size_t b_input,
                                         const struct qk_tensor *b, struct qk_error *error);

/* Checks the shape of a scale or zero point of B, a stack of matrices [.., K, N]: [], [1], [N] if B
 * has two axes, or B's shape with K replaced by 1. */
enum qk_status qk_matrix_product_check_column(const struct qk_operator *op, size_t input,
                                              const struct qk_tensor *parameter, size_t b_input,
                                              const struct qk_tensor *b, struct qk_error *error);

/* Sets *to to a scale or zero point. Its data is kept if it is a constant, and copied unless it
 * stays. Otherwise it comes with the run, or is absent. Fails with QK_NO_MEMORY. */
enum qk_status qk_matrix_product_keep(const struct qk_call *call, size_t input,
                                      struct qk_memory memory, struct qk_matmul_parameter *to,
                                      struct qk_error *error);

/* Finds the shapes of NumPy's matmul: sets `shape`, and the dims of y. C is not set. */
enum qk_status qk_matrix_product_shape(const struct qk_operator *op, size_t a_input, size_t b_input,
                                       const struct qk_tensor *a, const struct qk_tensor *b,
                                       struct qk_matmul_shape *shape, struct qk_tensor *y,
                                       struct qk_error *error);

/* Prepares the core for made->desc. B is packed if the call gives it. */
enum qk_status qk_matrix_product_prepare(const struct qk_kernels *kernels,
                                         const struct qk_call *call, size_t b_input,
                                         struct qk_memory memory, struct qk_matrix_product *made,
                                         struct qk_error *error);

/* Sets the plan's output y, whose rank and dims are set, and plans the core. */
enum qk_status qk_matrix_product_plan(const struct qk_matrix_product *made,
                                      const struct qk_matmul_shape *shape,
                                      const struct qk_tensor *y, struct qk_memory memory,
                                      struct qk_plan *plan, struct qk_error *error);

void qk_matrix_product_pack(struct qk_instance *instance, size_t begin, size_t end);
