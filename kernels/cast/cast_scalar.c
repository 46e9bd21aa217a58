/* Casts in plain C: the reference of all tiers. */
#define QK_CAST_TABLE qk_cast_kernels__scalar
#define QK_CAST_NAME "cast_scalar"
#define QK_CAST_CYCLES 3
#include "kernels/cast/loops.h"
