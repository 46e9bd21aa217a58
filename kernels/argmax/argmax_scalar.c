/* ArgMax in plain C: the reference of all tiers. */
#define QK_ARGMAX_TABLE qk_argmax_kernels__scalar
#define QK_ARGMAX_NAME "argmax_scalar"
#define QK_ARGMAX_CYCLES 3
#include "kernels/argmax/loops.h"
