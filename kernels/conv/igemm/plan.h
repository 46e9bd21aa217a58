/* A convolution by integer products, fitted to a shape of x: what plan.c makes and run.c runs.
 * Private to conv/. */
#ifndef KERNELS_CONV_IGEMM_PLAN_H
#define KERNELS_CONV_IGEMM_PLAN_H

#include "kernels/conv/igemm/n_tiles.h"
#include "kernels/conv/igemm/slabs.h"

/* Where the parts of the workspace begin, in bytes; each is aligned to 64. */
struct qk_conv_igemm_workspace {
    size_t quads;
    size_t sums;        /* a tile, or where K has parts, all tiles of the unit */
    size_t column_tile; /* this and column_sums are there where w has zero points */
    size_t column_sums;
    size_t n_tiles; /* struct qk_n_tile and qk_tile_segment, of a full unit */
    size_t segments;
    size_t remainder; /* gathered quads of single positions, dot_bytes apart */
    size_t dot_bytes;
    size_t bytes;
};

struct qk_conv_igemm_plan {
    const struct qk_conv *conv;
    const struct qk_epilogue *epilogue;
    struct qk_conv_geometry geometry;
    struct qk_slab_order order;
    struct qk_slab_layout layout;
    const struct qk_igemm_step *steps;
    struct qk_conv_igemm_workspace workspace;
    size_t rows;      /* output channels of a group */
    size_t remainder; /* at most so many positions of a unit are computed by dot products */
    size_t outer;     /* positions of the axes before the last two */
    size_t image_bands, row_bands, column_bands;
    size_t m_parts;       /* of the output channels of a group */
    size_t m_part_panels; /* in one part */
};

/* Returns how many of a unit's `padded` positions are a remainder that dot products compute: the
 * last ones, behind whole vectors. Where a product takes whole steps, which cost little beside dot
 * products, only a position that is alone. */
static inline size_t qk_conv_igemm_remainder(const struct qk_conv_igemm_plan *plan, size_t padded)
{
    const size_t beyond = padded % QK_IGEMM_VECTOR;
    const bool any = !plan->conv->backend->igemm->whole_steps || padded == 1;
    return any && beyond <= plan->remainder ? beyond : 0;
}

void qk_conv_igemm_run(const struct qk_plan *plan, const void *const *inputs, void *const *outputs,
                       void *workspace, size_t begin, size_t end);

#endif
