/* Simplifies boxes, chooses their patterns, and cuts them into units. Runs the units. */
#include <string.h>

#include "kernels/dispatch.h"
#include "kernels/move/move.h"

/* How a box is moved: which kernel serves its last axis, or its last two. */
enum pattern {
    COPY,       /* runs that are contiguous in x and y */
    STRIDED,    /* x has a stride */
    GATHERED,   /* x has a table */
    TRANSPOSED, /* the last axis is contiguous in y, the one before in x */
    SCATTERED,  /* no axis is contiguous in y */
    PATTERN_COUNT
};

static const char *const pattern_names[PATTERN_COUNT] = {
    "move_copy", "move_strided", "move_gathered", "move_transposed", "move_scattered",
};

/* Work is counted in bytes that a copy moves in the same time. These are rough costs: one element
 * of a pattern, and one call of a kernel. */
static const uint64_t element_work[PATTERN_COUNT] = {0, 4, 4, 4, 8};
#define CALL_WORK 32

/* A byte of work takes at least as many cycles, in a cache. */
#define WORK_CYCLES 0.25
#define UNIT_WORK_MIN ((uint64_t)1 << 15)
#define UNIT_WORK_MAX ((uint64_t)1 << 22)

/* A transpose reads and writes at least a cache line of bytes before it goes on to others. */
#define LINE 64

/* A simplified box. Strides and offsets are in bytes. It is cut into a grid of tiles: its last two
 * axes, which are its rows and columns, are cut into pieces, the other axes into single elements.
 */
struct part {
    enum pattern pattern;
    unsigned size; /* log2 of the bytes of an element */
    bool fill;
    size_t input;
    size_t output;
    int64_t x_first;
    int64_t y_first;
    uint32_t rank; /* at least 2 */
    struct qk_move_axis *axes;
    size_t tile_rows;
    size_t tile_columns;
    size_t row_tiles;
    size_t column_tiles;
    size_t tiles;
    uint64_t tile_work;
    uint64_t begin; /* the work of all parts before this one */
};

struct qk_move {
    const struct qk_move_kernels *kernels;
    uint8_t fill[8]; /* the constant, repeated */
    unsigned bytes;  /* of an element */
    uint64_t unit_work;
    size_t part_count;
    struct part parts[];
};

/* ---- Simplification ------------------------------------------------------------------------ */

static int64_t x_of(const struct qk_move_axis *axis, size_t index)
{
    return axis->offsets ? axis->offsets[index] : (int64_t)index * axis->x_stride;
}

/* Replaces a table whose entries are evenly spaced by a stride. */
static void find_stride(struct qk_move_axis *axis, int64_t *x_first)
{
    if (!axis->offsets)
        return;
    const int64_t step = axis->size > 1 ? axis->offsets[1] - axis->offsets[0] : 0;
    for (size_t i = 1; i < axis->size; i++)
        if (axis->offsets[i] - axis->offsets[i - 1] != step)
            return;
    *x_first += axis->offsets[0];
    axis->x_stride = step;
    axis->offsets = NULL;
}

/* Returns whether the outer axis goes on where the inner axis ends. */
static bool merges(const struct qk_move_axis *outer, const struct qk_move_axis *inner)
{
    return !outer->offsets && !inner->offsets &&
           outer->x_stride == (int64_t)inner->size * inner->x_stride &&
           outer->y_stride == (int64_t)inner->size * inner->y_stride;
}

/* Leaves out axes of one element, and merges neighbours. */
static void simplify(struct qk_move_box *box)
{
    uint32_t rank = 0;
    for (uint32_t i = 0; i < box->rank; i++) {
        struct qk_move_axis axis = box->axes[i];
        find_stride(&axis, &box->x_first);
        if (box->fill) {
            axis.x_stride = 0;
            axis.offsets = NULL;
        }
        if (axis.size == 1)
            continue;
        if (rank > 0 && merges(&box->axes[rank - 1], &axis)) {
            axis.size *= box->axes[rank - 1].size;
            rank--;
        }
        box->axes[rank++] = axis;
    }
    box->rank = rank;
}

/* Turns elements into bytes. A short run of contiguous bytes then becomes one larger element.
 * Returns how many bytes an element has. */
