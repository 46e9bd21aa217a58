/* The kernels of matrix products, compiled for NEON. */
#include "kernels/matmul/kernels.h"

/* The Makefile sets this only for files with this suffix. */
#ifdef __aarch64__
#define TABLE qk_matmul_kernels__neon
#include "kernels/matmul/loops.h"
#endif
