/* Casts with AVX-512. */
#include "kernels/cast/cast.h"

#ifdef __AVX512BW__

#define QK_CAST_TABLE qk_cast_kernels__avx512bw
#define QK_CAST_NAME "cast_avx512bw"
#define QK_CAST_CYCLES 0.4
#include "kernels/cast/loops.h"

#endif
