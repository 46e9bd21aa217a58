#include "kernels/conv/igemm/strips.h"

#include "kernels/conv/sizes.h"

/* What a strip costs beside its places, in places: reading weights, and the end of a tile. It is
 * more than 2, so that qk_conv_strips_most holds. */
#define STRIP_PLACES 3
/* What each further row of a strip costs beside its places: reading weights again. */
#define ROW_PLACES 1

static size_t strips_of(const struct qk_igemm *igemm, size_t places)
{
    return (places - 1) / igemm->nr + 1;
}

size_t qk_conv_strips_most(const struct qk_igemm *igemm, size_t places)
{
    return places / (igemm->by_position ? STRIP_PLACES : igemm->nr) + 1;
}

/* Finds which of the places [begin, end), at most 64, are positions; returns how many stretches
 * they make, one for each image. */
static size_t find_stretches(const struct qk_conv_lines *lines, size_t begin, size_t end,
                             struct qk_stretch *stretches)
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
                stretches[count++] = (struct qk_stretch){.offset = image * lines->image_stride +
                                                                   row * lines->columns + column};
            stretches[count - 1].keep |= UINT64_MAX >> (64 - kept) << (at - begin);
            last = image;
        }
        at = next;
    }
    return count;
}

/* A list of strips, to which strips are added. */
struct strips {
    const struct qk_conv_lines *lines;
    struct qk_conv_strip *strips;
    struct qk_stretch *stretches;
    size_t count;
};

static void append(struct strips *to, size_t begin, size_t end)
{
    const size_t found = find_stretches(to->lines, begin, end, to->stretches);
    if (found == 0)
        return; /* all of it lies between a row's last column and a wide pitch */
    to->strips[to->count++] =
        (struct qk_conv_strip){begin, end - begin, end - begin, to->stretches, found};
    to->stretches += found;
}

/* Cuts places [begin, end) into strips of whole vectors, `vector` places each. */
static void append_evenly(struct strips *to, const struct qk_igemm *igemm, size_t begin, size_t end,
                          size_t vector)
{
    const size_t vectors = (end - begin - 1) / vector + 1;
    const size_t count = strips_of(igemm, vectors * vector);
    for (size_t i = 0; i < count; i++)
        append(to, begin + vectors * i / count * vector,
               qk_size_min(begin + vectors * (i + 1) / count * vector, end));
}

/* How many whole rows a strip takes where strips end with their rows: several if a tile has room
 * for them and its kernel would not take them in one go anyway. */
static size_t rows_of_strip(const struct qk_igemm *igemm, const struct qk_conv_lines *lines)
{
    if (igemm->part == igemm->nr)
        return 1;
    return qk_size_min(qk_size_max(igemm->nr / lines->columns, 1), lines->rows);
}

/* Whether strips that end with their rows cost less: they compute no padding, but strips across
 * rows may be fewer. */
static bool end_with_rows(const struct qk_igemm *igemm, const struct qk_conv_lines *lines)
{
    if (!igemm->by_position)
        return false;
    const size_t places = qk_conv_places(lines);
    const size_t taken = rows_of_strip(igemm, lines);
    const size_t strips =
        qk_divide_up(lines->rows, taken) * strips_of(igemm, taken * lines->columns);
    const size_t image = lines->rows * lines->columns + STRIP_PLACES * strips +
                         (taken > 1 ? ROW_PLACES * (lines->rows - strips) : 0);
    return lines->images * image < places + STRIP_PLACES * strips_of(igemm, places);
}

size_t qk_conv_computed_places(const struct qk_igemm *igemm, const struct qk_conv_lines *lines)
{
    return end_with_rows(igemm, lines) ? lines->images * lines->rows * lines->columns
                                       : qk_conv_places(lines);
}

/* Makes a strip of whole rows of an image. */
static void append_rows(struct strips *to, size_t image, size_t row, size_t count)
{
    const struct qk_conv_lines *lines = to->lines;
    const size_t places = count * lines->columns;
    *to->stretches =
        (struct qk_stretch){.keep = UINT64_MAX >> (64 - places),
                            .offset = image * lines->image_stride + row * lines->columns};
    to->strips[to->count++] =
        (struct qk_conv_strip){(image > 0 ? image * lines->image_pitch : 0) + row * lines->pitch,
                               places, lines->columns, to->stretches++, 1};
}

size_t qk_conv_cut_strips(const struct qk_igemm *igemm, const struct qk_conv_lines *lines,
                          struct qk_conv_strip *strips, struct qk_stretch *stretches)
{
    struct strips to = {lines, strips, stretches, 0};
    if (!end_with_rows(igemm, lines)) {
        append_evenly(&to, igemm, 0, qk_conv_places(lines),
                      igemm->by_position ? 1 : QK_IGEMM_VECTOR);
        return to.count;
    }
    const size_t taken = rows_of_strip(igemm, lines);
    for (size_t image = 0; image < lines->images; image++)
        for (size_t row = 0; row < lines->rows; row += taken) {
            const size_t begin = (image > 0 ? image * lines->image_pitch : 0) + row * lines->pitch;
            if (taken > 1)
                append_rows(&to, image, row, qk_size_min(lines->rows - row, taken));
            else
                append_evenly(&to, igemm, begin, begin + lines->columns, 1);
        }
    return to.count;
}
