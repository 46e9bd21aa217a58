/* How x is laid out for integer products: as slabs, which kernels/gemm/igemm.h defines. A slab is a
 * row of quads, a quad holds 4 bytes of one position: 4 channels that follow each other or, where x
 * has few channels, 4 columns that neighbouring taps see. The rows are padded as the convolution
 * wants it, so another tap of the kernel reads the same slab from another quad on, and no im2col
 * matrix is made. Private to conv/.
 *
 * A unit's positions are some rows of y, a part of one row, or the whole planes of some images one
 * behind the other. They are counted along one long row, in which each row of y is padded to a
 * pitch: position (row, column) has padded position row * pitch + column. Padded positions between
 * the last column and the pitch are no positions; their sums are computed for nothing and dropped,
 * which costs less than stopping at the end of every row.
 *
 * With a stride, one tap sees only every stride-th column (and row) of x. Taps that see the same
 * columns, shifted by whole strides, form a stride phase, and each phase has slabs of its own:
 *
 *     stride 2, kernel 3:   taps 0 and 2 see  0 2 4 6 ...   tap 2 from the second on
 *                           tap  1       sees 1 3 5 7 ...
 *
 * Where the kernel is wide for the row, a phase for each tap costs less: then nothing is shifted,
 * no padded position is dropped, and the slabs hold what an im2col matrix would.
 *
 * Axes before the last two share nothing: each of their positions and taps has slabs of its own. */
#ifndef KERNELS_CONV_IGEMM_SLABS_H
#define KERNELS_CONV_IGEMM_SLABS_H

#include "kernels/conv/backend.h"
#include "kernels/conv/geometry.h"
#include "kernels/conv/stride_phases.h"

/* The order of K: which terms each step of a sum has, and so how weights are packed. The slabs of
 * one tap are cut into K blocks of up to 16. For each K block come the taps of all axes but the
 * last two, for each of those the taps of the row axis, and for each of those the taps of the
 * column axis (a single one where quads hold columns). Each is a step. The order depends on the
 * weights alone, so packing can use it before any x is known. */
struct qk_slab_order {
    bool columns_in_quads; /* a quad holds taps of one channel's row, not channels */
    size_t quad_k;
    size_t column_quads; /* with columns_in_quads: quads of one row of taps */
    size_t slabs;        /* of one tap, in all K blocks together */
    size_t step_slabs;   /* of a step; those of the last K block may have fewer */
    size_t k_blocks;
    size_t outer_taps, row_taps, column_taps;
    size_t steps;
};

struct qk_slab_order qk_slab_order_for(const struct qk_conv_desc *desc,
                                       const struct qk_conv_backend *backend,
                                       const struct qk_conv_costs *costs);

/* The same order for axes that qk_conv_geometry_squeeze has moved: the steps stay what they are,
 * but the taps that make them belong to other axes now. */
void qk_slab_order_move(struct qk_slab_order *order, const struct qk_conv_geometry *geometry);

/* Slabs of each step in a K block: step_slabs, or in the last one what is left. */
static inline size_t qk_slab_count(const struct qk_slab_order *order, size_t k_block)
{
    size_t left = order->slabs - k_block * order->step_slabs;
    return left < order->step_slabs ? left : order->step_slabs;
}

/* Which weights of an output channel, as they come, meet one quad of a step: `count` of them,
 * `stride` apart, from `first` on. The rest of the quad meets weights of 0. */
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

/* How a unit's slabs lie in memory, one behind the other, slab_bytes apart. A K chunk is what is
 * laid out in one go: the slabs of one K block and one tap of the outer axes, for all taps of rows
 * and columns together or, where `fine`, for one of them. K chunks follow each other in the order
 * of steps. Where not all K chunks fit into the cache at once, K is taken in parts of k_part_chunks
 * of them. */
struct qk_slab_layout {
    struct qk_stride_phases row, column;
    bool fine;
    size_t rows, columns; /* positions of a full unit */
    size_t overlap;       /* columns of padding behind a row that are those before the next */
    size_t pitch;
    size_t images;      /* of a full unit: more than one only where it has whole planes */
    size_t image_pitch; /* positions from one image to the next */
    size_t slab_bytes;
    size_t k_chunk_slabs;
    size_t k_chunk_steps;
    size_t k_chunks;
    size_t k_part_chunks;
};

/* What one unit sees of x, for qk_slabs_make. */
struct qk_slab_job {
    const struct qk_conv_backend *backend;
    const struct qk_slab_order *order;
    const struct qk_slab_layout *layout;
    const struct qk_conv_geometry *geometry;
    uint8_t flip; /* as qk_slab_fill has it */
    int32_t x_zero_point;
    const uint8_t *x; /* the first image's and the group's first channel */
    size_t images, image_stride;
    size_t group_channels;
    size_t outer; /* the unit's position on the axes before the last two */
    size_t row, column, rows, columns;
};

/* Lays out K chunks [begin, end) from `quads` on. */
void qk_slabs_make(const struct qk_slab_job *job, size_t begin, size_t end, uint8_t *quads);

/* Fills steps[0, order->steps). Their offsets count from the start of the part of K that they are
 * in, since only that part is in memory. */
void qk_slab_steps(const struct qk_slab_order *order, const struct qk_slab_layout *layout,
                   struct qk_igemm_step *steps);

#endif
