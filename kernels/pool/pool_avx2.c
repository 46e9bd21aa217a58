/* Pooling with AVX2. */
#include "kernels/pool/kernels.h"

#ifdef __AVX2__

#define QK_POOL_INIT qk_pool_init_avx2
#define QK_POOL_NAME "pool_avx2"
#define QK_POOL_MAX_CYCLES 0.06
#define QK_POOL_AVERAGE_CYCLES 0.8
#define QK_POOL_SUM_CYCLES 0.3
#include "kernels/pool/loops.h"

#endif
