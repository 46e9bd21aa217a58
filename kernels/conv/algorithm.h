/* The interface through which call.c calls the algorithms of a convolution, and the choice
 * between them. Private to conv/. */
#pragma once

#include "kernels/conv/geometry.h"

/* The inputs of qk_conv_algorithm.plan. The plan copies the geometry. It borrows all other inputs
 * for as long as it is used. */
struct qk_conv_plan_args {
    const struct qk_conv *conv;
    const struct qk_epilogue *epilogue;
    const struct qk_conv_geometry *geometry;
    const struct qk_openblas *openblas; /* only sgemm reads openblas and im2col */
    const struct qk_im2col_kernels *im2col;
    const struct qk_move_kernels *move; /* only depthwise reads it, if channels are last */
};

struct qk_conv_algorithm {
    /* Takes memory for the algorithm's part of `conv`, and fills the members of this part that are
     * not packed. Sets conv->packing.items to the number of output channels or, for igemm, of
     * panels. Sets *item_cycles to a rough guess of the cycles that packing one item takes. Returns
     * false if there is no memory. */
    bool (*prepare)(struct qk_conv *conv, struct qk_memory memory, double *item_cycles);
    /* Packs items [begin, end). */
    void (*pack)(const struct qk_conv *conv, size_t begin, size_t end);
    /* Sets the plan's kernel, workspace, units, run and state. The plan's outputs are set before
     * the call. Returns false if there is no memory. */
    bool (*plan)(const struct qk_conv_plan_args *args, struct qk_memory memory,
                 struct qk_plan *plan);
};

extern const struct qk_conv_algorithm qk_conv_algorithm_igemm;
/* Packs and plans for igemm and for Winograd's algorithm; each plan takes the faster one. */
extern const struct qk_conv_algorithm qk_conv_algorithm_winograd;
extern const struct qk_conv_algorithm qk_conv_algorithm_depthwise;
extern const struct qk_conv_algorithm qk_conv_algorithm_sgemm;

/* Sets conv->algorithm, conv->backend and conv->costs, from the tuning and the weights. `weights`
 * is the number of weights. */
void qk_conv_choose(struct qk_conv *conv, size_t weights);

/* Returns memory for `count` elements of `size` bytes, or NULL if there is none or the size
 * overflows. */
static inline void *qk_conv_alloc(struct qk_memory memory, size_t count, size_t size)
{
    size_t bytes;
    if (!qk_mul_size(count == 0 ? 1 : count, size, &bytes))
        return NULL;
    return memory.alloc(memory.context, bytes);
}

/* Returns the x of a run. If x is NULL, as an empty one may be, returns a pointer to a byte that is
 * never read. */
static inline const uint8_t *qk_conv_x(const void *const *inputs)
{
    static const uint8_t nothing[1];
    return inputs[0] ? inputs[0] : nothing;
}
