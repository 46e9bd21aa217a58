/* Rounds FP32 to floats of 8 and 4 bits, for the quantizers: one rounding to the nearest, ties to
 * even. Private to kernels/.
 *
 * The steps are the same for all formats: only the constants in struct qk_narrow differ. A loop
 * over any format therefore has no branches. Vector kernels take the same steps as qk_narrow. */
#pragma once

#include "kernels/element/float.h"

/* The constants of a format. A magnitude is the bits of an FP32 without the sign. A code is the
 * bits of a number in the format. The examples are those of FP8E4M3FN: 4 bits of exponent, a bias
 * of 7, and 3 bits of mantissa. */
struct qk_narrow {
    uint32_t shift;  /* how many mantissa bits are dropped: 23 - 3 = 20 */
    uint32_t rebias; /* FP32's bias less the format's, at the place of FP32's exponent: (127 - 7) <<
                        23 */
    uint32_t normal; /* the magnitude of the least normal number, 2^-6 */
    uint32_t magic;  /* the magnitude of 2^14, where FP32s are 2^-9 apart, like the format's
                        subnormals: adding it rounds to a multiple of 2^-9 */
    uint32_t largest;     /* the code of the largest number, 448: 0x7e */
    uint32_t beyond;      /* the code of all that rounds to more than the largest number, including
                             infinity */
    uint32_t nan;         /* the code of a NaN without a sign */
    uint32_t sign;        /* the sign bit of a code: negative numbers flip it */
    uint32_t signed_bits; /* the FNUZ formats: all bits but the sign; a code in which they are 0
                             (zero or NaN) has no sign. 0: all codes have a sign */
    /* Magnitudes in [gap, gap_end) become gap_code: the exceptions of ONNX Runtime without
     * saturation (narrow.c). If there are none, both are 0. */
    uint32_t gap;
    uint32_t gap_end;
    uint32_t gap_code;
};

/* Which implementation decides if ONNX's definition leaves a result open, or if the implementation
 * departs from the definition. */
enum qk_narrow_manner {
    QK_NARROW_AS_REFERENCE,  /* onnx's reference evaluator, which casts by ml_dtypes */
    QK_NARROW_AS_ONNXRUNTIME /* include/onnxruntime/core/framework/float8.h */
};

/* Fills in the constants of `type`, which is FP4E2M1 or one of the FP8E4 and FP8E5 types. If
 * `saturates` is false, numbers beyond the largest float8 become infinity if the type has one,
 * otherwise NaN. A float4 always saturates. */
void qk_narrow_init(struct qk_narrow *narrow, enum qk_type type, bool saturates,
                    enum qk_narrow_manner manner);

/* Returns the code of the number nearest to `value`. */
static inline uint32_t qk_narrow(const struct qk_narrow *narrow, float value)
{
    const uint32_t bits = qk_bits_of_float(value);
    const uint32_t magnitude = bits & 0x7fffffff;
    uint32_t code;
    if (magnitude < narrow->normal) {
        const float moved = qk_float_of_bits(magnitude) + qk_float_of_bits(narrow->magic);
        code = qk_bits_of_float(moved) - narrow->magic;
    } else {
        const uint32_t half = (UINT32_C(1) << (narrow->shift - 1)) - 1;
        const uint32_t lowest = magnitude >> narrow->shift & 1; /* rounds ties to even */
        code = (magnitude + half + lowest - narrow->rebias) >> narrow->shift;
    }
    if (code > narrow->largest)
        code = narrow->beyond;
    if (magnitude >= narrow->gap && magnitude < narrow->gap_end)
        code = narrow->gap_code;
    if (magnitude > 0x7f800000)
        code = narrow->nan;
    const bool has_sign = narrow->signed_bits == 0 || (code & narrow->signed_bits) != 0;
    return bits >> 31 && has_sign ? code ^ narrow->sign : code;
}
