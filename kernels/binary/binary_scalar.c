/* The kernels of binary.h in plain C: the reference of all tiers. This file has only single
 * operations on one element. The formulas of binary.h and the loops are in loops.h, at the end. */
#include <math.h>

#include "kernels/binary/binary.h"

#define INLINE static inline __attribute__((always_inline))
#define TIER scalar
#define CYCLES 15
#define LANES 1

typedef float vector;
typedef int words;

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

INLINE void store(uint8_t *y, vector a, vector b, vector c, vector d, bool is_signed, bool stream)
{
    (void)stream;
    y[0] = code_of(a, is_signed);
    y[1] = code_of(b, is_signed);
    y[2] = code_of(c, is_signed);
    y[3] = code_of(d, is_signed);
}

INLINE words splat_words(int zero, bool is_signed)
{
    (void)is_signed;
    return zero;
}

INLINE int integer(uint8_t code, bool is_signed)
{
    return is_signed ? (int8_t)code : code;
}

INLINE void products(const uint8_t *first, words first_zero, const uint8_t *second,
                     words second_zero, bool is_signed, vector made[4])
{
    for (size_t i = 0; i < 4; i++)
        made[i] = (float)((integer(first[i], is_signed) - first_zero) *
                          (integer(second[i], is_signed) - second_zero));
}

INLINE void products_by(const uint8_t *codes, words zero, words difference, bool is_signed,
                        vector made[4])
{
    for (size_t i = 0; i < 4; i++)
        made[i] = (float)((integer(codes[i], is_signed) - zero) * difference);
}

INLINE void store_products(uint8_t *y, const vector made[4], bool is_signed, bool stream)
{
    store(y, made[0], made[1], made[2], made[3], is_signed, stream);
}

#define FINISH NULL

#define copy_in memcpy
#define copy_out memcpy

#include "kernels/binary/loops.h"
