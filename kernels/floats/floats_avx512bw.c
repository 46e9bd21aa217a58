/* Operators on FP32 with AVX-512. */
#include "kernels/floats/kernels.h"

#ifdef __AVX512BW__

#define QK_FLOAT_TIER avx512bw
#define QK_FLOAT_CYCLES 0.25
#include "kernels/floats/loops.h"

#endif
