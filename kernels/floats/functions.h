/* Functions of one FP32 number, with ONNX Runtime's bits on x86 CPUs with FMA. Each operation
 * rounds once, and fmaf() rounds once.
 *
 * There are two families. ONNX Runtime has Sigmoid, Tanh, Exp and Erf in kernels of its own, with
 * fused operations (onnxruntime/core/mlas/lib/). Elu, Celu, Selu, Softplus and Log come from the
 * library Eigen, without fused operations (Eigen/src/Core/arch/Default/
 * GenericPacketMathFunctions.h). ONNX Runtime computes the last elements of a tensor, less than
 * four, by the C library in the second family. The last bit of these elements may therefore differ.
 *
 * `a` and `b` are the parameters of a function, for example the attribute alpha. Functions that
 * have none ignore them. Private to kernels/. */
#pragma once

#include <math.h>
#include <stdint.h>

#include "kernels/element/float.h"
#include "kernels/element/logistic.h"

/* All functions. X(name, cost): `cost` is a rough guess, the time beside that of abs. */
#define QK_FLOAT_FUNCTIONS(X) \
    X(abs, 1)                 \
    X(affine, 1)              \
    X(ceil, 1)                \
    X(celu, 10)               \
    X(clip, 1)                \
    X(elu, 8)                 \
    X(erf, 10)                \
    X(exp, 6)                 \
    X(floor, 1)               \
    X(gelu, 12)               \
    X(gelu_tanh, 8)           \
    X(hard_sigmoid, 1)        \
    X(hard_swish, 1)          \
    X(leaky_relu, 1)          \
    X(log, 8)                 \
    X(mish, 30)               \
    X(neg, 1)                 \
    X(reciprocal, 3)          \
    X(relu, 1)                \
    X(round, 1)               \
    X(selu, 8)                \
    X(sigmoid, 6)             \
    X(sign, 1)                \
    X(softplus, 24)           \
    X(softsign, 3)            \
    X(sqrt, 3)                \
    X(tanh, 6)                \
    X(thresholded_relu, 1)

#define QK_FLOAT_FUNCTION static inline __attribute__((always_inline)) float

/* Returns x * 2^power, for an integer power from -252 to 254. Rounds once if x is a normal number
 * near 1: only the second product can be subnormal. */
QK_FLOAT_FUNCTION qk_float_scale(float x, float power)
{
    const int32_t whole = power == power ? (int32_t)power : 0; /* not for NaN */
    const int32_t half = whole / 2;
    const float first = qk_float_of_bits((uint32_t)(half + 127) << 23);
    const float second = qk_float_of_bits((uint32_t)(whole - half + 127) << 23);
    return x * first * second;
}

/* ---- The functions of ONNX Runtime's own kernels ------------------------------------------- */

/* The logarithm of 2 in two parts, so that the products with small integers are exact. */
#define QK_LN2_HIGH 0.693145752F
#define QK_LN2_LOW 1.42860677e-6F
#define QK_LOG2_E 1.44269504088896341F

/* Returns e^x as 2^m * e^(x - m * ln 2), where `p` and the following numbers are the coefficients
 * of e^r from r^6 to r^2, and `round` rounds the sum with it to an integer. */
QK_FLOAT_FUNCTION qk_exp_by(float x, float round, const float p[5])
{
    const float m = fmaf(x, QK_LOG2_E, round) - round;
    const float r = fmaf(m, -QK_LN2_LOW, fmaf(m, -QK_LN2_HIGH, x));
    float y = fmaf(p[0], r, p[1]);
    y = fmaf(y, r, p[2]);
    y = fmaf(y, r, p[3]);
    y = fmaf(y, r, p[4]);
    y = fmaf(fmaf(y, r, 1.0F), r, 1.0F);
    return qk_float_scale(y, m);
}

QK_FLOAT_FUNCTION qk_float_exp(float x, float a, float b)
{
    static const float p[] = {0x1.694000p-10F, 0x1.125edcp-7F, 0x1.555b5ap-5F, 0x1.555450p-3F,
                              0x1.fffff6p-2F};
    (void)a;
    (void)b;
    x = x < -103.9720840454F ? -103.9720840454F : x;
    x = x > 88.7762626647950F ? 88.7762626647950F : x;
    return qk_exp_by(x, 0x1.8p23F, p);
}

