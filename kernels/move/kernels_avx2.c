/* The moving kernels, compiled for this tier. */
#include "kernels/move/kernels.h"

#ifdef __AVX2__
#include "kernels/move/loops.h"

void qk_move_init_avx2(struct qk_move_kernels *kernels)
{
    qk_move_fill_table(kernels);
}
#endif
