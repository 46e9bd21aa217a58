/* Measures the speeds of this machine that CPUID does not report, for its profile (kernels/cpu.h).
 * Private to kernels/. */
#pragma once

#include "kernels/cpu.h"
#include "kernels/gemm/openblas.h"

/* Measures the clock, the speed of memory copies, the products that this CPU has and, if `openblas`
 * is not NULL, sgemm. Stores the results in the profile. It takes a few milliseconds: once
 * QK_MEASURE_NS have passed, it only measures the fastest product and sgemm. A speed that is not
 * measured, or for which there is no memory, keeps its value. Each speed is the best of several
 * runs, because other work on the core makes the machine look slower. */
void qk_profile_measure(struct qk_profile *profile, const struct qk_openblas *openblas);

/* 20 ms. */
#define QK_MEASURE_NS 20000000
