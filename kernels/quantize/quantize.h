/* The kernels of QuantizeLinear, which a traversal calls span by span. Element i of a span, with
 * the parameters q that the span gives it (kernels/elementwise/span.h), becomes
 *
 *   y[i] = saturate(round(x[i] / scales[q]) + zeros[q])
 *
 * The quotient is that of a true division, rounded once. A kernel that multiplies by the reciprocal
 * corrects the product until it has the same bits (products.h). All tiers give the same bits.
 *
 * ONNX's definition (onnx/defs/quantization/defs.cc) comes first. If it leaves something open, ONNX
 * Runtime 1.32 (CPU, x86) decides, provided that it has the operator for these types. Otherwise
 * onnx's reference evaluator decides (onnx 1.23, onnx/reference/ops/op_quantize_linear.py, which is
 * NumPy and ml_dtypes). All results were compared with both. ONNX Runtime has x and y_scale of FP32
 * and FP16, but no FP4E2M1 and no division in BF16. tests/conformance/RESULTS.md lists where the
 * definition, two releases of ONNX Runtime and the reference differ.
 *
 *   x / y_scale          is computed in                         by
 *   -------------------  -------------------------------------  -------------------------------
 *   with `precision`     that type: x and y_scale are rounded   the definition
 *                        to it first, the quotient after
 *   since opset 23       the type of y_scale, in the same way   the definition; the reference
 *                                                               has NumPy's common type of both
 *   INT32 or FP8E8M0     FP64 if one of the two is INT32,       the reference: the definition
 *     y_scale              else FP32                            cannot mean these types
 *   before: INT32 x      FP64                                   the reference
 *           both BF16    BF16                                   the reference
 *           both FP16    FP32; the reference: FP16              ONNX Runtime
 *           both FP32    FP32                                   both
 *
 * Division in FP16 may divide in FP32 and then round to FP16: the two roundings give the FP16 of
 * the exact quotient. They could fail only if the first one moved the quotient a / b onto or across
 * m, the middle of two FP16. Without their powers of two, a and b are integers below 2^11, and m is
 * an integer below 2^12. So a / b is either m or differs from it by at least 1 / (m * b) of m,
 * which is more than 2^-23 of m. FP32 has 24 bits, so rounding to it moves a quotient by at most
 * 2^-24 of its value, which is too little. The same holds if m is an FP16 itself. (In general 24 >=
 * 2 * 11 + 2 bits suffice.) No quotient of two FP16 is subnormal or overflows as an FP32.
 *
 *   to integers          is                                     by
 *   -------------------  -------------------------------------  -------------------------------
 *   rounding             to the nearest, ties to even, before   both
 *                        the zero point is added
 *   infinity, and what   saturated                              the definition and ONNX Runtime;
 *     is beyond 32 bits                                         the reference: INT32_MIN
 *   NaN                  the least of the type                  ONNX Runtime; the reference:
 *                                                               INT32_MIN + zero point
 *
 *   to floats            is                                     by
 *   -------------------  -------------------------------------  -------------------------------
 *   rounding             FP64 to FP32 first, then to the type   both
 *   zero point           of float8s: not read;                  both
 *                        of float4s: added before rounding      the reference
 *   saturate             float8s: what is beyond becomes the    both
 *                        largest number, else NaN or infinity
 *   ... is 0, and ONNX   E4M3FN: magnitudes in [480, 496)       ONNX Runtime, float8.h; the
 *     Runtime has it     become 448, others beyond it NaN;      reference: NaN, infinity
 *                        E5M2: in [61440, 65536) NaN
 *   NaN: E4M3FN          NaN with the sign of the quotient      both
 *     FNUZ types         their only NaN, which has no sign      both
 *     E5M2               0x7f, or 0xff with a sign              ONNX Runtime
 *                        0x7e, or 0xfe with a sign, for types   the reference
 *                        that ONNX Runtime lacks
 *     FP4E2M1            -0, or +0 for a NaN with a sign        the reference
 */
#pragma once

#include "kernels/element/narrow.h"
#include "kernels/elementwise/span.h"
#include "kernels/qk.h"

/* The type of x and the scale before the division, and of the quotient after it. */
enum qk_division {
    QK_DIVISION_FP32,
    QK_DIVISION_FP16,
    QK_DIVISION_BF16,
    QK_DIVISION_FP64,
    QK_DIVISION_FP64_INTEGER /* like FP64, but the scales are int32 */
};

struct qk_quantize_args {
    enum qk_type x_type; /* FP32, FP16, BF16 or INT32 */
    enum qk_type y_type; /* an integer of up to 16 bits, or a float of up to 8 */
    enum qk_division division;
    const struct qk_narrow *narrow; /* how y is rounded, if y is a float */
    /* Scales are floats, already rounded to the type of the division, or int32. Zeros are int32 if
     * y is an integer, else floats. Offsets, if present, are the reciprocals 1 / scale, for tiers
     * that divide by multiplying. They are present only if every scale is a divisor
     * (QK_DIVISOR_LEAST). */
    struct qk_span span;
};

/* A tier may divide by multiplying (products.h) if every scale is a divisor, which is in this
 * range, and if qk_quantize_has_products returns true. A division as BF16 needs an x of BF16,
 * because rounding a product to BF16 could turn an FP32 NaN into 0. */
#define QK_DIVISOR_LEAST 0x1p-60F
#define QK_DIVISOR_MOST 0x1p60F

static inline bool qk_quantize_has_products(enum qk_type x_type, enum qk_division division)
{
    return division < QK_DIVISION_FP64 && (division != QK_DIVISION_BF16 || x_type == QK_BF16);
}

static inline bool qk_is_divisor(float scale)
{
    return scale >= QK_DIVISOR_LEAST && scale <= QK_DIVISOR_MOST;
}

typedef void (*qk_quantize_fn)(const struct qk_quantize_args *args);

/* How many elements vector kernels process at a time. */
#define QK_QUANTIZE_CHUNK ((size_t)64)

struct qk_quantize_kernels {
    const char *name; /* the name of the tier that filled the table: "quantize_avx2" */
    /* The kernel of a tier. The caller guarantees that the span's x_first and y_first are 0 and
     * that `count` is at least QK_QUANTIZE_CHUNK and fills whole bytes of y. If the span is
     * streamed, `count` fills whole cache lines of y and whole chunks. qk_span_takes_blocks is
     * true. */
    qk_quantize_fn run;
    void (*finish)(
        void); /* to be called after the last streaming call, before another thread reads y */
    double element_cycles; /* a rough guess: cycles for one element that is in a cache */
};

/* Quantizes any count of elements, from any element on. Uses the tier's kernel, and the scalar
 * kernel for what the tier's cannot take. If y begins inside a byte, the elements before it in that
 * byte keep their values. The elements after the last one in its byte become 0. */
void qk_quantize(const struct qk_quantize_kernels *kernels, const struct qk_quantize_args *args);

/* The scalar kernel takes every span. It is the reference for all tiers. */
void qk_quantize_scalar(const struct qk_quantize_args *args);

/* Each function puts the kernel of its tier into the table, and leaves the other entries as they
 * are. */
void qk_quantize_init_scalar(struct qk_quantize_kernels *kernels);
void qk_quantize_init_avx2(struct qk_quantize_kernels *kernels);
void qk_quantize_init_avx512(struct qk_quantize_kernels *kernels);
void qk_quantize_init_neon(struct qk_quantize_kernels *kernels);