/* The quotient of two polynomials in x^2, for |x| up to 9. */
QK_FLOAT_FUNCTION qk_float_tanh(float x, float a, float b)
{
    (void)a;
    (void)b;
    x = x < -9.0F ? -9.0F : x > 9.0F ? 9.0F : x;
    const float t = x * x;
    float p = fmaf(t, -2.76076847742355e-16F, 2.00018790482477e-13F);
    p = fmaf(p, t, -8.60467152213735e-11F);
    p = fmaf(p, t, 5.12229709037114e-08F);
    p = fmaf(p, t, 1.48572235717979e-05F);
    p = fmaf(p, t, 6.37261928875436e-04F);
    p = fmaf(p, t, 4.89352455891786e-03F);
    float q = fmaf(t, 1.19825839466702e-06F, 1.18534705686654e-04F);
    q = fmaf(q, t, 2.26843463243900e-03F);
    q = fmaf(q, t, 4.89352518554385e-03F);
    return p * x / q;
}

/* The error function: a polynomial up to 0.921875, and 1 - e^-p(|x|) above. */
QK_FLOAT_FUNCTION qk_float_erf(float x, float a, float b)
{
    static const float exp_p[] = {1.38319808e-3F, 8.37550033e-3F, 4.16689515e-2F, 1.66664466e-1F,
                                  4.99999851e-1F};
    (void)a;
    (void)b;
    const float limited = fabsf(x) > 3.925F ? 3.925F : fabsf(x);
    const float t = limited * limited;
    float small = fmaf(-5.99104969e-4F, t, 4.99339588e-3F);
    small = fmaf(small, t, -2.67667342e-2F);
    small = fmaf(small, t, 1.12818025e-1F);
    small = fmaf(small, t, -3.76124859e-1F);
    small = fmaf(small, t, 1.28379151e-1F);
    small = fmaf(small, limited, limited);
    float large = fmaf(1.72948930e-5F, limited, -3.83208680e-4F);
    large = fmaf(large, limited, 3.88393435e-3F);
    large = fmaf(large, limited, -2.42545605e-2F);
    large = fmaf(large, limited, 1.06777847e-1F);
    large = fmaf(large, limited, 6.34846687e-1F);
    large = fmaf(large, limited, 1.28717512e-1F);
    large = 1.0F - qk_exp_by(-fmaf(large, limited, limited), 0x1.8p23F, exp_p);
    return copysignf(limited > 0.921875F ? large : small, x);
}

QK_FLOAT_FUNCTION qk_float_sigmoid(float x, float a, float b)
{
    (void)a;
    (void)b;
    return qk_logistic(x);
}

/* Returns x * (1 + erf(x / sqrt 2)) / 2. */
QK_FLOAT_FUNCTION qk_float_gelu(float x, float a, float b)
{
    return 0.5F * x * (qk_float_erf(x * 0.70710678118654752F, a, b) + 1.0F);
}

/* The same by the hyperbolic tangent: ONNX's attribute approximate="tanh". */
QK_FLOAT_FUNCTION qk_float_gelu_tanh(float x, float a, float b)
{
    const float inner = x * (0.035677408136300125F * x * x + 0.7978845608028654F);
    return 0.5F * x * (qk_float_tanh(inner, a, b) + 1.0F);
}

/* ---- The functions from Eigen -------------------------------------------------------------- */

/* Returns e^x for x up to 0, and 0 below -104. */
QK_FLOAT_FUNCTION qk_eigen_exp(float x)
{
    const float limited = x < -104.0F ? -104.0F : x;
    const float m = floorf(limited * QK_LOG2_E + 0.5F);
    float r = m * -0.693359375F + limited;
    r = m * 2.12194440e-4F + r;
    const float t = r * r;
    const float even =
        t * (t * 1.37449637986719608306884765625e-3F + 4.166965186595916748046875e-2F) +
        0.49999988079071044921875F;
    const float odd = t * 8.36894474923610687255859375e-3F + 0.16666518151760101318359375F;
    const float y = t * (r * odd + even) + (r + 1.0F);
    return x < -104.0F ? 0.0F : qk_float_scale(y, m);
}

QK_FLOAT_FUNCTION qk_float_log(float x, float a, float b)
{
    (void)a;
    (void)b;
    const int is_subnormal = x < 0x1p-126F;
    const float normal = is_subnormal ? x * 0x1p24F : x;
    const uint32_t bits = qk_bits_of_float(normal);
    const float power = (float)((int32_t)(bits >> 23) - (is_subnormal ? 150 : 126));
    const float fraction = qk_float_of_bits((bits & 0x007fffffU) | 0x3f000000U);
    const int is_below = fraction < 0.707106781186547524F;
    const float t = fraction - 1.0F + (is_below ? fraction : 0.0F);
    const float e = is_below ? power - 1.0F : power;
    const float p =
        t * ((0.18256296349849254F * t + 1.0000000190281063F) * t + 1.0000000190281136F);
    const float q =
        ((0.049616247954120038F * t + 0.59923249590823520F) * t + 1.4999999999999927F) * t + 1.0F;
    const float y = e * 0.693147180559945309417F + p / q;
    const float special = x == 0 ? -INFINITY : x > 0 ? x : NAN; /* 0, infinity, negative, NaN */
    return x > 0 && x < INFINITY ? y : special;
}

