/* The kernels of matrix products, compiled for any CPU: the reference of the other tiers. */
#define TABLE qk_matmul_kernels__scalar
#include "kernels/matmul/loops.h"
