/* The slabs of a unit (kernels/gemm/igemm.h): x as cells, padded, so that a tap of the kernel is an
 * offset. Each position and tap of the axes before the last two has slabs of its own. Private to
 * conv/.
 *
 * A unit's positions are some rows of the output, a part of one row, or the planes of some images
 * one behind the other. They are counted along a padded line: position (row, column) is row * pitch
 * + column, and what lies between the last column and the pitch is computed for nothing and
 * dropped. With a stride, the columns (and rows) of x that one tap sees are every stride-th: those
 * taps that see the same ones, shifted by whole strides, form a cluster, which has slabs of its
 * own:
 *
 *     stride 2, kernel 3:   taps 0 and 2 see  0 2 4 6 ...   tap 2 from the second on
 *                           tap  1       sees 1 3 5 7 ...
 *
 * Where the kernel is wide for its line, a cluster for each tap costs less: nothing is shifted, no
 * position is dropped, and slabs hold what im2col would.
 */
#ifndef KERNELS_CONV_IGEMM_SLABS_H
#define KERNELS_CONV_IGEMM_SLABS_H

#include "kernels/conv/backend.h"
#include "kernels/conv/geometry.h"

/* Tap t belongs to cluster t % clusters, and is t / clusters * shift elements behind its first. */
struct qk_slab_axis {
    size_t clusters;
    size_t shift;
    size_t span; /* the largest shift of a tap */
};

/* For so many taps of the axis; `shared`: one cluster for all that see the same, which only works
 * where qk_slab_may_share, or one for each tap. */
struct qk_slab_axis qk_slab_axis_for(const struct qk_conv_axis *axis, size_t taps, bool shared);
bool qk_slab_may_share(const struct qk_conv_axis *axis);

/* How K becomes steps: K blocks of up to 16 slabs; for each, the taps of all but the last two axes;
 * for each, rows and columns of taps (no columns where cells hold these). It depends on the weights
 * alone. */
struct qk_slab_order {
    bool columns_in_cells; /* a cell holds taps of one channel's row, not channels */
    size_t cell_k;
    size_t column_cells; /* with columns_in_cells: cells of one row of taps */
    size_t slabs;        /* for each tap */
    size_t step_slabs;   /* of a step that is not in the last K block */
    size_t k_blocks;
    size_t outer_taps, row_taps, column_taps;
    size_t steps;
};

struct qk_slab_order qk_slab_order_for(const struct qk_conv_desc *desc,
                                       const struct qk_conv_backend *backend);

/* The same order for axes that qk_conv_geometry_squeeze has moved: steps stay what they are, and
 * the taps that make them belong to other axes. */
void qk_slab_order_move(struct qk_slab_order *order, const struct qk_conv_geometry *geometry);

/* Slabs of the steps in one K block. */
static inline size_t qk_slab_count(const struct qk_slab_order *order, size_t k_block)
{
    size_t left = order->slabs - k_block * order->step_slabs;
    return left < order->step_slabs ? left : order->step_slabs;
}

/* Where the weights of a slab's cell are: `count` of them, `stride` apart. */
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
    if (order->columns_in_cells) {
        const size_t channel = index / order->column_cells;
        const size_t column = index % order->column_cells * order->cell_k;
        return (struct qk_slab_terms){.first = (channel * taps + tap) * width + column,
                                      .stride = 1,
                                      .count = width - column < order->cell_k ? width - column
                                                                              : order->cell_k};
    }
    const size_t channel = index * order->cell_k;
    const size_t left = desc->group_channels - channel;
    return (struct qk_slab_terms){.first = channel * taps + tap,
                                  .stride = taps,
                                  .count = left < order->cell_k ? left : order->cell_k};
}

/* How slabs lie in memory. A part of K, `k_part_bundles` bundles, is there at a time; each bundle
 * has bundle_slabs slabs. A bundle is a K block and a tap of the outer axes, and where `fine`, one
 * of the rows and columns, too. */
struct qk_slab_layout {
    struct qk_slab_axis row, column;
    bool fine;
    size_t rows, columns; /* positions of a full unit */
    size_t overlap;       /* columns of padding behind a line that are those before the next */
    size_t pitch;
    size_t images;      /* of a full unit: more than one only where it has whole planes */
    size_t image_pitch; /* positions from one image to the next */
    size_t slab_bytes;
    size_t bundle_slabs;
    size_t bundle_steps;
    size_t bundles;
    size_t k_part_bundles;
};

/* The part of a plane of x that one unit sees. */
struct qk_slab_job {
    const struct qk_conv_backend *backend;
    const struct qk_slab_order *order;
    const struct qk_slab_layout *layout;
    const struct qk_conv_geometry *geometry;
    enum qk_type x_type;
    int32_t x_zero_point;
    const uint8_t *x; /* the first image's and the group's first channel */
    size_t images, image_stride;
    size_t group_channels;
    size_t outer; /* the unit's position on the axes before the last two */
    size_t row, column, rows, columns;
};

/* Makes the slabs of bundles [begin, end), from `cells` on. */
void qk_slabs_make(const struct qk_slab_job *job, size_t begin, size_t end, uint8_t *cells);

/* Fills steps[0, order->steps), with offsets from the start of each part of K. */
void qk_slab_steps(const struct qk_slab_order *order, const struct qk_slab_layout *layout,
                   struct qk_igemm_step *steps);

#endif
