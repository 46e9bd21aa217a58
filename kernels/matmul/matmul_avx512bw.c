/* The kernels of matrix products, compiled for AVX-512. */
#include "kernels/matmul/kernels.h"

/* The Makefile sets this only for files with this suffix. */
#ifdef __AVX512BW__
#define TABLE qk_matmul_kernels__avx512bw
#include "kernels/matmul/loops.h"
#endif