/* Returns ln(1 + x), for x from 0 to 1. */
QK_FLOAT_FUNCTION qk_eigen_log1p(float x)
{
    const float sum = 1.0F + x;
    const float y = x * (qk_float_log(sum, 0, 0) / (sum - 1.0F));
    return sum == 1.0F ? x : y;
}

/* Returns e^x - 1 for x below 0, and 0 for others. */
QK_FLOAT_FUNCTION qk_exp_less_1(float x)
{
    return qk_eigen_exp(x < 0 ? x : 0) - 1.0F;
}

QK_FLOAT_FUNCTION qk_float_elu(float x, float a, float b)
{
    (void)b;
    const float below = a * qk_exp_less_1(x);
    return x < 0 ? below : x;
}

/* `a` is above 0. */
QK_FLOAT_FUNCTION qk_float_celu(float x, float a, float b)
{
    (void)b;
    const float below = a * qk_exp_less_1(x / a);
    return x < 0 ? below : x + 0.0F; /* -0 becomes 0 */
}

/* `a` is the factor of values below 0, gamma * alpha, and b is gamma. */
QK_FLOAT_FUNCTION qk_float_selu(float x, float a, float b)
{
    const float below = a * qk_exp_less_1(x);
    return x < 0 ? below : b * (x + 0.0F); /* -0 becomes 0 */
}

QK_FLOAT_FUNCTION qk_float_softplus(float x, float a, float b)
{
    (void)a;
    (void)b;
    const float y = qk_eigen_log1p(qk_eigen_exp(-fabsf(x)));
    return x > 0 ? x + y : x == x ? y : x;
}

QK_FLOAT_FUNCTION qk_float_mish(float x, float a, float b)
{
    return x * qk_float_tanh(qk_float_softplus(x, a, b), a, b);
}

/* ---- Others -------------------------------------------------------------------------------- */

QK_FLOAT_FUNCTION qk_float_abs(float x, float a, float b)
{
    (void)a;
    (void)b;
    return fabsf(x);
}

QK_FLOAT_FUNCTION qk_float_ceil(float x, float a, float b)
{
    (void)a;
    (void)b;
    return ceilf(x);
}

QK_FLOAT_FUNCTION qk_float_floor(float x, float a, float b)
{
    (void)a;
    (void)b;
    return floorf(x);
}

/* Ties go to even numbers. */
QK_FLOAT_FUNCTION qk_float_round(float x, float a, float b)
{
    (void)a;
    (void)b;
    return rintf(x);
}

QK_FLOAT_FUNCTION qk_float_sqrt(float x, float a, float b)
{
    (void)a;
    (void)b;
    return sqrtf(x);
}

QK_FLOAT_FUNCTION qk_float_neg(float x, float a, float b)
{
    (void)a;
    (void)b;
    return -x;
}

QK_FLOAT_FUNCTION qk_float_reciprocal(float x, float a, float b)
{
    (void)a;
    (void)b;
    return 1.0F / x;
}

QK_FLOAT_FUNCTION qk_float_sign(float x, float a, float b)
{
    (void)a;
    (void)b;
    return x > 0 ? 1.0F : x < 0 ? -1.0F : x == x ? 0.0F : x;
}

QK_FLOAT_FUNCTION qk_float_softsign(float x, float a, float b)
{
    (void)a;
    (void)b;
    return 1.0F / (1.0F + fabsf(x)) * x;
}

QK_FLOAT_FUNCTION qk_float_relu(float x, float a, float b)
{
    (void)a;
    (void)b;
    return x < 0 ? 0.0F : x;
}

/* Returns x, at least a, and then at most b. A NaN stays a NaN. */
QK_FLOAT_FUNCTION qk_float_clip(float x, float a, float b)
{
    x = x < a ? a : x;
    return x > b ? b : x;
}

QK_FLOAT_FUNCTION qk_float_leaky_relu(float x, float a, float b)
{
    (void)b;
    return x >= 0 ? x : a * x;
}

QK_FLOAT_FUNCTION qk_float_thresholded_relu(float x, float a, float b)
{
    (void)b;
    return x > a ? x : 0.0F;
}

QK_FLOAT_FUNCTION qk_float_affine(float x, float a, float b)
{
    const float product = x * a;
    return product + b;
}

/* Returns a * x + b, from 0 to 1. */
QK_FLOAT_FUNCTION qk_float_hard_sigmoid(float x, float a, float b)
{
    const float product = a * x;
    const float y = product + b;
    return y < 0 ? 0 : y > 1 ? 1 : y;
}

QK_FLOAT_FUNCTION qk_float_hard_swish(float x, float a, float b)
{
    return x * qk_float_hard_sigmoid(x, a, b);
}
