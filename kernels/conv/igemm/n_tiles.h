/* Cuts the positions of a unit into N tiles for the products: an N tile is the columns of one tile.
 * It is a run of padded positions, at most as many as a tile has columns. Padded positions are
 * counted along rows that are padded to a pitch (kernels/conv/igemm/slabs.h). For rows of 5
 * positions, a pitch of 6 and N tiles of 8:
 *
 *    row 0     0  1  2  3  4  .        N tile 0 has padded positions 0 to 7, and N tile 1 has
 *    row 1     6  7  8  9 10  .        8 to 15. Padded positions 5 and 11 are not positions:
 *    row 2    12 13 14 15 16           their sums are computed and dropped.
 *
 * Private to conv/. */
#pragma once

#include "kernels/conv/igemm/slab_kernels.h"
#include "kernels/gemm/igemm.h"

/* The padded positions of a unit. Rows begin `pitch` apart, and images `image_pitch` apart. The
 * positions among the padded positions are the first `columns` of each row, in the first `rows`
 * rows of each image. */
struct qk_padded_grid {
    size_t images, rows, columns;
    size_t image_pitch, pitch;
    size_t image_stride; /* positions of y between two images */
};

/* Returns the number of padded positions from the first position to the last, both included. */
static inline size_t qk_conv_padded_positions(const struct qk_padded_grid *grid)
{
    return (grid->images - 1) * grid->image_pitch + (grid->rows - 1) * grid->pitch + grid->columns;
}

struct qk_n_tile {
    size_t first;  /* the padded position at which the N tile begins */
    size_t padded; /* how many padded positions it has, from 1 to the kernel's nr */
    /* How many padded positions follow each other before the N tile skips the padding between two
     * rows. This is `padded`, unless the N tile consists of several whole rows without their
     * padding. */
    size_t contiguous;
    const struct qk_tile_segment *segments; /* one for each image in the N tile, at least one */
    size_t segment_count;
};

/* Cuts all padded positions into N tiles of about the same size for tiles of `igemm`. Leaves out N
 * tiles without a position. Returns how many N tiles there are. For kernels by rows, only the last
 * N tile may end within a vector. Kernels by position take N tiles of any length, so their N tiles
 * may instead end with each row, or with every few rows, if that costs less. `n_tiles` must have
 * room for qk_conv_n_tiles_most N tiles, and `segments` for as many segments plus one for each
 * image. */
size_t qk_conv_cut_n_tiles(const struct qk_igemm *igemm, const struct qk_padded_grid *grid,
                           struct qk_n_tile *n_tiles, struct qk_tile_segment *segments);

/* Returns how many padded positions are computed. They include the padding between rows, unless N
 * tiles end with their rows. */
size_t qk_conv_computed_positions(const struct qk_igemm *igemm, const struct qk_padded_grid *grid);

/* Returns the largest number of N tiles that `padded` padded positions can make. */
size_t qk_conv_n_tiles_most(const struct qk_igemm *igemm, size_t padded);
