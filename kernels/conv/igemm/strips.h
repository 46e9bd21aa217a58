/* Cuts the positions of a unit into strips, the columns of a tile: as many places one behind the
 * other as it has, along lines that are padded to a pitch (kernels/conv/igemm/slabs.h). Private to
 * conv/. */
#ifndef KERNELS_CONV_IGEMM_STRIPS_H
#define KERNELS_CONV_IGEMM_STRIPS_H

#include "kernels/conv/igemm/slab_kernels.h"
#include "kernels/gemm/igemm.h"

/* The places of a unit. They go on from row to row, `pitch` apart, and from image to image,
 * `image_pitch` apart; in each row the first `columns` of them are positions, and so are in each
 * image the first `rows` rows. */
struct qk_conv_lines {
    size_t images, rows, columns;
    size_t image_pitch, pitch;
    size_t image_stride; /* from one image's positions to the next one's in y */
};

/* Places from the first position to the last, both included. */
static inline size_t qk_conv_places(const struct qk_conv_lines *lines)
{
    return (lines->images - 1) * lines->image_pitch + (lines->rows - 1) * lines->pitch +
           lines->columns;
}

struct qk_conv_strip {
    size_t first;  /* place along the lines */
    size_t places; /* 1 to the tile's nr */
    /* So many of them follow each other; behind these, the strip goes on where the next row begins.
     * `places`, where it is not made of whole rows. */
    size_t run;
    const struct qk_stretch *stretches; /* one for each image in it: one at least */
    size_t stretch_count;
};

/* Cuts all places into strips for tiles of `igemm`, as even as they can be, leaves out those
 * without a position, and returns their number. Where the tiles are made of vectors, only the last
 * strip may have places beyond whole ones; kernels by position take strips of any length, so these
 * may end with each row instead, or with some whole rows, where that costs less. `strips` has room
 * for qk_conv_strips_most, `stretches` for as many and one more for each image. */
size_t qk_conv_cut_strips(const struct qk_igemm *igemm, const struct qk_conv_lines *lines,
                          struct qk_conv_strip *strips, struct qk_stretch *stretches);

/* How many places are computed for all positions: those between rows, too, unless strips end with
 * their rows. */
size_t qk_conv_computed_places(const struct qk_igemm *igemm, const struct qk_conv_lines *lines);

/* How many strips so many places can make at most. */
size_t qk_conv_strips_most(const struct qk_igemm *igemm, size_t places);

#endif
