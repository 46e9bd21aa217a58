/* Simplifies boxes, chooses their patterns, and cuts them into units. */
#include <string.h>

#include "kernels/dispatch.h"
#include "kernels/move/part.h"

static const char *const pattern_names[QK_MOVE_PATTERN_COUNT] = {
    "move_copy", "move_strided", "move_gathered", "move_transposed", "move_dealt", "move_scattered",
};

/* Work is counted in bytes that a copy moves in the same time. These are rough costs: one element
 * of a pattern, if it has no more bytes, and one row. */
static const uint64_t element_work[QK_MOVE_PATTERN_COUNT] = {1, 4, 4, 2, 2, 8};
#define ROW_WORK 8

/* A byte of work takes at least as many cycles, in a cache. */
#define WORK_CYCLES 0.25
#define UNIT_WORK_MIN ((uint64_t)1 << 15)
#define UNIT_WORK_MAX ((uint64_t)1 << 22)

/* A transpose reads and writes at least a cache line of bytes before it goes on to others. */
#define LINE ((size_t)64)

/* The most rows to which a run of x is dealt out. Transposes serve more rows, if they fill vectors.
 */
#define DEALT_MAX 32

/* Rows of at least so many bytes are copied in units, not in tiles. They need no stage. */
#define LONG_ROW 1024

/* Runs that are written past the caches have at least so many bytes, so that most of their lines
 * are whole. */
#define STREAMED_MIN 256

/* ---- Simplification ------------------------------------------------------------------------ */

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

static bool has_margin(const struct qk_move_box *box, uint32_t axis)
{
    return box->framed && (box->margins[axis].before > 0 || box->margins[axis].after > 0);
}

/* Leaves out axes of one element, and merges neighbours. Merged axes have the outer one's margin:
 * an axis with a margin does not merge with the one before it. */
