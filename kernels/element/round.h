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

/* Like qk_round_even_small, for |value| <= 2^30. */
static inline int32_t qk_round_even(double value)
{
    const double shift = 0x1.8p52;
    return (int32_t)((value + shift) - shift);
}

#endif
