/* The plan of a Winograd convolution (winograd.h): plan.c makes it, and run.c runs it. Private to
 * conv/. */
#pragma once

#include "kernels/conv/geometry.h"
#include "kernels/conv/igemm/slab_kernels.h"
#include "kernels/conv/igemm/slabs.h"
#include "kernels/conv/winograd/winograd.h"

/* Returns true if Winograd's algorithm can compute a convolution whose weights are packed for this
 * backend, and has channels enough to be worth a comparison with igemm when plans are made. The
 * convolution's costs must be set. */
bool qk_winograd_suits(const struct qk_conv *conv, const struct qk_conv_backend *backend);

/* Returns how many weights of each tap a panel has: rows of a panel times channels of whole quads,
 * rounded up to whole cache lines of words. */
size_t qk_winograd_panel_weights(const struct qk_conv *conv);

/* The offsets of the parts of the workspace, in bytes. Each is a multiple of 64. */
struct qk_winograd_workspace {
    size_t padded;   /* the padded rows of two channels */
    size_t quads;    /* V: [points][slabs][tiles] */
    size_t unpacked; /* the weights of a panel: [tap][pair of channels][row][2] */
    size_t weights;  /* U of the transformed panels: [panel][points][point_weights] */
    size_t products; /* M of the multiplied panels: [panel][points][tile of sums] */
    size_t sums;     /* tiles of sums of a panel */
    size_t segments; /* the struct qk_tile_segment of one of these tiles */
    size_t bytes;
};

/* Returns how many positions a tile of products has room for. */
static inline size_t qk_winograd_nr(const struct qk_winograd *kernels)
{
    return kernels->igemm->by_position ? kernels->igemm->nr : QK_IGEMM_NR;
}

/* Returns how many positions lie between two rows of sums. */
static inline size_t qk_winograd_pitch(const struct qk_winograd *kernels, size_t tile_columns)
{
    return kernels->igemm->by_position ? kernels->n * tile_columns
                                       : QK_WINOGRAD_PITCH(kernels->n, tile_columns);
}

/* A unit computes some panels of output channels of one group at a block of tiles. */
struct qk_winograd_plan {
    const struct qk_conv *conv;
    const struct qk_winograd *kernels;
    const struct qk_epilogue *epilogue;
    struct qk_conv_geometry geometry;
    struct qk_slab_order order;     /* of igemm's packed weights */
    size_t tile_rows, tile_columns; /* of a block */
    size_t strip_tile_rows; /* of a strip, the part of a block that is multiplied at a time: at most
                               what a tile of sums has room for */
    size_t row_bands, column_bands;
    size_t m_parts, m_part_panels; /* how the panels of a group are cut */
    size_t panels;                 /* of a group */
    size_t transformed_panels;     /* how many panels are transformed at a time */
    size_t multiplied_panels; /* how many of them are multiplied at a time: they share V of a point
                                 in the L1 cache */
    double cycles;            /* an estimate: what one thread takes for all units */
    double score;             /* what plans are compared by: estimates for one thread and for all */
    size_t slabs;             /* pairs of channels */
    size_t slab_bytes, point_bytes;
    size_t row_bytes;     /* of a padded row */
    size_t point_weights; /* from U of one point to that of the next */
    const struct qk_igemm_step *steps;
    size_t step_count;
    struct qk_winograd_workspace workspace;
};

/* The plan's `run`: computes units [begin, end). */
void qk_winograd_run(const struct qk_plan *plan, const void *const *inputs, void *const *outputs,
                     void *workspace, size_t begin, size_t end);