static unsigned widen(struct qk_move_box *box, unsigned bytes)
{
    box->x_first *= bytes;
    box->y_first *= bytes;
    for (uint32_t i = 0; i < box->rank; i++) {
        box->axes[i].x_stride *= bytes;
        box->axes[i].y_stride *= bytes;
    }
    if (box->rank < 2)
        return bytes;
    const struct qk_move_axis *last = &box->axes[box->rank - 1];
    const bool contiguous = last->y_stride == (int64_t)bytes && !last->offsets &&
                            (last->x_stride == (int64_t)bytes || box->fill);
    const size_t run = last->size <= 8 ? last->size * bytes : 0;
    if (!contiguous || (run != 2 && run != 4 && run != 8))
        return bytes;
    box->rank--;
    return (unsigned)run;
}

/* ---- Patterns ------------------------------------------------------------------------------ */

/* Returns the axis of x's contiguous elements, if a transpose of the box by this axis and the last
 * one fills vectors. Otherwise returns the rank. */
static uint32_t find_rows(const struct part *part, const struct qk_move_axis *axes, uint32_t rank)
{
    const size_t vector = 16 >> part->size;
    const int64_t bytes = (int64_t)1 << part->size;
    const struct qk_move_axis *columns = &axes[rank - 1];
    for (uint32_t i = 0; i + 1 < rank; i++)
        if (!axes[i].offsets && axes[i].x_stride == bytes && axes[i].size >= vector &&
            (columns->size >= vector ||
             (columns->size <= 4 && axes[i].y_stride == (int64_t)columns->size * bytes)))
            return i;
    return rank;
}

/* Chooses the pattern, and puts the rows of a transpose before its columns. */
static enum pattern choose(const struct part *part, struct qk_move_axis *axes, uint32_t rank)
{
    const int64_t bytes = (int64_t)1 << part->size;
    const struct qk_move_axis *last = &axes[rank - 1];
    if (last->y_stride != bytes)
        return SCATTERED;
    if (last->offsets)
        return GATHERED;
    if (last->x_stride == bytes)
        return COPY;
    const uint32_t rows = part->fill ? rank : find_rows(part, axes, rank);
    if (rows == rank)
        return STRIDED;
    const struct qk_move_axis moved = axes[rows];
    memmove(&axes[rows], &axes[rows + 1], (rank - 2 - rows) * sizeof(*axes));
    axes[rank - 2] = moved;
    return TRANSPOSED;
}

/* Returns how far apart in memory the elements of an axis are at least, in x and in y. */
static int64_t reach(const struct qk_move_axis *axis)
{
    const int64_t x_stride = axis->x_stride < 0 ? -axis->x_stride : axis->x_stride;
    return axis->offsets || axis->y_stride < x_stride ? axis->y_stride : x_stride;
}

/* Sorts the axes before rows and columns. Axes whose elements are close to each other in x or y
 * come last, so that their cache lines and pages are used again soon. SpaceToDepth in the order of
 * y would read all of x for each element of a block. */
static void sort_outer(struct qk_move_axis *axes, uint32_t rank)
{
    for (uint32_t i = 1; i + 2 < rank; i++) {
        const struct qk_move_axis axis = axes[i];
        uint32_t at = i;
        for (; at > 0 && reach(&axes[at - 1]) < reach(&axis); at--)
            axes[at] = axes[at - 1];
        axes[at] = axis;
    }
}

static size_t at_least_one(size_t number)
{
    return number > 0 ? number : 1;
}

/* Cuts the last two axes so that a tile takes no longer than a unit. */
static void cut(struct part *part, uint64_t unit_work)
{
    const size_t rows = part->axes[part->rank - 2].size;
    const size_t columns = part->axes[part->rank - 1].size;
    const uint64_t work =
        part->pattern == COPY ? (uint64_t)1 << part->size : element_work[part->pattern];
    const size_t rows_min = part->pattern == TRANSPOSED && rows > LINE ? LINE : 1;
    const size_t columns_max = at_least_one((size_t)(unit_work / work) / rows_min);
    part->tile_columns = columns < columns_max ? columns : columns_max;
    const uint64_t row_work = part->tile_columns * work + CALL_WORK;
    size_t rows_max = at_least_one((size_t)(unit_work / row_work));
    if (rows_min > 1)
        rows_max = rows_max < rows_min ? rows_min : rows_max - rows_max % LINE;
    part->tile_rows = rows < rows_max ? rows : rows_max;
    part->row_tiles = (rows - 1) / part->tile_rows + 1;
    part->column_tiles = (columns - 1) / part->tile_columns + 1;
    part->tiles = part->row_tiles * part->column_tiles;
    for (uint32_t i = 0; i + 2 < part->rank; i++)
        part->tiles *= part->axes[i].size;
    part->tile_work = part->tile_rows * row_work;
}

