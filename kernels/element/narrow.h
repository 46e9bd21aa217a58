/* Rounds FP32 to floats of 8 and 4 bits, once, ties to even. Private to kernels/.
 *
 * Only the constants in struct qk_narrow differ between formats, so a loop over any of them has no
 * branches. Vector kernels use the same steps as qk_narrow. */
#ifndef KERNELS_ELEMENT_NARROW_H
#define KERNELS_ELEMENT_NARROW_H

#include "kernels/element/float.h"

/* The constants of a format. A magnitude is an FP32's bits without the sign. */
struct qk_narrow {
    uint32_t shift;       /* mantissa bits that are dropped */
    uint32_t rebias;      /* what to subtract from a normal number's exponent, at FP32's place */
    uint32_t normal;      /* the magnitude of the least normal number */
    uint32_t magic;       /* the magnitude of the float around which FP32s are as far apart as the
                             format's subnormals */
    uint32_t largest;     /* the code of the largest number */
    uint32_t beyond;      /* the code of everything that rounds to more, including infinity */
    uint32_t nan;         /* the code of a NaN without a sign */
    uint32_t sign;        /* the bits that a negative number's code flips */
    uint32_t signed_bits; /* a code with none of these has no sign; 0: all codes have one */
    /* Magnitudes [gap, gap_end) become gap_code, unless they are NaNs. */
    uint32_t gap;
    uint32_t gap_end;
    uint32_t gap_code;
};

/* Which implementation is followed if the definition of ONNX leaves a result open, or if an
 * implementation departs from the definition. */
enum qk_narrow_manner {
    QK_NARROW_AS_REFERENCE,  /* onnx's reference evaluator, which casts by ml_dtypes */
    QK_NARROW_AS_ONNXRUNTIME /* include/onnxruntime/core/framework/float8.h */
};

/* `type` is FP4E2M1 or one of the FP8E4 and FP8E5 types. Without saturation, numbers beyond the
 * largest float8 become infinity if the type has one, otherwise NaN. A float4 always saturates. */
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

#endif
