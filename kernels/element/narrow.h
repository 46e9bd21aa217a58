/* Floats of 8 and 4 bits, made of FP32 by one rounding, ties to even. Private to kernels/.
 *
 * The formats differ in numbers alone, so that a loop over any of them has no branches, and a
 * vector goes the same way as qk_narrow does. */
#ifndef KERNELS_ELEMENT_NARROW_H
#define KERNELS_ELEMENT_NARROW_H

#include "kernels/element/float.h"

/* Magnitudes are FP32's bits without the sign. */
struct qk_narrow {
    uint32_t shift;   /* mantissa bits that go */
    uint32_t rebias;  /* what a normal number's exponent loses, where FP32 has it */
    uint32_t normal;  /* the magnitude of the least normal number */
    uint32_t magic;   /* that of the float next to which floats are as far apart as subnormals */
    uint32_t largest; /* the code of the largest number */
    uint32_t beyond;  /* and of what rounds to more, infinity too */
    uint32_t nan;     /* of a NaN without a sign */
    uint32_t sign;    /* what a negative number's code turns */
    uint32_t signed_bits; /* a code with none of these has no sign; 0: all codes have one */
    /* Magnitudes [gap, gap_end) become gap_code, before NaNs are looked for. */
    uint32_t gap;
    uint32_t gap_end;
    uint32_t gap_code;
};

/* Whose answers count where ONNX leaves some open, or an implementation has them otherwise. */
enum qk_narrow_manner {
    QK_NARROW_AS_REFERENCE,  /* onnx's reference evaluator, which casts by ml_dtypes */
    QK_NARROW_AS_ONNXRUNTIME /* include/onnxruntime/core/framework/float8.h */
};

/* `type` is FP4E2M1 or one of the FP8E4 and FP8E5 types. Unless it saturates, what is beyond the
 * largest number of a float8 becomes infinity, where the type has one, or NaN; a float4 always
 * saturates. */
void qk_narrow_init(struct qk_narrow *narrow, enum qk_type type, bool saturates,
                    enum qk_narrow_manner manner);

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
        const uint32_t lowest = magnitude >> narrow->shift & 1; /* with it, ties are to even */
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

#endif
