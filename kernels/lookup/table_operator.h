/* What operators share whose instance is a table of 256 entries (kernels/lookup/lookup.h). Such an
 * operator's input 0 is its only variable input. Private to kernels/. */
#pragma once

#include "kernels/lookup/lookup.h"
#include "kernels/operators/operator.h"

/* Returns the bits of y for an element of x. `context` is the caller's. */
typedef uint8_t (*qk_table_entry_fn)(const void *context, int32_t x);

/* Allocates an instance whose output has the type of input 0, UINT8 or INT8, and fills its table.
 * Returns QK_NO_MEMORY if `memory` has run out. */
enum qk_status qk_table_prepare(const struct qk_call *call, qk_table_entry_fn entry,
                                const void *context, struct qk_memory memory,
                                struct qk_instance **instance, struct qk_error *error);

/* The function `plan` of such an operator's struct qk_operator_code. */
enum qk_status qk_table_plan(const struct qk_instance *instance, const struct qk_tensor *inputs,
                             struct qk_memory memory, struct qk_plan *plan, struct qk_error *error);
