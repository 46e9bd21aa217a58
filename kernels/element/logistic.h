/* The logistic function, as ONNX Runtime computes it on CPUs with FMA (onnxruntime/core/mlas/lib/
 * logistic.cpp). Private to kernels/. */
#pragma once

#include <math.h>

/* The quotient of two polynomials in x^2, for |x| up to 18. A NaN stays a NaN. Compilers turn loops
 * of this straight code into vectors. */
static inline __attribute__((always_inline)) float qk_logistic(float x)
{
    const float limit = 18;
    x = x < -limit ? -limit : x > limit ? limit : x;
    const float t = x * x;
    float p = fmaf(4.37031012579801e-11F, t, 1.15627324459942e-07F);
    p = fmaf(p, t, 6.08574864600143e-05F);
    p = fmaf(p, t, 8.51377133304701e-03F);
    p = fmaf(p, t, 2.48287947061529e-01F);
    float q = fmaf(6.10247389755681e-13F, t, 5.76102136993427e-09F);
    q = fmaf(q, t, 6.29106785017040e-06F);
    q = fmaf(q, t, 1.70198817374094e-03F);
    q = fmaf(q, t, 1.16817656904453e-01F);
    q = fmaf(q, t, 9.93151921023180e-01F);
    const float y = p * x / q + 0.5F;
    return y < 0 ? 0 : y > 1 ? 1 : y;
}
