/* Casts with AVX2. */
#include "kernels/cast/cast.h"

#ifdef __AVX2__

#define QK_CAST_TABLE qk_cast_kernels__avx2
#define QK_CAST_NAME "cast_avx2"
#define QK_CAST_CYCLES 0.6
#include "kernels/cast/loops.h"

#endif
