/* The kernels of binary.h, which all tiers share. A tier's file defines what differs, and then
 * includes this header:
 *
 *     TIER, CYCLES                 the tier's name, and cycles for one element
 *     LANES                        how many floats a vector has
 *     vector                       its type
 *     splat(f)                     a vector of equal elements
 *     widen(codes, is_signed)      LANES codes as floats
 *     fused(a, b, c)               a * b + c, rounded once
 *     multiply(a, b), add(a, b)
 *     store(y, a, b, c, d, is_signed, stream)   stores 4 * LANES codes, in this order: rounds, and
 *                                  clamps as binary.h says. With `stream`, y is aligned to a vector
 *     words, splat_words(n, is_signed)      an integer in every lane: a zero point or, with
 *                                  is_signed false, the difference of a code and its zero point
 *     products(first, first_zero, second, second_zero, is_signed, made)
 *                                  makes 4 * LANES products of codes less zero points, as floats,
 *                                  in an order that suits the tier
 *     products_by(codes, zero, difference, is_signed, made)   the same, if an operand repeats
 *     store_products(y, made, is_signed, stream)   stores such vectors in the order of the codes
 *     copy_in(to, from, count)     copies fewer than 4 * LANES codes to a buffer of 4 * LANES
 *     copy_out(to, from, count)    copies as many codes out of such a buffer
 *     FINISH                       what qk_binary_kernels.finish is
 */
#pragma once

/* Nothing here compiles without a tier's file around it. */
#ifdef LANES

#include <string.h>

/* How many elements a loop takes at a time. */
#define CHUNK (4 * (size_t)LANES)

/* How many bytes ahead the operands are prefetched if y is stored past the caches. The CPU's own
 * prefetching stops at the end of a page; with this, twice as many bytes are moved in a second. */
#define PREFETCH_BYTES 4096

/* Prefetches what comes PREFETCH_BYTES behind the next chunk. */
INLINE void prefetch(const uint8_t *codes)
{
    __builtin_prefetch((const char *)codes + PREFETCH_BYTES);
}

