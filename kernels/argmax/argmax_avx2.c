/* ArgMax with AVX2. */
#include "kernels/argmax/argmax.h"

#ifdef __AVX2__

#define QK_ARGMAX_TABLE qk_argmax_kernels__avx2
#define QK_ARGMAX_NAME "argmax_avx2"
#define QK_ARGMAX_CYCLES 0.3
#include "kernels/argmax/loops.h"

#endif
