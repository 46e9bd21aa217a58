#include "kernels/conv/igemm/n_tiles.h"

#include "kernels/sizes.h"

/* What an N tile costs beyond its padded positions, counted in padded positions: reading weights,
 * and ending a tile. It must be more than 2, so that qk_conv_n_tiles_most holds. */
#define N_TILE_COST 3
/* What each further row of an N tile costs beyond its positions, in the same unit: reading the
 * weights again. */
#define ROW_COST 1

static size_t n_tiles_of(const struct qk_igemm *igemm, size_t padded)
{
    return (padded - 1) / igemm->nr + 1;
}

size_t qk_conv_n_tiles_most(const struct qk_igemm *igemm, size_t padded)
{
    return padded / (igemm->by_position ? N_TILE_COST : igemm->nr) + 1;
}

/* Finds which of the padded positions [begin, end) are positions. There are at most 64 of them.
 * Returns how many segments they make, one for each image. */
static size_t find_segments(const struct qk_padded_grid *grid, size_t begin, size_t end,
                            struct qk_tile_segment *segments)
{
    size_t count = 0;
    size_t last = 0; /* the image of the last segment */
    for (size_t at = begin; at < end;) {
        const size_t image = at / grid->image_pitch;
        const size_t row = at % grid->image_pitch / grid->pitch;
        const size_t column = at % grid->image_pitch % grid->pitch;
        if (row >= grid->rows) {
            at = (image + 1) * grid->image_pitch;
            continue;
        }
        const size_t next = qk_size_min(at - column + grid->pitch, end);
        if (column < grid->columns) {
            const size_t kept = qk_size_min(next - at, grid->columns - column);
            if (count == 0 || image != last)
                segments[count++] = (struct qk_tile_segment){
                    .offset = image * grid->image_stride + row * grid->columns + column};
            segments[count - 1].keep |= UINT64_MAX >> (64 - kept) << (at - begin);
            last = image;
        }
        at = next;
    }
    return count;
}

struct n_tiles {
    const struct qk_padded_grid *grid;
    struct qk_n_tile *n_tiles;
    struct qk_tile_segment *segments;
    size_t count;
};

static void append(struct n_tiles *to, size_t begin, size_t end)
{
    const size_t found = find_segments(to->grid, begin, end, to->segments);
    if (found == 0)
        return; /* all of it lies between the last column of a row and the next row */
    to->n_tiles[to->count++] =
        (struct qk_n_tile){begin, end - begin, end - begin, to->segments, found};
    to->segments += found;
}

/* Cuts padded positions [begin, end) into N tiles of whole vectors, each of `vector` positions. */
static void append_evenly(struct n_tiles *to, const struct qk_igemm *igemm, size_t begin,
                          size_t end, size_t vector)
{
    const size_t vectors = (end - begin - 1) / vector + 1;
    const size_t count = n_tiles_of(igemm, vectors * vector);
    for (size_t i = 0; i < count; i++)
        append(to, begin + vectors * i / count * vector,
               qk_size_min(begin + vectors * (i + 1) / count * vector, end));
}

/* Returns how many whole rows an N tile has if N tiles end with their rows. An N tile has several
 * rows only if a tile has room for them and the kernel would split such a tile into parts anyway.
 */
static size_t rows_of_n_tile(const struct qk_igemm *igemm, const struct qk_padded_grid *grid)
{
    if (igemm->part == igemm->nr)
        return 1;
    return qk_size_min(qk_size_max(igemm->nr / grid->columns, 1), grid->rows);
}

/* Returns true if N tiles that end with their rows cost less. They compute no padding, but N tiles
 * that cross the ends of rows may be fewer. */
static bool end_with_rows(const struct qk_igemm *igemm, const struct qk_padded_grid *grid)
{
    if (!igemm->by_position)
        return false;
    const size_t padded = qk_conv_padded_positions(grid);
    const size_t taken = rows_of_n_tile(igemm, grid);
    const size_t n_tiles =
        qk_divide_up(grid->rows, taken) * n_tiles_of(igemm, taken * grid->columns);
    const size_t image = grid->rows * grid->columns + N_TILE_COST * n_tiles +
                         (taken > 1 ? ROW_COST * (grid->rows - n_tiles) : 0);
    return grid->images * image < padded + N_TILE_COST * n_tiles_of(igemm, padded);
}

size_t qk_conv_computed_positions(const struct qk_igemm *igemm, const struct qk_padded_grid *grid)
{
    return end_with_rows(igemm, grid) ? grid->images * grid->rows * grid->columns
                                      : qk_conv_padded_positions(grid);
}

/* Appends an N tile of `count` whole rows of an image, from `row` on. */
static void append_rows(struct n_tiles *to, size_t image, size_t row, size_t count)
{
    const struct qk_padded_grid *grid = to->grid;
    const size_t padded = count * grid->columns;
    *to->segments =
        (struct qk_tile_segment){.keep = UINT64_MAX >> (64 - padded),
                                 .offset = image * grid->image_stride + row * grid->columns};
    to->n_tiles[to->count++] =
        (struct qk_n_tile){(image > 0 ? image * grid->image_pitch : 0) + row * grid->pitch, padded,
                           grid->columns, to->segments++, 1};
}

size_t qk_conv_cut_n_tiles(const struct qk_igemm *igemm, const struct qk_padded_grid *grid,
                           struct qk_n_tile *n_tiles, struct qk_tile_segment *segments)
{
    struct n_tiles to = {grid, n_tiles, segments, 0};
    if (!end_with_rows(igemm, grid)) {
        append_evenly(&to, igemm, 0, qk_conv_padded_positions(grid),
                      igemm->by_position ? 1 : QK_IGEMM_VECTOR);
        return to.count;
    }
    const size_t taken = rows_of_n_tile(igemm, grid);
    for (size_t image = 0; image < grid->images; image++)
        for (size_t row = 0; row < grid->rows; row += taken) {
            const size_t begin = (image > 0 ? image * grid->image_pitch : 0) + row * grid->pitch;
            if (taken > 1)
                append_rows(&to, image, row, qk_size_min(grid->rows - row, taken));
            else
                append_evenly(&to, igemm, begin, begin + grid->columns, 1);
        }
    return to.count;
}
