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
    const struct qk_igemm *igemm;
    /* What serves convolutions that would fill less than a tenth of this one's tiles (and so take
     * ten times the time and memory that they should); NULL: this one. */
    const struct qk_conv_backend *small_tile;
    /* With tiles of fewer rows: what serves convolutions with few rows or terms and, where this
     * one's kernel has `mark_wide`, those with many wide weights; NULL: this one. */
    const struct qk_conv_backend *small_m;
    double small_m_speed; /* of its products, as a share of this one's in full tiles */
    double tile_slabs;    /* slabs that take as long as beginning and ending a tile of this one */
    const struct qk_slab_kernels *slabs;
    const struct qk_depthwise *depthwise; /* for groups of one channel */
    double slab_cycles;                   /* rough: to make 16 quads of a slab */
    enum qk_product product;              /* as the machine's profile has it */
};

/* From the slowest to the fastest; the first runs everywhere. */
const struct qk_conv_backend *qk_conv_backends(size_t *count);

/* What a backend's work costs on a machine: rough, and there to compare plans. Cycles are a core's.
 */
struct qk_conv_costs {
    double product_cycles; /* of 16 positions: of one row and a slab or, with whole_steps, a step */
    double slab_cycles;    /* to make 16 quads of a slab */
    double terms_per_ns;   /* products and additions in a full tile */
};

/* What was chosen for a machine (kernels/choice.h). */
struct qk_conv_tuning {
    /* What multiplies convolutions in general, NULL: sgemm; those that would fill little of its
     * tiles or of sgemm's; and groups of one channel. All of them NULL: sgemm for all. */
    const struct qk_conv_backend *main, *small_tile, *depthwise;
    struct qk_conv_costs main_costs, small_tile_costs;
    double cycles_per_ns;
    double pack_unit_ns; /* that a unit of packing should take */
    double unit_ns;      /* that a unit should take */
    size_t quads_bytes;  /* of a unit's slabs: they stay in a core's own cache with the weights */
    size_t sums_bytes;   /* of sums that wait there, where K has parts */
    size_t slabs_most;   /* of a unit: a slab has a cache line, however few its quads are */
    size_t dot_bytes;    /* of one position's gathered quads: they stay in the first cache */
    double weights_per_cycle; /* bytes, from the second cache or the third */
    /* For sgemm: floats of each matrix that sgemm reads, which stay in a core's own cache; terms of
     * a unit; and terms, elements of im2col and sums requantized in a nanosecond. */
    size_t sgemm_floats;
    size_t sgemm_unit_terms;
    double sgemm_terms_per_ns, im2col_per_ns, requantized_per_ns;
};

#endif
