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
 * Where they are FP16, the same holds of q0 rounded to 11 bits. A quotient is more than 2^-23 of it
 * away from the middle of two numbers of 11 bits (quantize.h says why), and q0 is at most 2^-23 of
 * it away from the quotient. Beside FP16 such numbers have no largest and no subnormal ones. From
 * 65520 on, which FP16 rounds to infinity, they saturate all integers just as well. Below 2^-14,
 * where FP16 has fewer bits, integers and E4M3 become 0 or the zero point. Only E5M2 has numbers so
 * small, and only FP4E2M1 adds a zero point to them, so that a quotient that FP16 rounds to -0 can
 * become 0. For these the FP32 quotient is rounded to FP16 itself.
 *
 * All this takes scales for which no remainder overflows. For integers by one scale, x is brought
 * within `reach` scales, beyond which all of them saturate. By scales of their own, and to floats,
 * what is NaN, infinite or overflows has a quotient of NaN, and is divided again. Where a remainder
 * is subnormal, the quotient may be off, but is so small that it rounds to 0, with its sign, or
 * leaves the zero point as it is. */
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

/* Rounds a number that is no tie, so that its last `bits` bits become 0. A NaN stays one where
 * these bits of it are 0, as of a NaN that was a BF16 (16) or an FP16 (13). */
INLINE vector without_bits(vector v, unsigned bits)
{
    const words sum = add_words(words_of_vector(v), splat_word(UINT32_C(1) << (bits - 1)));
    return vector_of_words(and_words(sum, splat_word(UINT32_MAX << bits)));
}

/* x is rounded to the type of the division. `has_small`: subnormal FP16 have to be exact. */
INLINE vector divide_by(enum qk_division division, bool has_small, vector x,
                        const struct divisor *divisor)
{
    const vector q0 = multiply(x, divisor->reciprocal);
    if (division == QK_DIVISION_BF16)
        return without_bits(q0, 16);
    if (division == QK_DIVISION_FP16 && !has_small)
        return without_bits(q0, 13);
    const vector remainder = multiply_subtract(q0, divisor->scale, x);
    const vector quotient = negated_multiply_add(remainder, divisor->reciprocal, q0);
    return division == QK_DIVISION_FP16 ? round_fp16(quotient) : quotient;
}

#endif

#endif
