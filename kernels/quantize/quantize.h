/* The kernel of every quantizer: for element i of a span, with the parameters q that it names,
 *
 *   y[i] = saturate(round(x[i] / scales[q]) + zeros[q])
 *
 * A true division, rounded once: where a kernel multiplies by the reciprocal, it goes on until it
 * has the same bits (products.h). All tiers give the same bits.
 *
 * ONNX's definition (onnx/defs/quantization/defs.cc) comes first. Where it leaves something open,
 * ONNX Runtime 1.32 (CPU, x86) decides if it has the operator for these types, and onnx's reference
 * evaluator else (onnx 1.23, onnx/reference/ops/op_quantize_linear.py, which is NumPy and
 * ml_dtypes). All of it was run beside both. ONNX Runtime has x and y_scale of FP32 and FP16, but
 * no FP4E2M1 and no division in BF16. tests/conformance/RESULTS.md lists where the definition, two
 * releases of ONNX Runtime and the reference differ.
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
 * A quotient of two FP16 may be rounded to FP32 first: that gives the FP16 of the exact quotient.
 * Let the quotient a / b lie next to m, the middle of two FP16 (or a FP16 itself). Without their
 * powers of two, a and b are integers below 2^11 and m is one below 2^12, so a / b - m is either 0
 * or at least 1 / (m * b) > 2^-23 of m. FP32 has 24 bits and moves a quotient by at most 2^-24 of
 * it, which never reaches m or crosses it. (In general 24 >= 2 * 11 + 2 bits suffice.) No quotient
 * of two FP16 is subnormal or overflows as an FP32.
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
 *   NaN                  with its sign, but FNUZ have one, and  both
 *                        a float4's is -0, and 0 of a NaN       the reference
 *                        with a sign; E5M2's is 0x7f, but       ONNX Runtime
 *                        0x7e where the reference counts        the reference
 */
#ifndef KERNELS_QUANTIZE_QUANTIZE_H
#define KERNELS_QUANTIZE_QUANTIZE_H

#include "kernels/element/narrow.h"
#include "kernels/grain/span.h"
#include "kernels/qk.h"

/* What x and the scale are before the division, and the quotient behind it. */
enum qk_division {
    QK_DIVISION_FP32,
    QK_DIVISION_FP16,
    QK_DIVISION_BF16,
    QK_DIVISION_FP64,
    QK_DIVISION_FP64_INTEGER /* the same, of scales that are int32 */
};

struct qk_quantize_args {
    enum qk_type x_type; /* FP32, FP16, BF16 or INT32 */
    enum qk_type y_type; /* an integer of up to 16 bits, or a float of up to 8 */
    enum qk_division division;
    const struct qk_narrow *narrow; /* floats: how y is rounded */
    /* Scales are floats, rounded as the division wants them, or int32; zeros are int32 where y is
     * an integer, else floats. Offsets, if there are some, are the reciprocals 1 / scale of scales
     * that are divisors, by which tiers may divide. */
    struct qk_span span;
};

/* Scales that a tier may divide by with products, as products.h says; and whether the types are
 * such. (NaN of FP32 may become 0 when products are rounded to BF16.) */
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

/* Tiers go by so many elements. */
#define QK_QUANTIZE_CHUNK ((size_t)64)

struct qk_quantize_kernels {
    const char *name; /* of the tier that fills the table: "quantize_avx2" */
    /* A tier's: both firsts are 0, `count` is at least QK_QUANTIZE_CHUNK, of whole bytes of y, and
     * where that is streamed of whole cache lines and chunks; blocks are of QK_BLOCK_MIN elements
     * or more, or of 1 without a period. */
    qk_quantize_fn run;
    void (*finish)(void);  /* after the last streaming call, before others may read y */
    double element_cycles; /* a rough guess for one element, in a cache */
};

/* Any count from any element on: by the tier's kernel, and what that cannot take by scalar. Where
 * y begins within a byte, the elements before it stay as they are; those behind the last one, in
 * its byte, become 0. */
void qk_quantize(const struct qk_quantize_kernels *kernels, const struct qk_quantize_args *args);

/* The scalar kernel, which is the reference, takes every span. */
void qk_quantize_scalar(const struct qk_quantize_args *args);

/* Each fills the entries that its tier has. */
void qk_quantize_init_scalar(struct qk_quantize_kernels *kernels);
void qk_quantize_init_avx2(struct qk_quantize_kernels *kernels);
void qk_quantize_init_avx512(struct qk_quantize_kernels *kernels);
void qk_quantize_init_neon(struct qk_quantize_kernels *kernels);

#endif
