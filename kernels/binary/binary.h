/* The core of QLinearAdd and QLinearMul: y = a + b or y = a * b for real numbers that are quantized
 * to 8 bits, where a and b broadcast to the shape of y as in NumPy.
 *
 * The result has ONNX Runtime's bits (onnxruntime/core/mlas/lib/qladd.cpp and qlmul.cpp, on x86
 * CPUs with FMA). Each operation rounds to float32, and fma() rounds once. An operand's real value
 * is (code - zero) * scale.
 *
 *     Add    first  = a_scale / y_scale     offset = y_zero - fma(first, a_zero, second * b_zero)
 *            second = b_scale / y_scale     v      = fma(a, first, fma(b, second, offset))
 *
 *     Mul    scale  = a_scale * b_scale / y_scale
 *            v      = (a - a_zero) * (b - b_zero) * scale + y_zero
 *
 *     y = v rounded to the nearest integer, ties to even, then clamped to y's type
 *
 * The zero point is added before the rounding, so ties fall on even codes. A v that is NaN or does
 * not fit into 32 bits gives the least code, even if it is positive, because x86 converts such a
 * number to the least integer. */
#pragma once

#include "kernels/elementwise/traversal.h"
#include "kernels/lookup/lookup.h"
#include "kernels/qk.h"

/* ---- Kernels ------------------------------------------------------------------------------- */

/* The constants of the formulas above. */
struct qk_binary_args {
    float first;  /* Add: the factor of the first operand; Mul: its zero point */
    float second; /* Add: the factor of the second operand; Mul: its zero point */
    float scale;  /* Mul only */
    float offset; /* Add: the offset; Mul: the zero point of y */
    bool stream;  /* whole vectors of y are written past the caches, if the tier can do that */
};

/* Which operand of a kernel is a single element that repeats. */
enum qk_binary_form {
    QK_BINARY_NONE_REPEATS,
    QK_BINARY_FIRST_REPEATS,
    QK_BINARY_SECOND_REPEATS,
    QK_BINARY_FORM_COUNT
};

/* Computes `count` elements of y, which overlaps no operand. An operand that repeats has 1 element,
 * and any other has `count`. Elements of more than a byte have any alignment. */
typedef void (*qk_binary_fn)(const struct qk_binary_args *args, const uint8_t *first,
                             const uint8_t *second, uint8_t *y, size_t count);

/* Like qk_binary_fn, for `rows` rows of `count` elements each. The second operand has one element
 * for each row. `stream` is not read. */
typedef void (*qk_binary_rows_fn)(const struct qk_binary_args *args, const uint8_t *first,
                                  const uint8_t *second, uint8_t *y, size_t count, size_t rows);

/* All tiers give the same bits. */
struct qk_binary_kernels {
    const char *add_name;
    const char *multiply_name;
    double element_cycles; /* a rough guess: cycles for one element that is in a cache */
    /* A thread calls `finish` after kernels with `stream`, before other threads read y. NULL: there
     * is nothing to do. */
    void (*finish)(void);
    qk_binary_fn add[2][QK_BINARY_FORM_COUNT]; /* [0]: UINT8, [1]: INT8 */
    qk_binary_fn multiply[2][QK_BINARY_FORM_COUNT];
    qk_binary_rows_fn multiply_rows[2];
};

extern const struct qk_binary_kernels qk_binary_kernels__scalar;
extern const struct qk_binary_kernels qk_binary_kernels__avx2;
extern const struct qk_binary_kernels qk_binary_kernels__avx512bw;
extern const struct qk_binary_kernels qk_binary_kernels__neon;

/* ---- Plans --------------------------------------------------------------------------------- */

/* An input of the operator, or its output, as call.c knows them. */
struct qk_binary_operand {
    float scale;
    int32_t zero;
};

struct qk_binary {
    bool multiplies; /* false: adds */
    bool is_signed;  /* INT8; false: UINT8 */
    struct qk_binary_operand a, b, y;
    size_t a_input, b_input; /* the indices of a and b among the operator's inputs */
};

/* Returns whether ONNX Runtime's loop takes one element of a for each of its spans, in which case
 * its Add exchanges the operands (BroadcastLooper in
 * onnxruntime/core/providers/cpu/math/element_wise_ops.h). */
bool qk_binary_first_is_scalar(const struct qk_tensor *a, const struct qk_tensor *b);

/* Two operands that broadcast, and the kernels that compute y from them. */
struct qk_binary_walk {
    const char *name;
    const qk_binary_fn *forms;             /* [QK_BINARY_FORM_COUNT] */
    qk_binary_rows_fn rows;                /* NULL: there is no such kernel */
    struct qk_binary_args args;            /* `stream` is set by the plan */
    void (*finish)(void);                  /* as in qk_binary_kernels */
    const struct qk_lookup_kernel *lookup; /* NULL: no row is looked up */
    size_t lookup_min; /* A row with at least this many elements, one of whose operands repeats, is
                          looked up in a table that the kernel makes of the 256 codes */
    double element_cycles;   /* a rough guess: cycles for one element that is in a cache */
    enum qk_type type;       /* of y */
    size_t element_bytes;    /* of y and of both operands: 1 or 4 */
    size_t a_input, b_input; /* the indices of a and b among the operator's inputs */
    bool exchanged;          /* the first operand of the kernels is b */
};

/* Fills the plan's first output, and its units, kernel, run and state. `inputs` are the operator's.
 * Returns QK_INVALID if the shapes of a and b do not broadcast, or if y is too large, and
 * QK_NO_MEMORY if `memory` has run out. */
enum qk_status qk_binary_walk_plan(const struct qk_binary_walk *walk,
                                   const struct qk_elementwise_tuning *tuning,
                                   const struct qk_instance *instance,
                                   const struct qk_tensor *inputs, struct qk_memory memory,
                                   struct qk_plan *plan, struct qk_error *error);

/* Plans QLinearAdd and QLinearMul, like qk_binary_walk_plan. */
enum qk_status
qk_binary_plan(const struct qk_binary *binary, const struct qk_binary_kernels *kernels,
               const struct qk_lookup_kernel *lookup, const struct qk_elementwise_tuning *tuning,
               const struct qk_instance *instance, const struct qk_tensor *inputs,
               struct qk_memory memory, struct qk_plan *plan, struct qk_error *error);
