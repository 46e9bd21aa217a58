/* Cuts the positions of a unit into N tiles, the columns of a tile: as many padded positions one
 * behind the other as it has, along rows that are padded to a pitch (kernels/conv/igemm/slabs.h).
 * Private to conv/. */
#ifndef KERNELS_CONV_IGEMM_N_TILES_H
#define KERNELS_CONV_IGEMM_N_TILES_H

#include "kernels/conv/igemm/slab_kernels.h"
#include "kernels/gemm/igemm.h"

/* The padded positions of a unit. They go on from row to row, `pitch` apart, and from image to
 * image, `image_pitch` apart; in each row the first `columns` of them are positions, and so are in
 * each image the first `rows` rows. */
struct qk_padded_grid {
    size_t images, rows, columns;
    size_t image_pitch, pitch;
    size_t image_stride; /* from one image's positions to the next one's in y */
};

/* Padded positions from the first position to the last, both included. */
static inline size_t qk_conv_padded_positions(const struct qk_padded_grid *grid)
{
    return (grid->images - 1) * grid->image_pitch + (grid->rows - 1) * grid->pitch + grid->columns;
}

struct qk_n_tile {
    size_t first;  /* padded position */
    size_t padded; /* 1 to the tile's nr */
    /* So many of them follow each other. Behind these, the N tile goes on where the next row
     * begins. `padded`, unless the N tile is made of whole rows. */
    size_t contiguous;
    const struct qk_tile_segment *segments; /* one for each image in it: one at least */
    size_t segment_count;
};

/* Cuts all padded positions into N tiles for tiles of `igemm`, as even as they can be, leaves out
 * those without a position, and returns their number. Where the tiles are made of vectors, only the
 * last N tile may have padded positions beyond whole ones; kernels by position take N tiles of any
 * length, so these may end with each row instead, or with some whole rows, where that costs less.
 * `n_tiles` has room for qk_conv_n_tiles_most, `segments` for as many and one more for each image.
 */
size_t qk_conv_cut_n_tiles(const struct qk_igemm *igemm, const struct qk_padded_grid *grid,
                           struct qk_n_tile *n_tiles, struct qk_tile_segment *segments);

/* Returns how many positions are computed: the padding between rows, too, unless N tiles end with
 * their rows. */
size_t qk_conv_computed_positions(const struct qk_igemm *igemm, const struct qk_padded_grid *grid);

/* How many N tiles so many padded positions can make at most. */
size_t qk_conv_n_tiles_most(const struct qk_igemm *igemm, size_t padded);

#endif
