/* ArgMax with NEON. */
#include "kernels/argmax/argmax.h"

#ifdef __aarch64__

#define QK_ARGMAX_TABLE qk_argmax_kernels__neon
#define QK_ARGMAX_NAME "argmax_neon"
#define QK_ARGMAX_CYCLES 0.6
#include "kernels/argmax/loops.h"

#endif
