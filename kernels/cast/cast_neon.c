/* Casts with NEON. */
#include "kernels/cast/cast.h"

#ifdef __aarch64__

#define QK_CAST_TABLE qk_cast_kernels__neon
#define QK_CAST_NAME "cast_neon"
#define QK_CAST_CYCLES 1
#include "kernels/cast/loops.h"

#endif
