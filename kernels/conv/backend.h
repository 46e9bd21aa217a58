/* What can multiply the integers of a convolution besides OpenBLAS. Private to kernels/. */
#ifndef KERNELS_CONV_BACKEND_H
#define KERNELS_CONV_BACKEND_H

#include "kernels/conv/igemm/slab_kernels.h"
#include "kernels/gemm/igemm.h"

struct qk_depthwise;

struct qk_conv_backend {
    const char *name;   /* as --gemm has it */
    const char *kernel; /* as the answer has it */
    uint32_t cpu_flags; /* QK_CPU_* that it needs */
    const struct qk_igemm *gemm;
    /* What serves convolutions that would fill less than a tenth of this one's tiles (and so take
     * ten times the time and memory that they should); NULL: this one. */
    const struct qk_conv_backend *narrow;
    const struct qk_slab_kernels *slabs;
    const struct qk_depthwise *depthwise; /* for groups of one channel */
    /* Rough, for 16 positions: of the product of one row and a slab or, with whole_steps, a step;
     * and to make a slab. Plans are weighed with them. */
    double cycles, slab_cycles;
};

/* From the slowest to the fastest. */
const struct qk_conv_backend *qk_conv_backends(size_t *count);

#endif
