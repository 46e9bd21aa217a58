/* The kernels of matrix products, compiled for AVX2. */
#include "kernels/matmul/kernels.h"

/* The Makefile sets this only for files with this suffix. */
#ifdef __AVX2__
#define TABLE qk_matmul_kernels__avx2
#include "kernels/matmul/loops.h"
#endif
