/* Cuts the positions of a unit into strips, the columns of a tile: up to 64 places one behind the
 * other along lines that are padded to a pitch (kernels/conv/igemm/slabs.h). Private to conv/. */
#ifndef KERNELS_CONV_IGEMM_STRIPS_H
#define KERNELS_CONV_IGEMM_STRIPS_H

#include "kernels/conv/igemm/slab_kernels.h"

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
    size_t first;                                  /* place along the lines; a multiple of 16 */
    size_t vectors;                                /* of 16 places: 1 to 4 */
    const struct qk_requantize_stretch *stretches; /* one for each image in it: one at least */
    size_t stretch_count;
};

/* Cuts all places into strips as even as they can be, leaves out those without a position, and
 * returns their number. `strips` has room for qk_conv_strips_most, `stretches` for as many and one
 * more for each image. */
size_t qk_conv_cut_strips(const struct qk_conv_lines *lines, struct qk_conv_strip *strips,
                          struct qk_requantize_stretch *stretches);

/* How many strips so many places can make at most. */
size_t qk_conv_strips_most(size_t places);

#endif
