/* Operators on FP32 with ARM's Advanced SIMD. */
#include "kernels/floats/kernels.h"

#ifdef __aarch64__

#define QK_FLOAT_TIER neon
#define QK_FLOAT_CYCLES 0.8
#include "kernels/floats/loops.h"

#endif