/* The constants of struct qk_binary_args in every lane. */
struct constants {
    vector first, second, scale, offset;
    vector repeated;               /* Add: what the operand that repeats contributes */
    words first_zero, second_zero; /* Mul */
    words difference;              /* Mul: the operand that repeats less its zero point */
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

INLINE vector add_at(const struct constants *c, const uint8_t *first, const uint8_t *second,
                     size_t i, bool is_signed, enum qk_binary_form form)
{
    return add_lanes(c, first + (form == QK_BINARY_FIRST_REPEATS ? 0 : i),
                     second + (form == QK_BINARY_SECOND_REPEATS ? 0 : i), is_signed, form);
}

/* Multiplies 4 * LANES elements. Differences of codes and zero points, and the product of two of
 * them, are exact as integers and as floats. */
INLINE void multiply_chunk(const struct constants *c, const uint8_t *first, const uint8_t *second,
                           uint8_t *y, bool is_signed, enum qk_binary_form form, bool stream)
{
    vector made[4];
    if (form == QK_BINARY_FIRST_REPEATS)
        products_by(second, c->second_zero, c->difference, is_signed, made);
    else if (form == QK_BINARY_SECOND_REPEATS)
        products_by(first, c->first_zero, c->difference, is_signed, made);
    else
        products(first, c->first_zero, second, c->second_zero, is_signed, made);
#pragma GCC unroll 4
    for (size_t i = 0; i < 4; i++) /* unrolled, so that `made` stays in registers */
        made[i] = add(multiply(made[i], c->scale), c->offset);
    store_products(y, made, is_signed, stream);
}

INLINE void compute_chunk(const struct constants *c, const uint8_t *first, const uint8_t *second,
                          uint8_t *y, bool multiplies, bool is_signed, enum qk_binary_form form,
                          bool stream)
{
    if (multiplies)
        multiply_chunk(c, first, second, y, is_signed, form, stream);
    else
        store(y, add_at(c, first, second, 0, is_signed, form),
              add_at(c, first, second, LANES, is_signed, form),
              add_at(c, first, second, 2 * LANES, is_signed, form),
              add_at(c, first, second, 3 * LANES, is_signed, form), is_signed, stream);
}

INLINE float value_of(uint8_t code, bool is_signed)
{
    return is_signed ? (float)(int8_t)code : (float)code;
}

INLINE struct constants constants_of(const struct qk_binary_args *args, const uint8_t *first,
                                     const uint8_t *second, bool multiplies, bool is_signed,
                                     enum qk_binary_form form)
{
    struct constants c = {.first = splat(args->first),
                          .second = splat(args->second),
                          .scale = splat(args->scale),
                          .offset = splat(args->offset)};
    if (multiplies) {
        c.first_zero = splat_words((int)args->first, is_signed);
        c.second_zero = splat_words((int)args->second, is_signed);
        if (form == QK_BINARY_FIRST_REPEATS)
            c.difference = splat_words((int)(value_of(*first, is_signed) - args->first), false);
        if (form == QK_BINARY_SECOND_REPEATS)
            c.difference = splat_words((int)(value_of(*second, is_signed) - args->second), false);
        return c;
    }
    if (form == QK_BINARY_FIRST_REPEATS)
        c.repeated = splat(value_of(*first, is_signed));
    if (form == QK_BINARY_SECOND_REPEATS)
        c.repeated = fused(splat(value_of(*second, is_signed)), c.second, c.offset);
    return c;
}

/* Computes fewer elements than a chunk, in buffers of its own. */
INLINE void compute_rest(const struct constants *c, const uint8_t *first, const uint8_t *second,
                         uint8_t *y, size_t count, bool multiplies, bool is_signed,
                         enum qk_binary_form form)
{
    uint8_t a[CHUNK] = {0};
    uint8_t b[CHUNK] = {0};
    uint8_t made[CHUNK];
    if (form != QK_BINARY_FIRST_REPEATS)
        copy_in(a, first, count);
    if (form != QK_BINARY_SECOND_REPEATS)
        copy_in(b, second, count);
    compute_chunk(c, a, b, made, multiplies, is_signed, form, false);
    copy_out(y, made, count);
}

/* Computes `count` elements, whole chunks first. If elements are left behind them, the last chunk
 * overlaps the chunk before it. */
INLINE void compute(const struct constants *c, const uint8_t *first, const uint8_t *second,
                    uint8_t *y, size_t count, bool multiplies, bool is_signed,
                    enum qk_binary_form form, bool stream)
{
    const size_t first_step = form == QK_BINARY_FIRST_REPEATS ? 0 : CHUNK;
    const size_t second_step = form == QK_BINARY_SECOND_REPEATS ? 0 : CHUNK;
    const bool many = count >= CHUNK && !stream;
    for (; count >= CHUNK; count -= CHUNK) {
        if (stream && first_step > 0)
            prefetch(first);
        if (stream && second_step > 0)
            prefetch(second);
        compute_chunk(c, first, second, y, multiplies, is_signed, form, stream);
        first += first_step;
        second += second_step;
        y += CHUNK;
    }
    if (count > 0 && many)
        compute_chunk(c, first - (first_step > 0 ? CHUNK - count : 0),
                      second - (second_step > 0 ? CHUNK - count : 0), y - (CHUNK - count),
                      multiplies, is_signed, form, false);
    else if (count > 0)
        compute_rest(c, first, second, y, count, multiplies, is_signed, form);
}

/* Computes `count` elements. With `stream`, first those before y is aligned to a chunk. */
INLINE void compute_all(const struct qk_binary_args *args, const uint8_t *first,
                        const uint8_t *second, uint8_t *y, size_t count, bool multiplies,
                        bool is_signed, enum qk_binary_form form)
{
    const struct constants c = constants_of(args, first, second, multiplies, is_signed, form);
    if (!args->stream) {
        compute(&c, first, second, y, count, multiplies, is_signed, form, false);
        return;
    }
    const size_t gap = (0 - (uintptr_t)y) % CHUNK;
    const size_t before = gap < count ? gap : count;
    if (before > 0)
        compute_rest(&c, first, second, y, before, multiplies, is_signed, form);
    compute(&c, first + (form == QK_BINARY_FIRST_REPEATS ? 0 : before),
            second + (form == QK_BINARY_SECOND_REPEATS ? 0 : before), y + before, count - before,
            multiplies, is_signed, form, true);
}

#define KERNEL(name, multiplies, is_signed, form)                                \
    static void name(const struct qk_binary_args *args, const uint8_t *first,    \
                     const uint8_t *second, uint8_t *y, size_t count)            \
    {                                                                            \
        compute_all(args, first, second, y, count, multiplies, is_signed, form); \
    }

#define KERNELS(name, multiplies, is_signed)                             \
    KERNEL(name, multiplies, is_signed, QK_BINARY_NONE_REPEATS)          \
    KERNEL(name##_first, multiplies, is_signed, QK_BINARY_FIRST_REPEATS) \
    KERNEL(name##_second, multiplies, is_signed, QK_BINARY_SECOND_REPEATS)

KERNELS(add_u8, false, false)
KERNELS(add_s8, false, true)
KERNELS(multiply_u8, true, false)
KERNELS(multiply_s8, true, true)

#define ROWS(name, is_signed)                                                             \
    static void name##_rows(const struct qk_binary_args *from, const uint8_t *first,      \
                            const uint8_t *second, uint8_t *y, size_t count, size_t rows) \
    {                                                                                     \
        struct qk_binary_args args = *from;                                               \
        args.stream = false;                                                              \
        for (; rows > 0; rows--, first += count, second++, y += count)                    \
            compute_all(&args, first, second, y, count, true, is_signed,                  \
                        QK_BINARY_SECOND_REPEATS);                                        \
    }

ROWS(multiply_u8, false)
ROWS(multiply_s8, true)

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
    .finish = FINISH,
    .add = {FORMS(add_u8), FORMS(add_s8)},
    .multiply = {FORMS(multiply_u8), FORMS(multiply_s8)},
    .multiply_rows = {multiply_u8_rows, multiply_s8_rows},
};

#endif
