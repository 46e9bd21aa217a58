/* The kernels of binary.h, which all tiers share. A tier's file defines what differs, and then
 * includes this header:
 *
 *     TIER, CYCLES                 the tier's name, and cycles for one element
 *     LANES                        how many floats a vector has
 *     vector                       its type
 *     splat(f)                     a vector of equal elements
 *     widen(codes, is_signed)      LANES codes as floats
 *     fused(a, b, c)               a * b + c, rounded once
 *     multiply(a, b), add(a, b), subtract(a, b)
 *     store(y, a, b, c, d, is_signed)   stores 4 * LANES codes: rounds, and clamps as binary.h says
 */
#ifndef KERNELS_BINARY_LOOPS_H
#define KERNELS_BINARY_LOOPS_H

/* Nothing here compiles without a tier's file around it. */
#ifdef LANES

#include <string.h>

/* How many elements a loop takes at a time. */
#define CHUNK (4 * (size_t)LANES)

/* The constants of struct qk_binary_args in every lane. */
struct constants {
    vector first, second, scale, offset;
    vector repeated; /* what the operand that repeats contributes */
};

/* Adds LANES elements. */
INLINE vector add_lanes(const struct constants *c, const uint8_t *first, const uint8_t *second,
                        bool is_signed, enum qk_binary_form form)
{
    const vector a = form == QK_BINARY_FIRST_REPEATS ? c->repeated : widen(first, is_signed);
    const vector inner = form == QK_BINARY_SECOND_REPEATS
                             ? c->repeated
                             : fused(widen(second, is_signed), c->second, c->offset);
    return fused(a, c->first, inner);
}

/* Multiplies LANES elements. Differences of codes and zero points, and the product of two of them,
 * are exact. */
INLINE vector multiply_lanes(const struct constants *c, const uint8_t *first, const uint8_t *second,
                             bool is_signed, enum qk_binary_form form)
{
    const vector a =
        form == QK_BINARY_FIRST_REPEATS ? c->repeated : subtract(widen(first, is_signed), c->first);
    const vector b = form == QK_BINARY_SECOND_REPEATS
                         ? c->repeated
                         : subtract(widen(second, is_signed), c->second);
    return add(multiply(multiply(a, b), c->scale), c->offset);
}

INLINE vector lanes(const struct constants *c, const uint8_t *first, const uint8_t *second,
                    size_t i, bool multiplies, bool is_signed, enum qk_binary_form form)
{
    first += form == QK_BINARY_FIRST_REPEATS ? 0 : i;
    second += form == QK_BINARY_SECOND_REPEATS ? 0 : i;
    return multiplies ? multiply_lanes(c, first, second, is_signed, form)
                      : add_lanes(c, first, second, is_signed, form);
}

INLINE void compute_chunk(const struct constants *c, const uint8_t *first, const uint8_t *second,
                          uint8_t *y, bool multiplies, bool is_signed, enum qk_binary_form form)
{
    store(y, lanes(c, first, second, 0, multiplies, is_signed, form),
          lanes(c, first, second, LANES, multiplies, is_signed, form),
          lanes(c, first, second, 2 * LANES, multiplies, is_signed, form),
          lanes(c, first, second, 3 * LANES, multiplies, is_signed, form), is_signed);
}

INLINE float value_of(uint8_t code, bool is_signed)
{
    return is_signed ? (float)(int8_t)code : (float)code;
}

INLINE struct constants constants_of(const struct qk_binary_args *args, const uint8_t *first,
                                     const uint8_t *second, bool multiplies, bool is_signed,
                                     enum qk_binary_form form)
{
    struct constants c = {splat(args->first), splat(args->second), splat(args->scale),
                          splat(args->offset), splat(0)};
    if (form == QK_BINARY_FIRST_REPEATS)
        c.repeated = splat(value_of(*first, is_signed) - (multiplies ? args->first : 0));
    if (form == QK_BINARY_SECOND_REPEATS)
        c.repeated = multiplies ? splat(value_of(*second, is_signed) - args->second)
                                : fused(splat(value_of(*second, is_signed)), c.second, c.offset);
    return c;
}

/* Computes a chunk for the last `count` elements, which are fewer, in buffers of its own. */
INLINE void compute_rest(const struct constants *c, const uint8_t *first, const uint8_t *second,
                         uint8_t *y, size_t count, bool multiplies, bool is_signed,
                         enum qk_binary_form form)
{
    uint8_t a[CHUNK] = {0};
    uint8_t b[CHUNK] = {0};
    uint8_t made[CHUNK];
    memcpy(a, first, form == QK_BINARY_FIRST_REPEATS ? 1 : count);
    memcpy(b, second, form == QK_BINARY_SECOND_REPEATS ? 1 : count);
    compute_chunk(c, a, b, made, multiplies, is_signed, form);
    memcpy(y, made, count);
}

INLINE void compute(const struct qk_binary_args *args, const uint8_t *first, const uint8_t *second,
                    uint8_t *y, size_t count, bool multiplies, bool is_signed,
                    enum qk_binary_form form)
{
    const struct constants c = constants_of(args, first, second, multiplies, is_signed, form);
    const size_t first_step = form == QK_BINARY_FIRST_REPEATS ? 0 : CHUNK;
    const size_t second_step = form == QK_BINARY_SECOND_REPEATS ? 0 : CHUNK;
    for (; count >= CHUNK; count -= CHUNK) {
        compute_chunk(&c, first, second, y, multiplies, is_signed, form);
        first += first_step;
        second += second_step;
        y += CHUNK;
    }
    if (count > 0)
        compute_rest(&c, first, second, y, count, multiplies, is_signed, form);
}

#define KERNEL(name, multiplies, is_signed, form)                             \
    static void name(const struct qk_binary_args *args, const uint8_t *first, \
                     const uint8_t *second, uint8_t *y, size_t count)         \
    {                                                                         \
        compute(args, first, second, y, count, multiplies, is_signed, form);  \
    }

#define KERNELS(name, multiplies, is_signed)                             \
    KERNEL(name, multiplies, is_signed, QK_BINARY_NONE_REPEATS)          \
    KERNEL(name##_first, multiplies, is_signed, QK_BINARY_FIRST_REPEATS) \
    KERNEL(name##_second, multiplies, is_signed, QK_BINARY_SECOND_REPEATS)

KERNELS(add_u8, false, false)
KERNELS(add_s8, false, true)
KERNELS(multiply_u8, true, false)
KERNELS(multiply_s8, true, true)

#define FORMS(name)                        \
    {                                      \
        name, name##_first, name##_second, \
    }
#define NAME(prefix, tier) prefix##tier
#define NAME_OF(prefix, tier) NAME(prefix, tier)
#define TEXT(tokens) #tokens
#define TEXT_OF(tokens) TEXT(tokens)

const struct qk_binary_kernels NAME_OF(qk_binary_kernels__, TIER) = {
    .add_name = "add_" TEXT_OF(TIER),
    .multiply_name = "multiply_" TEXT_OF(TIER),
    .element_cycles = CYCLES,
    .add = {FORMS(add_u8), FORMS(add_s8)},
    .multiply = {FORMS(multiply_u8), FORMS(multiply_s8)},
};

#endif
#endif
