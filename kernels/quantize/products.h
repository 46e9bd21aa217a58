/* Divides vectors by multiplying with reciprocals, for the loops of the quantizers, and gets the
 * same bits as a true division. Only for loops.h, which includes this after a tier's file has
 * defined its vectors and their arithmetic. */
#pragma once

#include "kernels/quantize/quantize.h"

/* Nothing here compiles without a tier's file around it. */
#ifdef CHUNK

/* A scale to divide by, as multiplications need it.
 *
 * Dividing a vector takes as long as ten multiplications. If many elements share a scale, or if the
 * reciprocal r of each scale is known, the quotients are therefore computed by fused
 * multiplications. The result has the same bits as the division. The reason depends on the type of
 * the division:
 *
 * FP32. Let q0 be x * r, rounded. It is off by less than two units in its last place. The result is
 * q0 - (q0 * scale - x) * r. Before it is rounded, it is off by less than 3 / 2^24 of such a unit.
 * It can round differently from the division only if the true quotient is that close to the middle
 * of two floats. tests/kernels/test_quantize.c goes through all pairs of significands with such a
 * quotient, and finds the division's bits for each pair. The remainder is q0 * scale - x, and not x
 * - q0 * scale, so that a quotient of -0 stays -0.
 *
 * BF16, if x and the scale are BF16. q0 rounded to BF16 is the result. This could be wrong only if
 * the true quotient were a tie, or closer to a tie than to q0. A tie is the middle of two BF16: an
 * odd number of 9 bits, times a power of two. The quotient is never a tie, because an x of 8 bits
 * is not the product of the scale and an odd number of 9 bits. Nor can a quotient of numbers with
 * so few bits be that close to a tie.
 *
 * FP16, if x and the scale are FP16. q0 rounded to 11 bits is the result. The true quotient differs
 * from each tie by more than 2^-23 of its value (quantize.h says why), and from q0 by at most 2^-23
 * of its value. Rounding to 11 bits differs from rounding to FP16 in two ranges. From 65520 on,
 * FP16 rounds to infinity. Numbers of 11 bits stay finite there, but saturate all integers just as
 * infinity does. Below 2^-14, FP16 is subnormal and has fewer bits. There integers and E4M3 become
 * 0 or the zero point in both ways. Two types of y depend on the exact FP16: E5M2, which has
 * numbers that small, and FP4E2M1, whose zero point is added before rounding, so that a quotient
 * that FP16 rounds to -0 can become 0. For these two, the FP32 quotient is rounded to FP16 itself.
 *
 * All this needs scales for which no remainder overflows (qk_is_divisor). If integers share one
 * scale, x is clamped to `reach` times the scale, beyond which all integers saturate. If elements
 * have scales of their own, or y is a float, the quotient is NaN for an x that is NaN or infinite,
 * or if a product overflows; the caller then divides again. If a remainder is subnormal, the
 * quotient may be off, but it is so small that it rounds to 0, with its sign, or leaves the zero
 * point as it is. */
struct divisor {
    vector scale;
    vector reciprocal;
    vector low, high; /* if y is an integer, x is clamped to [low, high]; a NaN becomes `low` */
};

INLINE struct divisor divisor_of(float scale, float reach)
{
    return (struct divisor){splat(scale), divide(splat(1), splat(scale)), splat(-reach * scale),
                            splat(reach * scale)};
}

/* Rounds a number so that its last `bits` bits become 0. The number must not be a tie. A NaN stays
 * a NaN if these bits of it are 0, as they are if it was a BF16 (`bits` is 16) or an FP16 (13). */
INLINE vector without_bits(vector v, unsigned bits)
{
    const words sum = add_words(words_of_vector(v), splat_word(UINT32_C(1) << (bits - 1)));
    return vector_of_words(and_words(sum, splat_word(UINT32_MAX << bits)));
}

/* Returns x / scale, rounded as the type of the division requires. The caller has rounded x to that
 * type. `has_small`: an FP16 quotient below 2^-14 must be exact, so it is rounded to FP16 itself;
 * otherwise FP16 quotients are rounded to 11 bits. */
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
