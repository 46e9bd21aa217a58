/* The core of onnx.Cast: each element of y is an element of x in another datatype. All tiers give
 * the same bits, which are those of ONNX Runtime on x86:
 *
 *   integer to integer   the lowest bits: 300 becomes 44 as UINT8, and 200 becomes -56 as INT8
 *   float to integer     the fraction is dropped. What does not fit into INT32 (for INT64: into
 *                        INT64), and NaN, becomes the least INT32 (INT64), of which 8 and 16 bits
 *                        keep the lowest bits, 0.
 *   to BOOL              1 unless x is 0 or -0, so also for NaN
 *   to FP32              the nearest number, ties to even
 *   to FP16              the same, after rounding to FP32
 *
 * A NaN becomes a NaN of the same sign. */
#pragma once

#include "kernels/elementwise/traversal.h"
#include "kernels/qk.h"

/* The types of x. A BOOL is read as UINT8. */
enum qk_cast_from {
    QK_CAST_FROM_UINT8,
    QK_CAST_FROM_INT8,
    QK_CAST_FROM_UINT16,
    QK_CAST_FROM_INT16,
    QK_CAST_FROM_INT32,
    QK_CAST_FROM_INT64,
    QK_CAST_FROM_FP16,
    QK_CAST_FROM_FP32,
    QK_CAST_FROM_COUNT
};

/* The types of y. Signed and unsigned integers have the same bits. */
enum qk_cast_to {
    QK_CAST_TO_8_BITS,
    QK_CAST_TO_16_BITS,
    QK_CAST_TO_32_BITS,
    QK_CAST_TO_64_BITS,
    QK_CAST_TO_BOOL,
    QK_CAST_TO_FP16,
    QK_CAST_TO_FP32,
    QK_CAST_TO_COUNT
};

/* Computes `count` elements of y, which does not overlap x. Neither has an alignment. */
typedef void (*qk_cast_fn)(const void *x, void *y, size_t count);

struct qk_cast_kernels {
    const char *name;
    double element_cycles; /* a rough guess: cycles for one element that is in a cache */
    qk_cast_fn run[QK_CAST_FROM_COUNT][QK_CAST_TO_COUNT];
};

extern const struct qk_cast_kernels qk_cast_kernels__scalar;
extern const struct qk_cast_kernels qk_cast_kernels__avx2;
extern const struct qk_cast_kernels qk_cast_kernels__avx512bw;
extern const struct qk_cast_kernels qk_cast_kernels__neon;

/* The types that this core reads and writes. */
#define QK_CAST_TYPES                                                            \
    (QK_BIT(QK_UINT8) | QK_BIT(QK_INT8) | QK_BIT(QK_UINT16) | QK_BIT(QK_INT16) | \
     QK_BIT(QK_INT32) | QK_BIT(QK_INT64) | QK_BIT(QK_BOOL) | QK_BIT(QK_FP16) | QK_BIT(QK_FP32))

/* Fills the plan's first output, and its units, kernel, run and state. Sets plan->is_alias if y has
 * the bits of x. The output has y_type and the shape of x, which is the operator's first input.
 * Returns QK_INVALID if y is too large, and QK_NO_MEMORY if `memory` has run out. */
enum qk_status qk_cast_plan(const struct qk_cast_kernels *kernels,
                            const struct qk_elementwise_tuning *tuning, const struct qk_tensor *x,
                            enum qk_type y_type, struct qk_memory memory, struct qk_plan *plan,
                            struct qk_error *error);
