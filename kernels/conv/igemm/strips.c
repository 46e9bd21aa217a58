#include "kernels/conv/igemm/strips.h"

#include "kernels/conv/sizes.h"

enum { VECTOR = 16, VECTORS_MOST = 4 };

size_t qk_conv_strips_most(size_t places)
{
    return places / (VECTOR * VECTORS_MOST) + 1;
}

/* Finds which of the places [begin, end), at most 64, are positions; returns how many stretches
 * they make, one for each image. */
static size_t find_stretches(const struct qk_conv_lines *lines, size_t begin, size_t end,
                             struct qk_requantize_stretch *stretches)
{
    size_t count = 0;
    size_t last = 0; /* the last stretch's image */
    for (size_t at = begin; at < end;) {
        const size_t image = at / lines->image_pitch;
        const size_t row = at % lines->image_pitch / lines->pitch;
        const size_t column = at % lines->image_pitch % lines->pitch;
        if (row >= lines->rows) {
            at = (image + 1) * lines->image_pitch;
            continue;
        }
        const size_t next = qk_size_min(at - column + lines->pitch, end);
        if (column < lines->columns) {
            const size_t kept = qk_size_min(next - at, lines->columns - column);
            if (count == 0 || image != last)
                stretches[count++] = (struct qk_requantize_stretch){
                    .offset = image * lines->image_stride + row * lines->columns + column};
            stretches[count - 1].keep |= UINT64_MAX >> (64 - kept) << (at - begin);
            last = image;
        }
        at = next;
    }
    return count;
}

size_t qk_conv_cut_strips(const struct qk_conv_lines *lines, struct qk_conv_strip *strips,
                          struct qk_requantize_stretch *stretches)
{
    const size_t places = qk_conv_places(lines);
    const size_t vectors = (places - 1) / VECTOR + 1;
    const size_t count = (vectors - 1) / VECTORS_MOST + 1;
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        const size_t begin = vectors * i / count;
        const size_t end = vectors * (i + 1) / count;
        const size_t found =
            find_stretches(lines, begin * VECTOR, qk_size_min(end * VECTOR, places), stretches);
        if (found == 0)
            continue; /* all of it lies between a row's last column and a wide pitch */
        strips[kept++] = (struct qk_conv_strip){begin * VECTOR, end - begin, stretches, found};
        stretches += found;
    }
    return kept;
}
