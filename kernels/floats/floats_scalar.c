/* Operators on FP32 in scalar code. */
#include "kernels/floats/kernels.h"

#define QK_FLOAT_TIER scalar
#define QK_FLOAT_CYCLES 3.0
#include "kernels/floats/loops.h"
