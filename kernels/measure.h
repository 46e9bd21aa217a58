/* What CPUID does not tell of a machine: how fast it is. Private to kernels/. */
#ifndef KERNELS_MEASURE_H
#define KERNELS_MEASURE_H

#include "kernels/cpu.h"
#include "kernels/gemm/openblas.h"

/* Measures, in a few milliseconds, the clock, how fast memory is copied, the products that this
 * CPU has, and sgemm if `openblas` is not NULL, and puts them into the profile. Once QK_MEASURE_NS
 * are over, only the fastest product and sgemm still are measured; what is not, or has no
 * memory to be measured in, stays as it was. Other work on the core makes the machine seem
 * slower, so the best of several runs counts. */
void qk_profile_measure(struct qk_profile *profile, const struct qk_openblas *openblas);

#define QK_MEASURE_NS 20000000

#endif
