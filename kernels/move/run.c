/* Runs units of a plan of the moving core, tile by tile. */
#include <string.h>

#include "kernels/dispatch.h"
#include "kernels/move/part.h"

/* ---- Where tiles are ----------------------------------------------------------------------- */

/* Returns how many elements of an axis a tile has. */
static size_t step_of(const struct qk_move_part *part, uint32_t axis)
{
    return axis + QK_MOVE_AXES < part->rank ? 1 : part->steps[axis + QK_MOVE_AXES - part->rank];
}

/* Finds the first element of a tile along each axis. */
static void seek(size_t *index, const struct qk_move_part *part, size_t tile)
{
    for (uint32_t left = part->rank; left > 0; left--) {
        const size_t step = step_of(part, left - 1);
        const size_t count = (part->axes[left - 1].size - 1) / step + 1;
        index[left - 1] = tile % count * step;
        tile /= count;
    }
}

/* Goes on to the next tile. */
static void next(size_t *index, const struct qk_move_part *part)
{
    for (uint32_t left = part->rank; left > 0; left--) {
        index[left - 1] += step_of(part, left - 1);
        if (index[left - 1] < part->axes[left - 1].size)
            return;
        index[left - 1] = 0;
    }
}

/* Fills the tile, and moves x and y to where it begins. */
static void place(const struct qk_move_part *part, const size_t *index, struct qk_move_tile *tile,
                  const char **x, char **y)
{
    const uint32_t outer = part->rank - QK_MOVE_AXES;
    *x += part->x_first;
    *y += part->y_first;
    for (uint32_t i = 0; i < part->rank; i++) {
        const struct qk_move_axis *axis = &part->axes[i];
        *y += (int64_t)index[i] * axis->y_stride;
        if (i < outer || !axis->offsets)
            *x = qk_move_x_at(*x, axis, index[i]);
    }
    for (uint32_t i = 0; i < QK_MOVE_AXES; i++) {
        const size_t left = part->axes[outer + i].size - index[outer + i];
        struct qk_move_axis *axis = &tile->axes[i];
        *axis = part->axes[outer + i];
        axis->size = left < part->steps[i] ? left : part->steps[i];
        if (axis->offsets)
            axis->offsets += index[outer + i];
    }
}

/* ---- Kernels ------------------------------------------------------------------------------- */

static void copy_one(char *y, const char *x, unsigned size)
{
    switch (size) {
    case 0:
        *y = *x;
        return;
    case 1:
        memcpy(y, x, 2);
        return;
    case 2:
        memcpy(y, x, 4);
        return;
    default:
        memcpy(y, x, 8);
    }
}

/* Calls move_row for each row of a tile. */
static void each_row(char *y, const char *x, const struct qk_move_tile *tile, const void *context,
                     void (*move_row)(const void *context, char *y, const char *x,
                                      const struct qk_move_axis *columns))
{
    const struct qk_move_axis *outer = &tile->axes[QK_MOVE_OUTER];
    const struct qk_move_axis *inner = &tile->axes[QK_MOVE_INNER];
    const struct qk_move_axis *rows = &tile->axes[QK_MOVE_ROWS];
    for (size_t a = 0; a < outer->size; a++)
        for (size_t b = 0; b < inner->size; b++)
            for (size_t i = 0; i < rows->size; i++)
                move_row(context,
                         y + (int64_t)a * outer->y_stride + (int64_t)b * inner->y_stride +
                             (int64_t)i * rows->y_stride,
                         qk_move_x_at(qk_move_x_at(qk_move_x_at(x, outer, a), inner, b), rows, i),
                         &tile->axes[QK_MOVE_COLUMNS]);
}

static void scatter_row(const void *context, char *y, const char *x,
                        const struct qk_move_axis *columns)
{
    const struct qk_move_part *part = context;
    for (size_t k = 0; k < columns->size; k++)
        copy_one(y + (int64_t)k * columns->y_stride, qk_move_x_at(x, columns, k), part->size);
}

static void stream_row(const void *context, char *y, const char *x,
                       const struct qk_move_axis *columns)
{
    const struct qk_move_kernels *kernels = context;
    kernels->streamed(y, x, columns->size);
}

/* Moves the elements of a tile. Of the outer two axes, the longer one goes inside: the innermost
 * loop costs the least. */
static void move_elements(const struct qk_move *move, const struct qk_move_part *part, char *y,
                          const char *x, struct qk_move_tile *tile)
{
    const struct qk_move_axis outer = tile->axes[QK_MOVE_OUTER];
    if (outer.size > tile->axes[QK_MOVE_INNER].size) {
        tile->axes[QK_MOVE_OUTER] = tile->axes[QK_MOVE_INNER];
        tile->axes[QK_MOVE_INNER] = outer;
    }
    switch (part->pattern) {
    case QK_MOVE_COPY:
        if (part->streams_rows)
            each_row(y, x, tile, move->kernels, stream_row);
        else
            move->kernels->copied(y, x, tile);
        return;
    case QK_MOVE_STRIDED:
        move->kernels->strided[part->size](y, x, tile);
        return;
    case QK_MOVE_GATHERED:
        move->kernels->gathered[part->size](y, x, tile);
        return;
    case QK_MOVE_TRANSPOSED:
        move->kernels->transposed[part->size](y, x, tile);
        return;
    case QK_MOVE_DEALT:
        move->kernels->dealt[part->size](y, x, tile);
        return;
    default:
        each_row(y, x, tile, part, scatter_row);
    }
}

