/* The kernels of operators on FP32 in plain C, which compilers turn into vectors of the tier that
 * includes this file. The tier defines QK_FLOAT_TIER, its name, and QK_FLOAT_CYCLES. */
#pragma once

/* Nothing here compiles without a tier's file around it. */
#ifdef QK_FLOAT_TIER

#include "kernels/floats/kernels.h"

#define INLINE static inline __attribute__((always_inline))

/* A float with any alignment. With memcpy, gcc makes integers of floats that it chooses among, and
 * then no vectors. */
typedef float unaligned __attribute__((aligned(1), may_alias));

INLINE float load(const void *data, size_t index)
{
    return ((const unaligned *)data)[index];
}

INLINE void store(void *data, size_t index, float value)
{
    ((unaligned *)data)[index] = value;
}

/* ---- Functions of one number --------------------------------------------------------------- */

#define UNARY(name, cost)                                                                       \
    static void run_##name(const float parameters[2], const void *restrict x, void *restrict y, \
                           size_t count)                                                        \
    {                                                                                           \
        const float a = parameters[0];                                                          \
        const float b = parameters[1];                                                          \
        for (size_t i = 0; i < count; i++)                                                      \
            store(y, i, qk_float_##name(load(x, i), a, b));                                     \
    }

QK_FLOAT_FUNCTIONS(UNARY)

/* ---- Functions of two numbers -------------------------------------------------------------- */

INLINE float add(float a, float b)
{
    return a + b;
}

INLINE float sub(float a, float b)
{
    return a - b;
}

INLINE float mul(float a, float b)
{
    return a * b;
}

INLINE float quotient(float a, float b)
{
    return a / b;
}

/* Of two zeros, the minimum and the maximum are the second one, as of ONNX Runtime's vectors. Of
 * its last elements, up to three, they are the first one. */
INLINE float minimum(float a, float b)
{
    return a < b || a != a ? a : b;
}

INLINE float maximum(float a, float b)
{
    return a > b || a != a ? a : b;
}

INLINE float prelu(float a, float b)
{
    return a < 0 ? a * b : a;
}

INLINE float power(float a, float b)
{
    return powf(a, b);
}

/* The three forms of a function, as enum qk_binary_form lists them. */
#define BINARY_FORM(name, suffix, index_a, index_b)                                             \
    static void name##suffix(const struct qk_binary_args *args, const uint8_t *restrict first,  \
                             const uint8_t *restrict second, uint8_t *restrict y, size_t count) \
    {                                                                                           \
        (void)args;                                                                             \
        for (size_t i = 0; i < count; i++)                                                      \
            store(y, i, name(load(first, index_a), load(second, index_b)));                     \
    }
#define BINARY(name)                  \
    BINARY_FORM(name, _vectors, i, i) \
    BINARY_FORM(name, _first, 0, i)   \
    BINARY_FORM(name, _second, i, 0)
#define FORMS(name)                                 \
    {                                               \
        name##_vectors, name##_first, name##_second \
    }

BINARY(add)
BINARY(sub)
BINARY(mul)
BINARY(quotient)
BINARY(minimum)
BINARY(maximum)
BINARY(prelu)
BINARY(power)

/* ONNX Runtime multiplies for the powers 2 and 3 (onnxruntime/core/providers/cpu/math/
 * element_wise_ops.cc). */
static void power_of_all(const struct qk_binary_args *args, const uint8_t *restrict first,
                         const uint8_t *restrict second, uint8_t *restrict y, size_t count)
{
    const float exponent = load(second, 0);
    if (exponent == 2)
        mul_vectors(args, first, first, y, count);
    else if (exponent == 3)
        for (size_t i = 0; i < count; i++)
            store(y, i, load(first, i) * load(first, i) * load(first, i));
    else
        power_second(args, first, second, y, count);
}

/* ---- Folds --------------------------------------------------------------------------------- */

/* Inlined with a constant stride, because compilers vectorize only that. */
#define FOLD(name, result)                                                                        \
    INLINE void fold_##name##_by(float *restrict to, const unaligned *restrict from, size_t taps, \
                                 size_t tap_stride, size_t stride, size_t count)                  \
    {                                                                                             \
        for (size_t tap = 0; tap < taps; tap++)                                                   \
            for (size_t i = 0; i < count; i++) {                                                  \
                const float a = to[i];                                                            \
                const float b = from[tap * tap_stride + i * stride];                              \
                (void)a;                                                                          \
                to[i] = (result);                                                                 \
            }                                                                                     \
    }                                                                                             \
    static void fold_##name(float *to, const void *from, size_t taps, size_t tap_stride,          \
                            size_t stride, size_t count)                                          \
    {                                                                                             \
        if (stride == 1)                                                                          \
            fold_##name##_by(to, from, taps, tap_stride, 1, count);                               \
        else if (stride == 2)                                                                     \
            fold_##name##_by(to, from, taps, tap_stride, 2, count);                               \
        else                                                                                      \
            fold_##name##_by(to, from, taps, tap_stride, stride, count);                          \
    }

