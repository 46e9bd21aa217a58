/* Lays x out for integer products, as slabs, which kernels/gemm/igemm.h defines. A slab is a row of
 * quads. A quad holds 4 bytes of one position: 4 neighbouring channels or, if x has few channels, 4
 * columns that neighbouring taps read. The rows have the convolution's padding. Another tap of the
 * kernel therefore reads the same slab from another quad on, and no im2col matrix is made. Private
 * to conv/.
 *
 * A unit's positions are some rows of y, a part of one row, or the whole planes of some images, one
 * after the other. They are counted along one long row, in which each row of y is padded to a
 * pitch: position (row, column) has padded position row * pitch + column. Padded positions between
 * the last column and the pitch are not positions. Their sums are computed and dropped, which costs
 * less than stopping at the end of every row. For 3 columns, a kernel of 3 columns and a pad of 1,
 * the pitch is 4, because the padding after a row is also the padding before the next one:
 *
 *    quad      0 1 2 3 4 5 6 7 8 ...
 *    holds     . a b c . d e f . ...                 . is padding
 *    position (0, 0) has padded position 0 and reads quads 0 1 2
 *    position (0, 2) has padded position 2 and reads quads 2 3 4
 *    position (1, 0) has padded position 4 and reads quads 4 5 6;   3 is no position
 *
 * With a stride, one tap reads only every stride-th column (and row) of x. Taps that read the same
 * columns, shifted by whole strides, form a stride phase, and each phase has slabs of its own:
 *
 *     stride 2, kernel 3:   taps 0 and 2 read  0 2 4 6 ...   tap 2 from the second on
 *                           tap  1       reads 1 3 5 7 ...
 *
 * If the kernel is wide compared with the row, a phase for each tap costs less. Then nothing is
 * shifted, no padded position is dropped, and the slabs hold what an im2col matrix would hold.
 *
 * The outer axes share nothing: each of their positions and taps has slabs of its own. */
#pragma once

#include "kernels/conv/backend.h"
#include "kernels/conv/geometry.h"
#include "kernels/conv/stride_phases.h"

/* The order of K: which terms of a sum each step has, and so how weights are packed. The slabs of
 * one tap are cut into K blocks of up to 16 slabs. Steps follow in the order of these loops:
 *
 *    for each K block
 *        for each tap of the outer axes
 *            for each tap of the row axis
 *                for each tap of the column axis, or once if quads hold columns
 *                    a step
 *
 * The order depends on the weights alone, so packing can use it before any x is known. */
struct qk_slab_order {
    bool columns_in_quads; /* a quad holds taps of one row of one channel, not channels */
    size_t quad_k;
    size_t column_quads; /* with columns_in_quads: quads of one row of taps */
    size_t slabs;        /* slabs of one tap, in all K blocks together */
    size_t step_slabs;   /* slabs of a step; a step of the last K block may have fewer */
    size_t k_blocks;
    size_t outer_taps, row_taps, column_taps;
    size_t steps;
};

struct qk_slab_order qk_slab_order_for(const struct qk_conv_desc *desc,
                                       const struct qk_conv_backend *backend,
                                       const struct qk_conv_costs *costs);

/* Adapts the order to axes that qk_conv_geometry_squeeze has moved. The steps stay the same, but
 * their taps may belong to other axes. */
void qk_slab_order_move(struct qk_slab_order *order, const struct qk_conv_geometry *geometry);

/* Returns the number of slabs of each step in a K block: step_slabs, or fewer in the last K block.
 */
static inline size_t qk_slab_count(const struct qk_slab_order *order, size_t k_block)
{
    size_t left = order->slabs - k_block * order->step_slabs;
    return left < order->step_slabs ? left : order->step_slabs;
}

/* The weights of an output channel that one quad of a step is multiplied by. In the caller's order
 * they are `count` weights, `stride` apart, from weight `first` on. The rest of the quad is
 * multiplied by 0. For 3 x 3 taps, the quad of channels 8 to 11 at tap 4 has first 8 * 9 + 4 = 76,
 * stride 9 and count 4. */
struct qk_slab_terms {
    size_t first, stride, count;
};

static inline struct qk_slab_terms qk_slab_terms(const struct qk_slab_order *order,
                                                 const struct qk_conv_desc *desc, size_t k_block,
                                                 size_t tap, size_t slab)
{
    const size_t width = (size_t)desc->kernel[QK_AXIS_COLUMN];
    const size_t index = k_block * order->step_slabs + slab;
    const size_t taps = order->outer_taps * order->row_taps * order->column_taps;
    if (order->columns_in_quads) {
        const size_t channel = index / order->column_quads;
        const size_t column = index % order->column_quads * order->quad_k;
        return (struct qk_slab_terms){.first = (channel * taps + tap) * width + column,
                                      .stride = 1,
                                      .count = width - column < order->quad_k ? width - column
                                                                              : order->quad_k};
    }
    const size_t channel = index * order->quad_k;
    const size_t left = desc->group_channels - channel;
    return (struct qk_slab_terms){.first = channel * taps + tap,
                                  .stride = taps,
                                  .count = left < order->quad_k ? left : order->quad_k};
}

/* How a unit's slabs lie in memory, one after the other, slab_bytes apart. A slab set is the slabs
 * that are laid out together: those of one K block and one tap of the outer axes. It holds the
 * slabs of all taps of the row and column axes or, if `fine`, of one tap of each of these two axes.
 * Slab sets follow each other in the order of steps. If not all of them fit into the cache at once,
 * K is taken in parts of part_sets slab sets: a part is laid out and multiplied, and the next part
 * takes its place and adds to the sums. */
struct qk_slab_layout {
    struct qk_stride_phases row, column;
    bool fine;
    size_t rows, columns; /* of positions in a full unit */
    size_t overlap; /* columns of padding after a row that are also padding before the next row */
    size_t pitch;
    size_t images;      /* of a full unit; more than one only if it has whole planes */
    size_t image_pitch; /* padded positions from one image to the next */
    size_t slab_bytes;
    size_t set_slabs; /* of one slab set, like set_steps */
    size_t set_steps;
    size_t sets; /* of all of K */
    size_t part_sets;
};

/* The part of x that one unit reads, for qk_slabs_make. */
struct qk_slab_job {
    const struct qk_conv_backend *backend;
    const struct qk_slab_order *order;
    const struct qk_slab_layout *layout;
    const struct qk_conv_geometry *geometry;
    uint8_t flip; /* as in qk_slab_fill */
    int32_t x_zero_point;
    const uint8_t *x; /* the unit's first image */
    const uint8_t *all_x;
    size_t x_bytes; /* of all_x */
    size_t channel; /* the first of the unit's group */
    bool channels_last;
    size_t images, image_stride;
    size_t group_channels;
    size_t outer; /* the unit's position on the outer axes */
    size_t row, column, rows, columns;
};

/* Lays out slab sets [begin, end) at `quads`. */
void qk_slabs_make(const struct qk_slab_job *job, size_t begin, size_t end, uint8_t *quads);

/* Fills steps[0, order->steps). If K is taken in parts (part_sets < sets), only the slab sets of
 * one part are in memory at a time. The offset of a step therefore counts from the first slab set
 * of the part to which the step belongs. */
void qk_slab_steps(const struct qk_slab_order *order, const struct qk_slab_layout *layout,
                   struct qk_igemm_step *steps);
