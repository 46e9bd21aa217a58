/* What GlobalAveragePool and ReduceMean of FP32 share: the means of rows. Private to kernels/. */
#pragma once

#include "kernels/floats/sums.h"
#include "kernels/operators/operator.h"

/* Fills the plan's units, kernel, run and state, and the output's count. x, input 0, has `length`
 * elements in each row, at least one, and its rows lie one behind the other. The caller has set the
 * type, rank and dims of the output, which has an element for each row. Returns QK_NO_MEMORY if
 * `memory` has run out. */
enum qk_status qk_row_means_plan(enum qk_sum_kind kind, const struct qk_instance *instance,
                                 const struct qk_tensor *x, size_t length, struct qk_memory memory,
                                 struct qk_plan *plan, struct qk_error *error);
