/* Rounds floats to integers, ties to even, for scalar code. Vector kernels do the same with
 * vectors, and get the same integers. Private to kernels/. */
#pragma once

#include <stdint.h>

/* Returns the integer nearest to `value`, ties to even; |value| <= 2^22.
 *
 * Adding 1.5 * 2^23 pushes the fraction out of the significand. The addition itself rounds it, in
 * the default rounding mode, which nothing here ever changes. Unlike lrintf(), this is not a call,
 * so compilers turn loops around it into vector code at -O2. */
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
