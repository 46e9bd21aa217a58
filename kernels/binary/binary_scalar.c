/* The kernels of binary.h in plain C: the reference of all tiers. This file has only single
 * operations on one element. The formulas of binary.h and the loops are in loops.h, at the end. */
#include <math.h>

#include "kernels/binary/binary.h"

#define INLINE static inline __attribute__((always_inline))
#define TIER scalar
#define CYCLES 15
#define LANES 1

typedef float vector;

INLINE vector splat(float value)
{
    return value;
}

INLINE vector widen(const uint8_t *codes, bool is_signed)
{
    return is_signed ? (float)(int8_t)*codes : (float)*codes;
}

INLINE vector fused(vector a, vector b, vector c)
{
    return fmaf(a, b, c);
}

INLINE vector multiply(vector a, vector b)
{
    return a * b;
}

INLINE vector add(vector a, vector b)
{
    return a + b;
}

INLINE vector subtract(vector a, vector b)
{
    return a - b;
}

/* Clamps v before rounding it, which gives the same code because both limits are integers. NaN and
 * what does not fit into 32 bits become `low`. */
INLINE uint8_t code_of(float v, bool is_signed)
{
    const float low = is_signed ? -128.0F : 0.0F;
    const float high = is_signed ? 127.0F : 255.0F;
    if (!(v > low && v < 0x1p31F))
        return (uint8_t)(int)low;
    return (uint8_t)(int)rintf(v < high ? v : high);
}

INLINE void store(uint8_t *y, vector a, vector b, vector c, vector d, bool is_signed)
{
    y[0] = code_of(a, is_signed);
    y[1] = code_of(b, is_signed);
    y[2] = code_of(c, is_signed);
    y[3] = code_of(d, is_signed);
}

#include "kernels/binary/loops.h"