FOLD(copy, b)
FOLD(add, a + b)
FOLD(max_vector, a > b ? a : b)
FOLD(max_scalar, a < b ? b : a)

/* ---- Weighted means ------------------------------------------------------------------------ */

static void mix(const struct qk_float_corners *corners, float *restrict y, size_t count)
{
    const struct qk_float_corners c = *corners;
    for (size_t i = 0; i < count; i++) {
        float sum = c.dx2[i] * c.dy2 * c.x11[i];
        sum = sum + c.dx1[i] * c.dy2 * c.x21[i];
        sum = sum + c.dx2[i] * c.dy1 * c.x12[i];
        y[i] = sum + c.dx1[i] * c.dy1 * c.x22[i];
    }
}

/* ---- Shares of a sum ----------------------------------------------------------------------- */

#define SATURATED 0x1p9   /* more than the largest code less the smallest zero point */
#define ROUNDING 0x1.8p52 /* a sum with it has no bits behind the point */

/* Adding and subtracting ROUNDING rounds to the nearest integer, ties to even. */
INLINE uint8_t code_of_share(const struct qk_float_shares *shares, float x, float sum)
{
    const double share = (double)x * shares->factor / (double)sum;
    const double bounded = share > SATURATED ? SATURATED : share;
    const double code = bounded + ROUNDING - ROUNDING + shares->zero;
    const int32_t high = shares->low + UINT8_MAX;
    return (uint8_t)(code >= high ? high : code >= shares->low ? (int32_t)code : shares->low);
}

static void quantize_shares(const struct qk_float_shares *shares, const float *x, const float *sums,
                            uint8_t *restrict codes, size_t count)
{
    const struct qk_float_shares s = *shares;
    for (size_t i = 0; i < count; i++)
        codes[i] = code_of_share(&s, x[i], sums[i]);
}

static void quantize_shares_of_one(const struct qk_float_shares *shares, const float *x,
                                   const float *sums, uint8_t *restrict codes, size_t count)
{
    const struct qk_float_shares s = *shares;
    const float sum = sums[0];
    for (size_t i = 0; i < count; i++)
        codes[i] = code_of_share(&s, x[i], sum);
}

/* ---- The table ----------------------------------------------------------------------------- */

#define NAME(prefix, tier) prefix##tier
#define NAME_OF(prefix, tier) NAME(prefix, tier)
#define TEXT(tokens) #tokens
#define TEXT_OF(tokens) TEXT(tokens)
#define ENTRY(name, cost) [QK_FLOAT_##name] = run_##name,
#define COST(name, cost) [QK_FLOAT_##name] = (cost),

const struct qk_float_kernels NAME_OF(qk_float_kernels__, QK_FLOAT_TIER) = {
    .name = "float_" TEXT_OF(QK_FLOAT_TIER),
    .element_cycles = QK_FLOAT_CYCLES,
    .unary = {QK_FLOAT_FUNCTIONS(ENTRY)},
    .costs = {QK_FLOAT_FUNCTIONS(COST)},
    .binary = {[QK_FLOAT_ADD] = FORMS(add),
               [QK_FLOAT_SUB] = FORMS(sub),
               [QK_FLOAT_MUL] = FORMS(mul),
               [QK_FLOAT_DIV] = FORMS(quotient),
               [QK_FLOAT_MIN] = FORMS(minimum),
               [QK_FLOAT_MAX] = FORMS(maximum),
               [QK_FLOAT_PRELU] = FORMS(prelu),
               [QK_FLOAT_POW] = {power_vectors, power_first, power_of_all}},
    .fold = {[QK_FLOAT_FOLD_COPY] = fold_copy,
             [QK_FLOAT_FOLD_ADD] = fold_add,
             [QK_FLOAT_FOLD_MAX_VECTOR] = fold_max_vector,
             [QK_FLOAT_FOLD_MAX_SCALAR] = fold_max_scalar},
    .mix = mix,
    .quantize_shares = quantize_shares,
    .quantize_shares_of_one = quantize_shares_of_one,
};

#endif