/* ---- Plans --------------------------------------------------------------------------------- */

/* Returns whether a tensor fits in an address space, even if its dims of 0 were 1. */
static bool is_bounded(enum qk_type type, uint32_t rank, const size_t *dims)
{
    size_t bytes = qk_type_info(type)->bits / 8;
    for (uint32_t i = 0; i < rank; i++)
        if (dims[i] > 0 && (!qk_mul_size(bytes, dims[i], &bytes) || bytes > QK_LENGTH_MAX))
            return false;
    return true;
}

enum qk_status qk_move_check_input(const struct qk_tensor *x, const char *name,
                                   struct qk_error *error)
{
    if (is_bounded(x->type, x->rank, x->dims))
        return QK_OK;
    return qk_fail(error, QK_INVALID, "%s: expected a tensor that fits in memory, got a larger one",
                   name);
}

enum qk_status qk_move_set_output(struct qk_plan *plan, size_t output, enum qk_type type,
                                  uint32_t rank, const size_t *dims, struct qk_error *error)
{
    struct qk_tensor *y = &plan->outputs[output];
    if (!is_bounded(type, rank, dims))
        return qk_fail(error, QK_INVALID,
                       "%s: expected an output that fits in memory, got a larger one",
                       plan->instance->op->outputs[output].name);
    y->type = type;
    y->rank = rank;
    y->data = NULL;
    for (uint32_t i = 0; i < rank; i++)
        y->dims[i] = dims[i];
    qk_tensor_set_count(y);
    qk_type_bytes(type, y->count, &plan->output_bytes[output]);
    return QK_OK;
}

enum qk_status qk_move_begin(struct qk_move **move, enum qk_type type, const void *fill,
                             size_t box_max, struct qk_memory memory, struct qk_error *error)
{
    struct qk_move *made =
        memory.alloc(memory.context, sizeof(*made) + box_max * sizeof(made->parts[0]));
    if (!made)
        return qk_fail(error, QK_NO_MEMORY, "out of memory for a plan");
    memset(made, 0, sizeof(*made));
    made->bytes = qk_type_info(type)->bits / 8;
    for (unsigned i = 0; fill && i < sizeof(made->fill); i += made->bytes)
        memcpy(made->fill + i, fill, made->bytes);
    *move = made;
    return QK_OK;
}

/* Copies the axes and their tables, which then count bytes. Puts axes of one element before them if
 * there are less than two. Returns NULL if memory has run out. */
static struct qk_move_axis *copy_axes(const struct qk_move_box *box, unsigned bytes,
                                      unsigned element, uint32_t rank, struct qk_memory memory)
{
    struct qk_move_axis *axes = memory.alloc(memory.context, rank * sizeof(*axes));
    if (!axes)
        return NULL;
    for (uint32_t i = 0; i < rank - box->rank; i++)
        axes[i] = (struct qk_move_axis){1, element, element, NULL};
    for (uint32_t i = rank - box->rank, k = 0; i < rank; i++, k++) {
        axes[i] = box->axes[k];
        if (!axes[i].offsets)
            continue;
        int64_t *offsets = memory.alloc(memory.context, axes[i].size * sizeof(*offsets));
        if (!offsets)
            return NULL;
        for (size_t at = 0; at < axes[i].size; at++)
            offsets[at] = box->axes[k].offsets[at] * bytes;
        axes[i].offsets = offsets;
    }
    return axes;
}

enum qk_status qk_move_add(struct qk_move *move, const struct qk_move_box *given,
                           struct qk_memory memory, struct qk_error *error)
{
    struct qk_move_box box;
    memcpy(&box, given, offsetof(struct qk_move_box, axes));
    for (uint32_t i = 0; i < given->rank; i++) {
        box.axes[i] = given->axes[i];
        if (given->axes[i].size == 0)
            return QK_OK;
    }
    if (box.fill)
        box.x_first = 0;
    simplify(&box);
    const unsigned element = widen(&box, move->bytes);
    struct part *part = &move->parts[move->part_count];
    *part = (struct part){
        .size = (unsigned)__builtin_ctz(element),
        .fill = box.fill,
        .input = box.input,
        .output = box.output,
        .x_first = box.x_first,
        .y_first = box.y_first,
        .rank = box.rank < 2 ? 2 : box.rank,
    };
    part->axes = copy_axes(&box, move->bytes, element, part->rank, memory);
    if (!part->axes)
        return qk_fail(error, QK_NO_MEMORY, "out of memory for a plan");
    part->pattern = choose(part, part->axes, part->rank);
    sort_outer(part->axes, part->rank);
    move->part_count++;
    return QK_OK;
}

