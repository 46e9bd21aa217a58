/* True quotients by products, for the vector tiers. loops.h includes this, behind what a tier's
 * file defines. Only for loops.h. */
#ifndef KERNELS_QUANTIZE_PRODUCTS_H
#define KERNELS_QUANTIZE_PRODUCTS_H

#include "kernels/quantize/quantize.h"

/* Nothing here compiles without a tier's file around it. */
#ifdef CHUNK

/* A vector's division takes the time of ten multiplications. Where many elements have one scale, or
 * its reciprocal r is known, they are divided by fused multiplications, to the same bits: q0 = x *
 * r is off by less than two of its last places, and q0 - (q0 * scale - x) * r by less than 3 / 2^24
 * of one, before it is rounded. Only quotients as near as that to the middle of two floats could
 * round otherwise than the division does; tests/kernels/test_quantize.c goes through all pairs of
 * significands that have such a quotient, and finds the division's bits for each of them.
 * The remainder is taken this way round since so a quotient of -0 stays one.
 *
 * Where x and the scale are BF16, q0 rounded to BF16 is the quotient: it would be wrong next to a
 * tie alone, and there are none, since an x of 8 bits is no product of the scale and an odd number
 * of 9 bits, which the middle of two BF16 is; nor is a quotient of so few bits nearer to one than
 * q0 is to it.
 *
 * All this takes scales for which no remainder overflows. For integers by one scale, x is brought
 * within `reach` scales, beyond which all of them saturate, or are INT32_MIN. By scales of their
 * own, and to floats, what is NaN, infinite or overflows has a quotient of NaN, and is divided
 * again. Where a remainder is subnormal, the quotient may be off, but is so small that it rounds to
 * 0, with its sign, or leaves the zero point as it is. */
struct divisor {
    vector scale;
    vector reciprocal;
    vector low, high; /* of x for integers; what NaN becomes is low */
};

INLINE struct divisor divisor_of(float scale, float reach)
{
    return (struct divisor){splat(scale), divide(splat(1), splat(scale)), splat(-reach * scale),
                            splat(reach * scale)};
}

/* Rounds a number, which is no tie, to BF16; a NaN that a BF16 was stays one. */
INLINE vector nearest_bf16(vector v)
{
    const words sum = add_words(words_of_vector(v), splat_word(0x8000));
    return vector_of_words(and_words(sum, splat_word(0xffff0000)));
}

INLINE vector divide_by(enum qk_division division, vector x, const struct divisor *divisor)
{
    const vector q0 = multiply(x, divisor->reciprocal);
    if (division == QK_DIVISION_BF16)
        return nearest_bf16(q0);
    const vector remainder = multiply_subtract(q0, divisor->scale, x);
    const vector quotient = negated_multiply_add(remainder, divisor->reciprocal, q0);
    return division == QK_DIVISION_FP16 ? round_fp16(quotient) : quotient;
}

#endif

#endif
