/* What a plan of the moving core consists of, for plan.c and run.c. */
#pragma once

#include "kernels/move/move.h"

/* How a box is moved: which kernel serves it. */
enum qk_move_pattern {
    QK_MOVE_COPY,       /* runs that are contiguous in x and y */
    QK_MOVE_STRIDED,    /* x has a stride */
    QK_MOVE_GATHERED,   /* x has a table */
    QK_MOVE_TRANSPOSED, /* the last axis is contiguous in y, the one before in x */
    QK_MOVE_DEALT,      /* the same, and x has no gaps */
    QK_MOVE_SCATTERED,  /* no axis is contiguous in y */
    QK_MOVE_PATTERN_COUNT
};

/* The most bytes of y in a tile: with as many bytes of x they fit in the L1 cache. */
#define QK_MOVE_TILE_BYTES ((size_t)16384)

/* A simplified box. Strides and offsets are in bytes. It is cut into tiles: its last four axes are
 * cut into pieces, the other axes into single elements. */
struct qk_move_part {
    enum qk_move_pattern pattern;
    unsigned size; /* log2 of the bytes of an element */
    bool fill;
    size_t input;
    size_t output;
    int64_t x_first;
    int64_t y_first;
    uint32_t rank; /* at least QK_MOVE_AXES */
    struct qk_move_axis *axes;
    struct qk_move_margin *margins; /* [rank], in bytes of y; NULL: there are none */
    size_t steps[QK_MOVE_AXES];     /* the sizes of a tile */
    size_t tiles;
    uint64_t tile_work;
    uint64_t begin; /* the work of all parts before this one */

    /* Past the caches, long rows go at once. A tile of other rows is put together on a stage, whose
     * runs are then streamed to y: those of the axes that are apart in y. */
    bool streams_rows;
    bool is_staged;
    bool is_apart[QK_MOVE_AXES];
    int64_t stage_strides[QK_MOVE_AXES];
};

struct qk_move {
    const struct qk_move_kernels *kernels;
    uint8_t fill[8]; /* the constant, repeated */
    unsigned bytes;  /* of an element */
    uint64_t unit_work;
    bool streams; /* some part does */
    size_t part_count;
    struct qk_move_part parts[];
};

/* Returns whether the elements of an axis and its margins are all that y has for one element of the
 * axis before it. If not, boxes that fill have the rest, and no tile may have more than one. */
static inline bool qk_move_is_dense(const struct qk_move_part *part, uint32_t axis)
{
    const struct qk_move_axis *inner = &part->axes[axis];
    const struct qk_move_margin *margin = &part->margins[axis];
    return (int64_t)inner->size * inner->y_stride + margin->before + margin->after ==
           part->axes[axis - 1].y_stride;
}

/* The function `run` of a plan. */
void qk_move_run(const struct qk_plan *plan, const void *const *inputs, void *const *outputs,
                 void *workspace, size_t begin, size_t end);