/* ---- Runs ---------------------------------------------------------------------------------- */

/* The place of a tile: its position in the grid, and the offsets of the axes before rows and
 * columns. */
struct cursor {
    size_t row_tile;
    size_t column_tile;
    size_t index[QK_MOVE_RANK_MAX];
    int64_t x;
    int64_t y;
};

static void seek(struct cursor *cursor, const struct part *part, size_t tile)
{
    cursor->column_tile = tile % part->column_tiles;
    tile /= part->column_tiles;
    cursor->row_tile = tile % part->row_tiles;
    tile /= part->row_tiles;
    cursor->x = part->x_first;
    cursor->y = part->y_first;
    for (uint32_t left = part->rank - 2; left > 0; left--) {
        const struct qk_move_axis *axis = &part->axes[left - 1];
        const size_t index = tile % axis->size;
        cursor->index[left - 1] = index;
        tile /= axis->size;
        cursor->x += x_of(axis, index);
        cursor->y += (int64_t)index * axis->y_stride;
    }
}

static void next(struct cursor *cursor, const struct part *part)
{
    if (++cursor->column_tile < part->column_tiles)
        return;
    cursor->column_tile = 0;
    if (++cursor->row_tile < part->row_tiles)
        return;
    cursor->row_tile = 0;
    for (uint32_t left = part->rank - 2; left > 0; left--) {
        const struct qk_move_axis *axis = &part->axes[left - 1];
        const size_t index = cursor->index[left - 1];
        const size_t following = index + 1 < axis->size ? index + 1 : 0;
        cursor->index[left - 1] = following;
        cursor->x += x_of(axis, following) - x_of(axis, index);
        cursor->y += ((int64_t)following - (int64_t)index) * axis->y_stride;
        if (following > 0)
            return;
    }
}

/* Copies 1 to 32 bytes without a call. */
static inline void copy_short(char *y, const char *x, size_t bytes)
{
    uint64_t first[2];
    uint64_t last[2];
    if (bytes >= 16) {
        memcpy(first, x, 16);
        memcpy(last, x + bytes - 16, 16);
        memcpy(y, first, 16);
        memcpy(y + bytes - 16, last, 16);
    } else if (bytes >= 8) {
        memcpy(first, x, 8);
        memcpy(last, x + bytes - 8, 8);
        memcpy(y, first, 8);
        memcpy(y + bytes - 8, last, 8);
    } else if (bytes >= 4) {
        memcpy(first, x, 4);
        memcpy(last, x + bytes - 4, 4);
        memcpy(y, first, 4);
        memcpy(y + bytes - 4, last, 4);
    } else {
        y[0] = x[0];
        y[bytes / 2] = x[bytes / 2];
        y[bytes - 1] = x[bytes - 1];
    }
}

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

/* Moves `count` elements of one row, from column `first` on. */
static void move_row(const struct qk_move *move, const struct part *part, char *y, const char *x,
                     size_t first, size_t count)
{
    const struct qk_move_axis *columns = &part->axes[part->rank - 1];
    y += (int64_t)first * columns->y_stride;
    if (part->pattern == GATHERED) {
        move->kernels->gathered[part->size](y, x, count, columns->offsets + first);
        return;
    }
    if (part->pattern == SCATTERED) {
        for (size_t i = 0; i < count; i++)
            copy_one(y + (int64_t)i * columns->y_stride, x + x_of(columns, first + i), part->size);
        return;
    }
    x += (int64_t)first * columns->x_stride;
    const size_t bytes = count << part->size;
    if (part->pattern == STRIDED)
        move->kernels->strided[part->size](y, x, count, columns->x_stride);
    else if (bytes <= 32)
        copy_short(y, x, bytes);
    else
        memcpy(y, x, bytes);
}

/* Moves one tile. `y` and `x` are where its box begins, without rows and columns. */
static void move_tile(const struct qk_move *move, const struct part *part,
                      const struct cursor *cursor, char *y, const char *x)
{
    const struct qk_move_axis *rows = &part->axes[part->rank - 2];
    const struct qk_move_axis *columns = &part->axes[part->rank - 1];
    const size_t row = cursor->row_tile * part->tile_rows;
    const size_t column = cursor->column_tile * part->tile_columns;
    const size_t rows_left = rows->size - row;
    const size_t columns_left = columns->size - column;
    const size_t row_count = rows_left < part->tile_rows ? rows_left : part->tile_rows;
    const size_t count = columns_left < part->tile_columns ? columns_left : part->tile_columns;
    if (part->pattern == TRANSPOSED) {
        y += (int64_t)row * rows->y_stride + (int64_t)column * columns->y_stride;
        x += (int64_t)row * rows->x_stride + (int64_t)column * columns->x_stride;
        move->kernels->transposed[part->size](y, rows->y_stride, x, columns->x_stride, row_count,
                                              count);
        return;
    }
    for (size_t i = row; i < row + row_count; i++)
        move_row(move, part, y + (int64_t)i * rows->y_stride, x + x_of(rows, i), column, count);
}

