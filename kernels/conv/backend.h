/* What can multiply the integers of a convolution besides OpenBLAS. Private to kernels/. */
#ifndef KERNELS_CONV_BACKEND_H
#define KERNELS_CONV_BACKEND_H

#include "kernels/conv/igemm/slab_kernels.h"
#include "kernels/cpu.h"
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
    enum qk_product product; /* as the machine's profile has it */
};

/* Costs are in cycles of a core, rough, and there to be compared. */
struct qk_conv_costs {
    /* For 16 positions: of the product of one row and a slab or, where the kernel takes whole
     * steps, a step; and to make a slab. */
    double product_cycles, slab_cycles;
    double depthwise_times; /* as long as depthwise kernels of 16 lanes take */
};

struct qk_conv_choice {
    /* What multiplies convolutions in general, NULL: sgemm; those that would fill little of its
     * tiles or of sgemm's; and groups of one channel. All of them NULL: sgemm for all. */
    const struct qk_conv_backend *dense, *narrow, *depthwise;
    struct qk_conv_costs dense_costs, narrow_costs, depthwise_costs;
    double cycles_a_ns;
    uint64_t unit_ns;       /* that a unit should take */
    size_t cells_bytes;     /* of a unit's slabs: they stay in a core's own cache */
    size_t sums_bytes;      /* of sums that wait there where K has parts */
    size_t slabs_most;      /* of a unit: each has a cache line, however few its cells are */
    size_t dot_bytes;       /* of one position's cells, gathered: they stay in the first cache */
    size_t slot_bytes;      /* of the cells of a depthwise channel: so do they */
    size_t batch_bytes;     /* of the cells of small channels that are made at a time */
    double weights_a_cycle; /* bytes, from the second cache or the third */
    size_t tile_floats;     /* of each matrix that sgemm reads: they stay in the second cache */
    double sgemm_terms_a_ns;
};

/* From the slowest to the fastest. */
const struct qk_conv_backend *qk_conv_backends(size_t *count);

#endif
