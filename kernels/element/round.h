/* Ties to even, in one place. Private to kernels/. */
#ifndef KERNELS_ELEMENT_ROUND_H
#define KERNELS_ELEMENT_ROUND_H

#include <stdint.h>

/* The integer nearest to `value`, ties to even; |value| <= 2^22.
 *
 * Adding 1.5 * 2^23 pushes the fraction out of the significand, and the addition itself rounds it,
 * in the default rounding mode, which nothing here ever changes. Unlike lrintf() it is no call, so
 * loops around it become vector code at -O2. */
static inline int32_t qk_round_even_small(float value)
{
    const float shift = 0x1.8p23f;
    return (int32_t)((value + shift) - shift);
}

/* The integer nearest to `value`, ties to even; INT32_MIN where that is not within 32 bits, and of
 * NaN: what x86 converts to. Doubles from 2^52 on have no fraction to push out. */
static inline int32_t qk_round_even(double value)
{
    const double magnitude = value < 0 ? -value : value;
    const double shift = 0x1p52;
    const double rounded = magnitude < shift ? (magnitude + shift) - shift : magnitude;
    const double result = value < 0 ? -rounded : rounded;
    return result >= -0x1p31 && result < 0x1p31 ? (int32_t)result : INT32_MIN;
}

#endif
