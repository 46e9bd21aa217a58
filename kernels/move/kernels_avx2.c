/* The moving kernels, compiled for this tier. */
#include "kernels/move/kernels.h"

#ifdef __AVX2__
#include "kernels/move/wide_avx2.h"

#define QK_MOVE_PARTS 2

/* Two streaming stores that fill a cache line. */
#define QK_MOVE_STREAM(y, x)                                                                   \
    do {                                                                                       \
        _mm256_stream_si256((__m256i *)(y), _mm256_loadu_si256((const __m256i *)(x)));         \
        _mm256_stream_si256((__m256i *)(y) + 1, _mm256_loadu_si256((const __m256i *)(x) + 1)); \
    } while (0)
#define QK_MOVE_FENCE _mm_sfence

#include "kernels/move/loops.h"

void qk_move_init_avx2(struct qk_move_kernels *kernels)
{
    qk_move_fill_table(kernels);
}
#endif