/* ---- Margins ------------------------------------------------------------------------------- */

/* Finds the bytes of y that belong to a tile: its elements, and what is around them up to the
 * elements of the tiles before and behind it. Sets how many bytes are before the tile's first
 * element, and returns how many there are in all. */
static size_t find_frame(const struct qk_move_part *part, const size_t *index, size_t *before)
{
    uint32_t cut = part->rank - 1; /* the outermost axis of which the tile has more than one */
    size_t lead = 0;
    while (cut > part->rank - QK_MOVE_AXES && step_of(part, cut) == part->axes[cut].size &&
           qk_move_is_dense(part, cut)) {
        lead += (size_t)part->margins[cut].before;
        cut--;
    }
    const size_t left = part->axes[cut].size - index[cut];
    const size_t count = left < step_of(part, cut) ? left : step_of(part, cut);
    size_t bytes = count * (size_t)part->axes[cut].y_stride;
    bool is_first = true;
    bool is_last = true;
    for (uint32_t axes = cut + 1; axes > 0; axes--) {
        const uint32_t i = axes - 1;
        is_first = is_first && index[i] == 0;
        is_last = is_last && index[i] + (i == cut ? count : 1) == part->axes[i].size;
        lead += is_first ? (size_t)part->margins[i].before : 0;
        bytes += is_first ? (size_t)part->margins[i].before : 0;
        bytes += is_last ? (size_t)part->margins[i].after : 0;
    }
    *before = lead;
    return bytes;
}

static void fill(const struct qk_move *move, char *y, size_t bytes)
{
    const int64_t element = move->bytes;
    const struct qk_move_tile tile = {{{1, 0, 0, NULL},
                                       {1, 0, 0, NULL},
                                       {1, 0, 0, NULL},
                                       {bytes / move->bytes, 0, element, NULL}}};
    move->kernels->strided[__builtin_ctz(move->bytes)](y, (const char *)move->fill, &tile);
}

/* ---- Tiles --------------------------------------------------------------------------------- */

/* Fills what belongs to the tile, then moves its elements over that: two passes in the L1 cache
 * cost less than short fills. */
static void move_framed(const struct qk_move *move, const struct qk_move_part *part,
                        const size_t *index, char *y, const char *x, struct qk_move_tile *tile,
                        char *stage)
{
    size_t before;
    const size_t bytes = find_frame(part, index, &before);
    char *to = part->is_staged ? stage : y - before;
    fill(move, to, bytes);
    move_elements(move, part, to + before, x, tile);
    if (part->is_staged)
        move->kernels->streamed(y - before, stage, bytes);
}

/* Moves the tile to the stage, and streams it to y, run by run. */
static void move_staged(const struct qk_move *move, const struct qk_move_part *part, char *y,
                        const char *x, struct qk_move_tile *tile, char *stage)
{
    struct qk_move_tile runs;
    size_t bytes = (size_t)1 << part->size; /* of a run */
    for (size_t i = 0; i < QK_MOVE_AXES; i++) {
        struct qk_move_axis *axis = &tile->axes[i];
        const size_t count = part->is_apart[i] ? axis->size : 1;
        bytes *= axis->size / count;
        runs.axes[i] = (struct qk_move_axis){count, part->stage_strides[i], axis->y_stride, NULL};
        axis->y_stride = part->stage_strides[i];
    }
    move_elements(move, part, stage, x, tile);
    runs.axes[QK_MOVE_COLUMNS].size = bytes;
    each_row(y, stage, &runs, move->kernels, stream_row);
}

static void move_tile(const struct qk_move *move, const struct qk_move_part *part,
                      const size_t *index, char *y, const char *x, char *stage)
{
    struct qk_move_tile tile;
    place(part, index, &tile, &x, &y);
    if (part->margins)
        move_framed(move, part, index, y, x, &tile, stage);
    else if (part->is_staged)
        move_staged(move, part, y, x, &tile, stage);
    else
        move_elements(move, part, y, x, &tile);
}

/* ---- Units --------------------------------------------------------------------------------- */

/* Returns the first tile of the part that begins at `work` or later. */
static size_t tile_at(const struct qk_move_part *part, uint64_t work)
{
    if (work <= part->begin)
        return 0;
    const uint64_t tile = (work - part->begin - 1) / part->tile_work + 1;
    return tile < part->tiles ? (size_t)tile : part->tiles;
}

/* A unit runs the tiles that begin in its share of the work. */
void qk_move_run(const struct qk_plan *plan, const void *const *inputs, void *const *outputs,
                 void *workspace, size_t begin, size_t end)
{
    const struct qk_move *move = plan->state;
    for (size_t i = 0; i < move->part_count; i++) {
        const struct qk_move_part *part = &move->parts[i];
        const size_t first = tile_at(part, begin * move->unit_work);
        const size_t last = tile_at(part, end * move->unit_work);
        if (first >= last)
            continue;
        const char *x = part->fill ? (const char *)move->fill : inputs[part->input];
        char *y = outputs[part->output];
        size_t index[QK_MOVE_RANK_MAX];
        seek(index, part, first);
        for (size_t tile = first; tile < last; tile++, next(index, part))
            move_tile(move, part, index, y, x, workspace);
    }
    if (move->streams)
        move->kernels->finish();
}
