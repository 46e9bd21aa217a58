/* The three algorithms of a convolution, as conv.c sees them, and the choice between them. Private
 * to conv/. */
#ifndef KERNELS_CONV_ALGORITHM_H
#define KERNELS_CONV_ALGORITHM_H

#include "kernels/conv/geometry.h"

/* What a plan is made of. All of it but the geometry is borrowed for as long as the plan is used.
 */
struct qk_conv_plan_args {
    const struct qk_conv *conv;
    const struct qk_epilogue *epilogue;
    const struct qk_conv_geometry *geometry;
    const struct qk_openblas *openblas; /* this and the next: for sgemm */
    const struct qk_im2col_kernels *im2col;
};

struct qk_conv_algorithm {
    /* Takes memory for the algorithm's part of `conv`, fills what of it is not packed, and sets
     * conv->packing.items: output channels or, for igemm, panels. *item_cycles: a rough guess of
     * the cycles that packing one takes. False: no memory. */
    bool (*prepare)(struct qk_conv *conv, struct qk_memory memory, double *item_cycles);
    /* Packs items [begin, end). */
    void (*pack)(const struct qk_conv *conv, size_t begin, size_t end);
    /* Fills the plan's kernel, workspace, units, run and state; its outputs are there. False: no
     * memory. */
    bool (*plan)(const struct qk_conv_plan_args *args, struct qk_memory memory,
                 struct qk_plan *plan);
};

extern const struct qk_conv_algorithm qk_conv_algorithm_igemm;
extern const struct qk_conv_algorithm qk_conv_algorithm_depthwise;
extern const struct qk_conv_algorithm qk_conv_algorithm_sgemm;

/* Sets the algorithm, its backend and costs, by the tuning and the weights, of which there are
 * `weights`. */
void qk_conv_choose(struct qk_conv *conv, size_t weights);

/* What a run brings. An empty x may be NULL, and is never read. */
static inline const uint8_t *qk_conv_x(const void *const *inputs)
{
    static const uint8_t nothing[1];
    return inputs[0] ? inputs[0] : nothing;
}

#endif
