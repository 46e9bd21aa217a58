/* Add, Sub, Mul, Div, Min and Max on INT32 and INT64, for operators that also have FP32. Private to
 * kernels/.
 *
 * Sums, differences and products that overflow wrap. A quotient is rounded towards 0, and that of
 * the least integer and -1 is the least integer. A plan refuses a divisor of 0 if it knows the
 * divisor. In a run, the quotient of a divisor of 0 is 0. */
#pragma once

#include "kernels/operators/integer/pointwise.h"

#define QK_INTEGER_TYPES (QK_BIT(QK_INT32) | QK_BIT(QK_INT64))

enum qk_integer_operation {
    QK_INTEGER_ADD,
    QK_INTEGER_SUB,
    QK_INTEGER_MUL,
    QK_INTEGER_DIV,
    QK_INTEGER_MIN,
    QK_INTEGER_MAX,
    QK_INTEGER_MOD /* the sign of the divisor, as in Python */
};

/* Plans output 0 = inputs[0] operation inputs[1]. Both have one of QK_INTEGER_TYPES. */
enum qk_status qk_integer_plan(const struct qk_instance *instance,
                               enum qk_integer_operation operation, const struct qk_tensor *inputs,
                               struct qk_memory memory, struct qk_plan *plan,
                               struct qk_error *error);
