/* Pooling with AVX-512. */
#include "kernels/pool/kernels.h"

#ifdef __AVX512BW__

#define QK_POOL_INIT qk_pool_init_avx512bw
#define QK_POOL_NAME "pool_avx512bw"
#define QK_POOL_MAX_CYCLES 0.04
#define QK_POOL_AVERAGE_CYCLES 0.5
#define QK_POOL_SUM_CYCLES 0.16
#include "kernels/pool/loops.h"

#endif
