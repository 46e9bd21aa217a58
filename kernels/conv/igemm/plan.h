/* The plan of an igemm convolution: the convolution fitted to a shape of x. plan.c makes it, and
 * run.c runs it. Private to conv/. */
#pragma once

#include "kernels/conv/igemm/n_tiles.h"
#include "kernels/conv/igemm/slabs.h"

/* The offsets of the parts of the workspace, in bytes. Each is a multiple of 64. */
struct qk_conv_igemm_workspace {
    size_t quads;
    size_t sums; /* the sums of one tile or, if K is taken in parts, of all tiles of the unit */
    size_t column_tile; /* column_tile and column_sums have the sums of x's columns; they are empty
                           unless w has zero points */
    size_t column_sums;
    size_t n_tiles;   /* the struct qk_n_tile of all N tiles of a full unit */
    size_t segments;  /* the struct qk_tile_segment of a full unit */
    size_t remainder; /* quads gathered for dot products: dot_bytes for each position of the
                         remainder */
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
    size_t remainder; /* the most positions of a unit that dot products compute */
    size_t outer;     /* the number of positions of the outer axes */
    /* How many bands the images, rows and columns of y are cut into. A unit has one band of each.
     */
    size_t image_bands, row_bands, column_bands;
    size_t m_parts;       /* how many parts the output channels of a group are cut into */
    size_t m_part_panels; /* panels in one part */
};

/* Returns how many of a unit's `padded` positions are its remainder: the last ones, after whole
 * vectors. Dot products compute these positions, because they would leave most lanes of a vector
 * unused. If a kernel multiplies whole steps (AMX), computing them in a tile costs little compared
 * with dot products. The remainder is then empty, unless the unit has a single padded position. */
static inline size_t qk_conv_igemm_remainder(const struct qk_conv_igemm_plan *plan, size_t padded)
{
    const size_t beyond = padded % QK_IGEMM_VECTOR;
    const bool any = !plan->conv->backend->igemm->whole_steps || padded == 1;
    return any && beyond <= plan->remainder ? beyond : 0;
}

/* The plan's `run`: computes units [begin, end). */
void qk_conv_igemm_run(const struct qk_plan *plan, const void *const *inputs, void *const *outputs,
                       void *workspace, size_t begin, size_t end);
