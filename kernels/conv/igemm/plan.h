/* A convolution on integer products, fitted to x: what plan.c makes and run.c runs.
 * Private to conv/. */
#ifndef KERNELS_CONV_IGEMM_PLAN_H
#define KERNELS_CONV_IGEMM_PLAN_H

#include "kernels/conv/igemm/slabs.h"
#include "kernels/conv/igemm/strips.h"

/* The workspace, in bytes from its start; every part is aligned to 64. */
struct qk_conv_igemm_workspace {
    size_t cells;
    size_t sums;        /* a tile, or where K has parts, all tiles of the unit */
    size_t column_tile; /* column_tile and column_sums: where w has zero points */
    size_t column_sums;
    size_t strips; /* struct qk_conv_strip and qk_requantize_stretch, of a full unit */
    size_t stretches;
    size_t dots; /* the cells of `dots` positions, dot_bytes apart */
    size_t dot_bytes;
    size_t bytes;
};

struct qk_conv_igemm_plan {
    const struct qk_conv *conv;
    struct qk_conv_geometry geometry;
    struct qk_slab_order order;
    struct qk_slab_layout layout;
    const struct qk_igemm_step *steps;
    struct qk_conv_igemm_workspace workspace;
    size_t rows;  /* output channels of a group */
    size_t dots;  /* positions at most whose sums are dots: qk_conv_igemm_dots */
    size_t outer; /* positions of the axes before the last two */
    size_t image_bands, row_bands, column_bands;
    size_t m_parts;       /* of the output channels of a group */
    size_t m_part_panels; /* in one part */
};

/* The last of a unit's `places` where their sums are dots: those behind whole vectors; or, where a
 * product takes whole steps, which are cheap beside others, a sole one. */
static inline size_t qk_conv_igemm_dots(const struct qk_conv_igemm_plan *plan, size_t places)
{
    const size_t beyond = places % QK_IGEMM_VECTOR;
    const bool any = !plan->conv->backend->gemm->whole_steps || places == 1;
    return any && beyond <= plan->dots ? beyond : 0;
}

void qk_conv_igemm_run(const struct qk_plan *plan, const void *const *inputs, void *const *outputs,
                       void *workspace, size_t begin, size_t end);

#endif
