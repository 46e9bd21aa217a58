/* The logistic function, as ONNX Runtime computes it on CPUs with FMA (onnxruntime/core/mlas/lib/
 * logistic.cpp). Private to kernels/. */
#ifndef KERNELS_ELEMENT_LOGISTIC_H
#define KERNELS_ELEMENT_LOGISTIC_H

#include <math.h>
#include <stddef.h>

/* Returns ((c0 * t + c1) * t + c2) ..., each step rounded once. */
static inline float qk_polynomial(const float *coefficients, size_t count, float t)
{
    float sum = coefficients[0];
    for (size_t i = 1; i < count; i++)
        sum = fmaf(sum, t, coefficients[i]);
    return sum;
}

/* The quotient of two polynomials in x^2, for |x| up to 18. A NaN stays a NaN. */
static inline float qk_logistic(float x)
{
    static const float numerator[] = {4.37031012579801e-11F, 1.15627324459942e-07F,
                                      6.08574864600143e-05F, 8.51377133304701e-03F,
                                      2.48287947061529e-01F};
    static const float denominator[] = {6.10247389755681e-13F, 5.76102136993427e-09F,
                                        6.29106785017040e-06F, 1.70198817374094e-03F,
                                        1.16817656904453e-01F, 9.93151921023180e-01F};
    const float limit = 18;
    x = x < -limit ? -limit : x > limit ? limit : x;
    const float t = x * x;
    const float p = qk_polynomial(numerator, sizeof(numerator) / sizeof(numerator[0]), t) * x;
    const float q = qk_polynomial(denominator, sizeof(denominator) / sizeof(denominator[0]), t);
    const float y = p / q + 0.5F;
    return y < 0 ? 0 : y > 1 ? 1 : y;
}

#endif
