/* Pooling on any machine: the reference of the other tiers. */
#define QK_POOL_INIT qk_pool_init_scalar
#define QK_POOL_NAME "pool_scalar"
#define QK_POOL_MAX_CYCLES 0.3
#define QK_POOL_AVERAGE_CYCLES 1.5
#define QK_POOL_SUM_CYCLES 0.6
#include "kernels/pool/loops.h"
