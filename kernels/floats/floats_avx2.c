/* Operators on FP32 with AVX2 and FMA. */
#include "kernels/floats/kernels.h"

#ifdef __AVX2__

#define QK_FLOAT_TIER avx2
#define QK_FLOAT_CYCLES 0.4
#include "kernels/floats/loops.h"

#endif
