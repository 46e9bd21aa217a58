/* Positions counted along padded lines, in strips of up to 64. Private to conv/. */
#ifndef KERNELS_CONV_IGEMM_STRIPS_H
#define KERNELS_CONV_IGEMM_STRIPS_H

#include "kernels/conv/igemm/slab_kernels.h"

/* Places, of which those in the first `columns` of each row's `pitch`, and in the rows of each
 * image, are positions. */
struct qk_conv_lines {
    size_t images, rows, columns;
    size_t image_pitch, pitch;
    size_t image_stride; /* from one image's positions to the next one's in y */
};

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

/* Cuts lines into strips as even as can be; gives their number. `stretches`: room for
 * qk_conv_strips_most and one more for each image. */
size_t qk_conv_cut_strips(const struct qk_conv_lines *lines, struct qk_conv_strip *strips,
                          struct qk_requantize_stretch *stretches);

/* The most strips of so many places. */
size_t qk_conv_strips_most(size_t places);

#endif