/* Returns the first tile of the part that begins at `work` or later. */
static size_t tile_at(const struct part *part, uint64_t work)
{
    if (work <= part->begin)
        return 0;
    const uint64_t tile = (work - part->begin - 1) / part->tile_work + 1;
    return tile < part->tiles ? (size_t)tile : part->tiles;
}

/* A unit runs the tiles that begin in its share of the work. */
static void run(const struct qk_plan *plan, const void *const *inputs, void *const *outputs,
                void *workspace, size_t begin, size_t end)
{
    const struct qk_move *move = plan->state;
    (void)workspace;
    for (size_t i = 0; i < move->part_count; i++) {
        const struct part *part = &move->parts[i];
        const size_t first = tile_at(part, begin * move->unit_work);
        const size_t last = tile_at(part, end * move->unit_work);
        if (first >= last)
            continue;
        const char *x = part->fill ? (const char *)move->fill : inputs[part->input];
        char *y = outputs[part->output];
        struct cursor cursor;
        seek(&cursor, part, first);
        for (size_t tile = first; tile < last; tile++, next(&cursor, part))
            move_tile(move, part, &cursor, y + cursor.y, x + cursor.x);
    }
}

void qk_move_end(struct qk_move *move, const struct qk_instance *instance, struct qk_plan *plan)
{
    const struct qk_elementwise_tuning *tuning = &instance->kernels->choice.elementwise;
    const double copied_ns = 2 * tuning->byte_ns;
    const double cycles_ns = WORK_CYCLES * tuning->cycle_ns;
    const double work_ns = copied_ns > cycles_ns ? copied_ns : cycles_ns;
    uint64_t work = UNIT_WORK_MIN;
    while (work < UNIT_WORK_MAX && (double)work * 2 * work_ns <= tuning->unit_ns)
        work *= 2;
    move->kernels = &instance->kernels->move;
    move->unit_work = work;
    uint64_t total = 0;
    uint64_t most = 0;
    plan->kernel = pattern_names[COPY];
    for (size_t i = 0; i < move->part_count; i++) {
        struct part *part = &move->parts[i];
        cut(part, work);
        part->begin = total;
        const uint64_t share = part->tiles * part->tile_work;
        total += share;
        if (share > most)
            plan->kernel = pattern_names[part->pattern];
        most = share > most ? share : most;
    }
    plan->unit_count = (size_t)((total + work - 1) / work);
    plan->unit_cost_ns = (uint64_t)((double)(total < work ? total : work) * work_ns);
    plan->run = run;
    plan->state = move;
}

/* ---- Helpers of operators ------------------------------------------------------------------ */

void qk_move_axes_of(const size_t *dims, uint32_t rank, struct qk_move_box *box)
{
    size_t stride = 1;
    for (uint32_t left = rank; left > 0; left--) {
        const size_t size = dims[left - 1];
        box->axes[left - 1] = (struct qk_move_axis){size, (int64_t)stride, (int64_t)stride, NULL};
        stride *= size;
    }
    box->rank = rank;
}

enum qk_status qk_move_plan_alias(const struct qk_instance *instance, const struct qk_tensor *x,
                                  uint32_t rank, const size_t *dims, struct qk_memory memory,
                                  struct qk_plan *plan, struct qk_error *error)
{
    struct qk_move *move;
    struct qk_move_box box = {.rank = 1, .axes = {{x->count, 1, 1, NULL}}};
    enum qk_status status = qk_move_check_input(x, instance->op->inputs[0].name, error);
    if (status == QK_OK)
        status = qk_move_set_output(plan, 0, x->type, rank, dims, error);
    if (status == QK_OK)
        status = qk_move_begin(&move, x->type, NULL, 1, memory, error);
    if (status == QK_OK)
        status = qk_move_add(move, &box, memory, error);
    if (status != QK_OK)
        return status;
    qk_move_end(move, instance, plan);
    plan->is_alias = true;
    return QK_OK;
}