static void simplify(struct qk_move_box *box)
{
    uint32_t rank = 0;
    for (uint32_t i = 0; i < box->rank; i++) {
        struct qk_move_axis axis = box->axes[i];
        struct qk_move_margin margin = box->margins[i];
        find_stride(&axis, &box->x_first);
        if (box->fill) {
            axis.x_stride = 0;
            axis.offsets = NULL;
        }
        if (axis.size == 1 && !has_margin(box, i))
            continue;
        if (rank > 0 && !has_margin(box, i) && merges(&box->axes[rank - 1], &axis)) {
            axis.size *= box->axes[rank - 1].size;
            margin = box->margins[rank - 1];
            rank--;
        }
        box->margins[rank] = margin;
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
    if (box->rank < 2 || box->framed)
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

/* Returns whether a transpose of the box by these rows fills vectors, or alternates a few columns.
 */
static bool transposes(const struct qk_move_part *part, const struct qk_move_axis *rows,
                       const struct qk_move_axis *columns)
{
    const size_t vector = 16 >> part->size;
    const int64_t bytes = (int64_t)1 << part->size;
    if (columns->size >= 2 && columns->size <= 4 &&
        rows->y_stride == (int64_t)columns->size * bytes)
        return rows->size >= 2;
    return rows->size >= vector && columns->size >= vector;
}

/* Returns whether x is a run that is dealt out to the rows. */
static bool deals(const struct qk_move_axis *rows, const struct qk_move_axis *columns)
{
    return rows->size >= 2 && rows->size <= DEALT_MAX &&
           columns->x_stride == (int64_t)rows->size * rows->x_stride;
}

/* Finds the axis of x's contiguous elements, if a kernel for two axes serves it and the last axis.
 */
static enum qk_move_pattern find_rows(const struct qk_move_part *part,
                                      const struct qk_move_axis *axes, uint32_t rank,
                                      uint32_t *found)
{
    const struct qk_move_axis *columns = &axes[rank - 1];
    for (uint32_t i = 0; i + 1 < rank; i++) {
        if (axes[i].offsets || axes[i].x_stride != (int64_t)1 << part->size)
            continue;
        *found = i;
        if (transposes(part, &axes[i], columns))
            return QK_MOVE_TRANSPOSED;
        if (deals(&axes[i], columns))
            return QK_MOVE_DEALT;
    }
    return QK_MOVE_STRIDED;
}

/* Chooses the pattern, and puts the rows of a kernel for two axes before its columns. */
static enum qk_move_pattern choose(const struct qk_move_part *part, struct qk_move_axis *axes,
                                   uint32_t rank)
{
    const int64_t bytes = (int64_t)1 << part->size;
    const struct qk_move_axis *last = &axes[rank - 1];
    uint32_t rows;
    if (last->y_stride != bytes)
        return QK_MOVE_SCATTERED;
    if (last->offsets)
        return QK_MOVE_GATHERED;
    if (last->x_stride == bytes)
        return QK_MOVE_COPY;
    if (part->fill || part->margins)
        return QK_MOVE_STRIDED;
    const enum qk_move_pattern pattern = find_rows(part, axes, rank, &rows);
    if (pattern == QK_MOVE_STRIDED)
        return pattern;
    const struct qk_move_axis moved = axes[rows];
    memmove(&axes[rows], &axes[rows + 1], (rank - 2 - rows) * sizeof(*axes));
    axes[rank - 2] = moved;
    return pattern;
}

/* Returns over how many bytes of x, or of y if these are less, an axis extends. */
static int64_t extent(const struct qk_move_axis *axis)
{
    const int64_t x_stride = axis->x_stride < 0 ? -axis->x_stride : axis->x_stride;
    return (int64_t)axis->size *
           (axis->offsets || axis->y_stride < x_stride ? axis->y_stride : x_stride);
}

/* Sorts the axes before rows and columns. Axes that stay close in x or y come last, so that their
 * cache lines and pages are used again soon. SpaceToDepth in the order of y would read all of x for
 * each element of a block. */
static void sort_outer(struct qk_move_axis *axes, uint32_t rank)
{
    for (uint32_t i = 1; i + 2 < rank; i++) {
        const struct qk_move_axis axis = axes[i];
        uint32_t at = i;
        for (; at > 0 && extent(&axes[at - 1]) < extent(&axis); at--)
            axes[at] = axes[at - 1];
        axes[at] = axis;
    }
}

/* ---- Tiles --------------------------------------------------------------------------------- */

static size_t clamp(size_t number, size_t least, size_t most)
{
    return number < least ? least : number > most ? most : number;
}

static bool has_planes(const struct qk_move_part *part)
{
    return part->pattern == QK_MOVE_TRANSPOSED || part->pattern == QK_MOVE_DEALT;
}

static bool has_long_rows(const struct qk_move_part *part)
{
    return part->pattern == QK_MOVE_COPY && !part->margins &&
           part->axes[part->rank - 1].size >= LONG_ROW;
}

/* Cuts rows and columns together, so that a tile has whole lines of x and of y. */
static void cut_plane(struct qk_move_part *part, const struct qk_move_axis *axes)
{
    const size_t line = LINE >> part->size;
    const size_t most = QK_MOVE_TILE_BYTES >> part->size;
    const size_t rows = axes[QK_MOVE_ROWS].size;
    const size_t columns = axes[QK_MOVE_COLUMNS].size;
    size_t column_step = clamp(most / (rows < line ? rows : line), 1, columns);
    if (column_step < columns && column_step > line)
        column_step -= column_step % line;
    size_t row_step = clamp(most / column_step, 1, rows);
    if (row_step < rows && row_step > line)
        row_step -= row_step % line;
    part->steps[QK_MOVE_ROWS] = row_step;
    part->steps[QK_MOVE_COLUMNS] = column_step;
}

/* Sets the sizes of a tile: whole axes, from the last one on, as long as they fit, and a piece of
 * the next one. With margins, all bytes of y up to the next element count, and the margins before
 * and behind them. */
static void cut(struct qk_move_part *part, uint64_t unit_work)
{
    const struct qk_move_axis *axes = &part->axes[part->rank - QK_MOVE_AXES];
    size_t most = has_long_rows(part) ? (size_t)unit_work : QK_MOVE_TILE_BYTES;
    size_t bytes = (size_t)1 << part->size;
    bool is_whole = true;
    for (uint32_t i = 0; part->margins && i < part->rank; i++)
        most -= (size_t)(part->margins[i].before + part->margins[i].after);
    if (has_planes(part))
        cut_plane(part, axes);
    for (size_t i = QK_MOVE_AXES; i > 0; i--) {
        const struct qk_move_axis *axis = &axes[i - 1];
        size_t *step = &part->steps[i - 1];
        if (part->margins)
            bytes = (size_t)axis->y_stride;
        if (!has_planes(part) || i - 1 < QK_MOVE_ROWS)
            *step = is_whole ? clamp(most / bytes, 1, axis->size) : 1;
        is_whole = is_whole && *step == axis->size;
        if (part->margins && i > 1)
            is_whole =
                is_whole && qk_move_is_dense(part, part->rank - QK_MOVE_AXES + (uint32_t)i - 1);
        bytes *= *step;
    }
    part->tiles = 1;
    for (uint32_t i = 0; i < part->rank; i++) {
        const size_t step =
            i + QK_MOVE_AXES < part->rank ? 1 : part->steps[i + QK_MOVE_AXES - part->rank];
        part->tiles *= (part->axes[i].size - 1) / step + 1;
    }
    uint64_t work = (uint64_t)1 << part->size;
    work = work < element_work[part->pattern] ? element_work[part->pattern] : work;
    part->tile_work = work * part->steps[QK_MOVE_COLUMNS] + ROW_WORK;
    for (size_t i = 0; i < QK_MOVE_COLUMNS; i++)
        part->tile_work *= part->steps[i];
}

/* Decides how the part is written past the caches. On the stage, axes that are dense in y stay so,
 * and those that are apart follow. An axis that is cut is the last dense one. */
static void set_stage(struct qk_move_part *part)
{
    const struct qk_move_axis *axes = &part->axes[part->rank - QK_MOVE_AXES];
    size_t run = (size_t)1 << part->size;
    size_t staged = 1;
    part->streams_rows = has_long_rows(part);
    if (part->streams_rows || part->pattern == QK_MOVE_SCATTERED)
        return;
    for (size_t i = 0; i < QK_MOVE_AXES; i++)
        part->is_apart[i] = true;
    for (size_t found = 1; found > 0;) {
        found = 0;
        for (size_t i = 0; i < QK_MOVE_AXES; i++) {
            if (!part->is_apart[i] || (part->steps[i] > 1 && axes[i].y_stride != (int64_t)run))
                continue;
            part->is_apart[i] = false;
            part->stage_strides[i] = (int64_t)run;
            run *= part->steps[i];
            found++;
        }
    }
    for (size_t i = 0; i < QK_MOVE_AXES; i++)
        if (part->is_apart[i]) {
            part->stage_strides[i] = (int64_t)(run * staged);
            staged *= part->steps[i];
        }
    part->is_staged = part->margins || (run >= STREAMED_MIN && run * staged <= QK_MOVE_TILE_BYTES);
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

/* Returns how many bytes of y a framed box has, with all margins. */
static int64_t framed_bytes(const struct qk_move_box *box, unsigned bytes)
{
    const struct qk_move_axis *first = &box->axes[0];
    const struct qk_move_margin *margin = &box->margins[0];
    return box->rank > 0
               ? (int64_t)first->size * first->y_stride + (margin->before + margin->after) * bytes
               : bytes;
}

/* Copies the axes and their tables, which then count bytes. Puts axes of one element before them if
 * there are less than a tile has. Returns NULL if memory has run out. */
static struct qk_move_axis *copy_axes(const struct qk_move_box *box, unsigned bytes,
                                      unsigned element, uint32_t rank, struct qk_memory memory)
{
    const int64_t step = box->framed ? framed_bytes(box, bytes) : element;
    struct qk_move_axis *axes = memory.alloc(memory.context, rank * sizeof(*axes));
    if (!axes)
        return NULL;
    for (uint32_t i = 0; i < rank - box->rank; i++)
        axes[i] = (struct qk_move_axis){1, element, step, NULL};
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

/* Copies the margins, which then count bytes. Returns NULL if memory has run out. */
static struct qk_move_margin *copy_margins(const struct qk_move_box *box, unsigned bytes,
                                           uint32_t rank, struct qk_memory memory)
{
    struct qk_move_margin *margins = memory.alloc(memory.context, rank * sizeof(*margins));
    if (!margins)
        return NULL;
    for (uint32_t i = 0; i < rank - box->rank; i++)
        margins[i] = (struct qk_move_margin){0, 0};
    for (uint32_t i = rank - box->rank, k = 0; i < rank; i++, k++)
        margins[i] =
            (struct qk_move_margin){box->margins[k].before * bytes, box->margins[k].after * bytes};
    return margins;
}

/* Chooses how the box is moved. A row that is a run then consists of bytes. */
static void set_pattern(struct qk_move_part *part)
{
    struct qk_move_axis *last = &part->axes[part->rank - 1];
    part->pattern = choose(part, part->axes, part->rank);
    if (!part->margins)
        sort_outer(part->axes, part->rank);
    if (part->pattern != QK_MOVE_COPY)
        return;
    *last = (struct qk_move_axis){last->size << part->size, 1, 1, NULL};
    part->size = 0;
}

enum qk_status qk_move_add(struct qk_move *move, const struct qk_move_box *given,
                           struct qk_memory memory, struct qk_error *error)
{
    struct qk_move_box box;
    memcpy(&box, given, offsetof(struct qk_move_box, axes));
    for (uint32_t i = 0; i < given->rank; i++) {
        box.axes[i] = given->axes[i];
        box.margins[i] = given->framed ? given->margins[i] : (struct qk_move_margin){0};
        if (given->axes[i].size == 0)
            return QK_OK;
    }
    if (box.fill)
        box.x_first = 0;
    simplify(&box);
    const unsigned element = widen(&box, move->bytes);
    struct qk_move_part *part = &move->parts[move->part_count];
    *part = (struct qk_move_part){
        .size = (unsigned)__builtin_ctz(element),
        .fill = box.fill,
        .input = box.input,
        .output = box.output,
        .x_first = box.x_first,
        .y_first = box.y_first,
        .rank = box.rank < QK_MOVE_AXES ? QK_MOVE_AXES : box.rank,
    };
    part->axes = copy_axes(&box, move->bytes, element, part->rank, memory);
    if (part->axes && box.framed)
        part->margins = copy_margins(&box, move->bytes, part->rank, memory);
    if (!part->axes || (box.framed && !part->margins))
        return qk_fail(error, QK_NO_MEMORY, "out of memory for a plan");
    set_pattern(part);
    move->part_count++;
    return QK_OK;
}

/* ---- Units ---------------------------------------------------------------------------------- */

void qk_move_end(struct qk_move *move, const struct qk_instance *instance, struct qk_plan *plan)
{
    const struct qk_elementwise_tuning *tuning = &instance->kernels->choice.elementwise;
    const double copied_ns = 2 * tuning->byte_ns;
    const double cycles_ns = WORK_CYCLES * tuning->cycle_ns;
    const double work_ns = copied_ns > cycles_ns ? copied_ns : cycles_ns;
    uint64_t work = UNIT_WORK_MIN;
    while (work < UNIT_WORK_MAX && (double)work * 2 * work_ns <= tuning->unit_ns)
        work *= 2;
    size_t y_bytes = 0;
    for (size_t i = 0; i < plan->output_count; i++)
        y_bytes += plan->output_bytes[i];
    const bool streams = y_bytes >= tuning->stream_bytes;
    move->kernels = &instance->kernels->move;
    move->unit_work = work;
    uint64_t total = 0;
    uint64_t most = 0;
    plan->kernel = pattern_names[QK_MOVE_COPY];
    for (size_t i = 0; i < move->part_count; i++) {
        struct qk_move_part *part = &move->parts[i];
        cut(part, work);
        if (streams)
            set_stage(part);
        move->streams |= part->is_staged || part->streams_rows;
        if (part->is_staged)
            plan->workspace_bytes = QK_MOVE_TILE_BYTES;
        part->begin = total;
        const uint64_t share = part->tiles * part->tile_work;
        total += share;
        if (share > most)
            plan->kernel = pattern_names[part->pattern];
        most = share > most ? share : most;
    }
    plan->unit_count = (size_t)((total + work - 1) / work);
    plan->unit_cost_ns = (uint64_t)((double)(total < work ? total : work) * work_ns);
    plan->run = qk_move_run;
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
