/* The backends that multiply integers in convolutions: a table from which choice.c and
 * conv/choose.c pick. A backend joins an integer product, its slab kernels and a depthwise kernel.
 * OpenBLAS is not a backend here, because it multiplies floats. Private to kernels/. */
#pragma once

#include "kernels/conv/igemm/slab_kernels.h"
#include "kernels/cpu.h"
#include "kernels/gemm/igemm.h"

struct qk_depthwise;

struct qk_conv_backend {
    const char *name; /* as --gemm names it */
    /* The backend's name in the server's answers. A small_m backend has the name of its main
     * backend. */
    const char *kernel;
    const char *matmul_kernel; /* the same, for products of matrices */
    uint32_t cpu_flags;        /* the features that it needs, QK_CPU_* */
    const struct qk_igemm *igemm;
    /* The product for matrices, without `mark_wide`. NULL: `igemm`. */
    const struct qk_igemm *matrices;
    /* The backend for convolutions that would fill less than a tenth of this backend's tiles. This
     * backend would take ten times the time and memory that they need. NULL: this backend itself.
     */
    const struct qk_conv_backend *small_tile;
    /* A backend with tiles of fewer rows, for convolutions with few rows or terms, and for
     * convolutions with more wide weights than wide_share_most. NULL: this backend itself. */
    const struct qk_conv_backend *small_m;
    /* For a small_m backend whose kernel has `mark_wide`: the backend for convolutions with more
     * wide weights than wide_share_most, or with few terms. NULL: this backend itself. */
    const struct qk_conv_backend *words;
    /* With `words`: the most terms of a sum that are few, for kernels of one tap and of more taps.
     * The kernel of `words` stores bytes of y without storing sums first. Of few terms, this saves
     * more time than products of words take longer. */
    size_t few_terms, few_terms_of_taps;
    double wide_share_most; /* with `mark_wide`: a share as qk_conv_wide_share returns it */
    /* The speed of small_m's products, as a share of this backend's speed in full tiles: */
    double small_m_speed;
    double small_m_speed_of_large; /* if planes are probably large (choose.c), because they fill
                                      its vectors of positions */
    double small_m_speed_of_taps;  /* of kernels with several taps, because these make most loads
                                      of x cross a cache line */
    double tile_slabs; /* the time to begin and end a tile, as a number of slabs: those that a
                          full tile multiplies in that time */
    const struct qk_slab_kernels *slabs;
    const struct qk_depthwise *depthwise; /* for groups of one channel */
    /* For kernels of 3 x 3: QK_WINOGRAD_SIZES algorithms. NULL: they would not be faster. */
    const struct qk_winograd *winograd;
    double slab_cycles;      /* a rough guess of the cycles that making 16 quads of a slab takes */
    enum qk_product product; /* its product, whose speed the profile has (kernels/cpu.h) */
};

/* Returns all backends, from the slowest to the fastest, and sets *count to their number. The first
 * backend runs on every machine. */
const struct qk_conv_backend *qk_conv_backends(size_t *count);

/* What a backend's work costs on a machine. The numbers are rough and serve to compare plans.
 * Cycles are those of one core. */
struct qk_conv_costs {
    double product_cycles; /* to multiply 16 positions of one slab or, with whole_steps, of one step
                              by one row of weights */
    double slab_cycles;    /* to make 16 quads of a slab */
    double terms_per_ns;   /* products, each with its addition, in a full tile */
};

/* What kernels/choice.c has chosen for a machine. */
struct qk_conv_tuning {
    /* Three backends. `main` multiplies in most convolutions; NULL: sgemm computes these.
     * `small_tile` multiplies in convolutions that would leave the tiles of `main` or of sgemm
     * mostly empty. `depthwise` computes convolutions with groups of one channel. If all three are
     * NULL, sgemm computes all convolutions. */
    const struct qk_conv_backend *main, *small_tile, *depthwise;
    struct qk_conv_costs main_costs, small_tile_costs;
    struct qk_conv_costs words_costs; /* of products of words: of the `words` of small_tile's
                                         small_m, and of winograd; 0 if there are none */
    size_t threads;                   /* how many threads may share a run */
    double cycles_per_ns;
    double pack_unit_ns; /* how long a unit of packing should take */
    double unit_ns;      /* how long a unit of a run should take, at most */
    size_t quads_bytes; /* the most bytes of an igemm unit's slabs: they stay in the core's L2 cache
                           beside the weights */
    size_t sums_bytes;  /* the most bytes of the sums that wait in the L2 cache if K is taken in
                           parts */
    size_t slabs_most;  /* the most slabs of a unit, because each takes a cache line or more */
    size_t dot_bytes;   /* the most bytes of one position's gathered quads for `dot`
                           (kernels/gemm/igemm.h): they stay in the L1 cache */
    double weights_per_cycle; /* bytes of weights that a cycle reads from the L2 or L3 cache */
    /* For sgemm: the most floats of each matrix that sgemm reads, so that it stays in the core's L2
     * cache; how many terms a unit should have; and how many terms, elements of im2col and
     * requantized sums a core computes in a nanosecond. */
    size_t sgemm_floats;
    size_t sgemm_unit_terms;
    double sgemm_terms_per_ns, im2col_per_ns, requantized_per_ns;
};

/* A unit of a convolution takes at least this long, because what two units both read is laid out in
 * each of them. */
#define QK_CONV_UNIT_NS_LEAST 4000.0
/* Work that takes longer than this many of the shortest units has longer units. */
#define QK_CONV_UNITS_WANTED 8

/* Returns how long a unit should take of work that takes total_ns: so short that threads can share
 * work of 5 us, too. */
static inline double qk_conv_unit_ns(const struct qk_conv_tuning *tuning, double total_ns)
{
    const double part = total_ns / QK_CONV_UNITS_WANTED;
    const double longest = part < tuning->unit_ns ? part : tuning->unit_ns;
    return longest > QK_CONV_UNIT_NS_LEAST ? longest : QK_CONV_UNIT_NS_LEAST;
}
