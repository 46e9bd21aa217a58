/* Pooling with NEON. */
#include "kernels/pool/kernels.h"

#ifdef __ARM_NEON

#define QK_POOL_INIT qk_pool_init_neon
#define QK_POOL_NAME "pool_neon"
#define QK_POOL_MAX_CYCLES 0.1
#define QK_POOL_AVERAGE_CYCLES 1.2
#define QK_POOL_SUM_CYCLES 0.3
#include "kernels/pool/loops.h"

#endif
