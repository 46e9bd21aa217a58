/* ArgMax with AVX-512. */
#include "kernels/argmax/argmax.h"

#ifdef __AVX512BW__

#define QK_ARGMAX_TABLE qk_argmax_kernels__avx512bw
#define QK_ARGMAX_NAME "argmax_avx512bw"
#define QK_ARGMAX_CYCLES 0.2
#include "kernels/argmax/loops.h"

#endif
