/* Runs units of a convolution by integer products: makes a unit's slabs, multiplies each panel with
 * each N tile of these slabs, and computes y from the tiles. */
#include "kernels/conv/igemm/plan.h"

#include "kernels/conv/algorithm.h"
#include "kernels/conv/channels.h"
#include "kernels/conv/igemm/pack.h"
#include "kernels/sizes.h"

#include <math.h>
#include <string.h>

struct unit {
    size_t image, images, group, outer;
    size_t row, column, rows, columns;
    size_t panel_begin, panel_end;
    size_t n_tile_count;
    size_t remainder; /* the last positions of the last N tile, computed by dot products */
};

/* The input and output of a run, and the parts of one worker's workspace. */
struct work {
    const uint8_t *x;
    uint8_t *y;
    int32_t x_zero_point, x_offset; /* x_offset: what stored activations are too large by */
    uint8_t *quads;
    int32_t *sums;
    int32_t *column_tile;
    int32_t *column_sums;
    struct qk_n_tile *n_tiles;
    struct qk_tile_segment *segments;
    uint8_t *remainder;
};

static struct unit locate(const struct qk_conv_igemm_plan *plan, size_t index)
{
    const struct qk_conv_axis *axis = plan->geometry.axis;
    const struct qk_slab_layout *layout = &plan->layout;
    struct unit unit;
    unit.panel_begin = index % plan->m_parts * plan->m_part_panels;
    unit.panel_end =
        qk_size_min(unit.panel_begin + plan->m_part_panels, plan->conv->igemm.panel_count);
    index /= plan->m_parts;
    unit.column = index % plan->column_bands * layout->columns;
    unit.columns = qk_size_min((size_t)axis[QK_AXIS_COLUMN].out - unit.column, layout->columns);
    index /= plan->column_bands;
    unit.row = index % plan->row_bands * layout->rows;
    unit.rows = qk_size_min((size_t)axis[QK_AXIS_ROW].out - unit.row, layout->rows);
    index /= plan->row_bands;
    unit.outer = index % plan->outer;
    index /= plan->outer;
    unit.group = index % plan->conv->desc.group;
    unit.image = index / plan->conv->desc.group * layout->images;
    unit.images = qk_size_min(plan->geometry.images - unit.image, layout->images);
    return unit;
}

static struct qk_slab_job slab_job(const struct qk_conv_igemm_plan *plan, const struct unit *unit,
                                   const struct work *work)
{
    const struct qk_conv *conv = plan->conv;
    const size_t image_stride =
        conv->desc.group * conv->desc.group_channels * plan->geometry.channel_size;
    return (struct qk_slab_job){
        .backend = conv->backend,
        .order = &plan->order,
        .layout = &plan->layout,
        .geometry = &plan->geometry,
        .flip = qk_conv_x_flip(conv->x_type, conv->backend->igemm->x_signed),
        .x_zero_point = work->x_zero_point,
        .x = work->x + unit->image * image_stride,
        .all_x = work->x,
        .x_bytes = plan->geometry.images * image_stride,
        .channel = unit->group * conv->desc.group_channels,
        .channels_last = conv->desc.channels_last,
        .images = unit->images,
        .image_stride = image_stride,
        .group_channels = conv->desc.group_channels,
        .outer = unit->outer,
        .row = unit->row,
        .column = unit->column,
        .rows = unit->rows,
        .columns = unit->columns,
    };
}

/* Gathers the quads of the remainder for steps [begin, end). */
static void gather_remainder(const struct qk_conv_igemm_plan *plan, const struct unit *unit,
                             const struct work *work, size_t begin, size_t end)
{
    const struct qk_n_tile *n_tile = &work->n_tiles[unit->n_tile_count - 1];
    for (size_t i = 0; i < unit->remainder; i++) {
        const size_t position = n_tile->first + n_tile->padded - unit->remainder + i;
        uint8_t *to = work->remainder + i * plan->workspace.dot_bytes;
        for (size_t s = begin; s < end; s++) {
            const uint8_t *from =
                work->quads + plan->steps[s].offset + position * QK_IGEMM_QUAD_BYTES;
            for (size_t slab = 0; slab < plan->order.step_slabs; slab++) {
                memcpy(to, from, QK_IGEMM_QUAD_BYTES);
                to += QK_IGEMM_QUAD_BYTES;
                if (slab + 1 < plan->steps[s].slabs)
                    from += plan->layout.slab_bytes;
            }
        }
        memset(to, 0, QK_IGEMM_SLACK);
    }
}

/* Computes a tile whose N tile has several whole rows, row by row. Changes `args`. */
static void multiply_row_by_row(const struct qk_conv_igemm_plan *plan,
                                const struct qk_n_tile *n_tile, struct qk_igemm_args *args)
{
    const struct qk_igemm *igemm = plan->conv->backend->igemm;
    args->positions = n_tile->contiguous;
    for (size_t done = 0; done < n_tile->padded; done += n_tile->contiguous) {
        igemm->multiply(args);
        args->quads += plan->layout.pitch * QK_IGEMM_QUAD_BYTES;
        args->sums += n_tile->contiguous * igemm->mr;
    }
}

/* Returns the arguments of products over steps [begin, end). They lack what differs between panels
 * and between N tiles. */
static struct qk_igemm_args step_args(const struct qk_conv_igemm_plan *plan, size_t begin,
                                      size_t end)
{
    return (struct qk_igemm_args){
        .slab_bytes = plan->layout.slab_bytes,
        .steps = plan->steps + begin,
        .step_count = end - begin,
        .step_bytes = plan->conv->igemm.step_bytes,
        .add = begin > 0,
    };
}

/* Sets what `args` of steps from `begin` on lack of a panel. */
static void set_panel(const struct qk_conv_igemm_plan *plan, const uint8_t *panel, size_t rows,
                      size_t begin, struct qk_igemm_args *args)
{
    const struct qk_conv *conv = plan->conv;
    args->weights = panel + begin * conv->igemm.step_bytes;
    args->rows = rows;
    if (conv->backend->igemm->mark_wide) {
        const uint8_t *wide = panel + plan->order.steps * conv->igemm.step_bytes;
        args->wide = (const struct qk_igemm_wide *)(const void *)wide + begin;
        args->wide_weights = wide + qk_igemm_wide_bytes(conv->backend->igemm, plan->order.steps);
    }
}

/* Computes the last positions of the last N tile by dot products. `args` are those of its other
 * positions, which it changes. */
static void multiply_remainder(const struct qk_conv_igemm_plan *plan, const struct unit *unit,
                               const struct work *work, struct qk_igemm_args *args)
{
    args->quads = work->remainder;
    args->step_slabs = plan->order.step_slabs;
    args->position_bytes = plan->workspace.dot_bytes;
    args->sums_row = QK_IGEMM_NR;
    args->sums_position = 1;
    args->positions = unit->remainder;
    args->sums += args->vectors * QK_IGEMM_VECTOR;
    plan->conv->backend->igemm->dot(args);
}

/* Computes the tile of a panel and N tile `b`. Sets what `args` of the panel lack. */
static void multiply(const struct qk_conv_igemm_plan *plan, const struct unit *unit,
                     const struct work *work, size_t b, struct qk_igemm_args *args, int32_t *sums)
{
    const struct qk_n_tile *n_tile = &work->n_tiles[b];
    const size_t remainder = b + 1 == unit->n_tile_count ? unit->remainder : 0;
    args->quads = work->quads + n_tile->first * QK_IGEMM_QUAD_BYTES;
    args->vectors = qk_divide_up(n_tile->padded, QK_IGEMM_VECTOR) - (remainder > 0);
    args->positions = n_tile->padded;
    args->sums = sums;
    if (n_tile->contiguous < n_tile->padded)
        multiply_row_by_row(plan, n_tile, args);
    else if (remainder < n_tile->padded)
        plan->conv->backend->igemm->multiply(args);
    if (remainder > 0)
        multiply_remainder(plan, unit, work, args);
}

/* Returns the job of the epilogue for `rows` rows of a panel from `row` on, without what differs
 * between N tiles. `bias` has room for the biases of a panel. */
static struct qk_epilogue_tile panel_tile(const struct qk_conv_igemm_plan *plan,
                                          const struct unit *unit, const struct work *work,
                                          size_t row, size_t rows, int32_t *bias)
{
    const struct qk_conv *conv = plan->conv;
    const struct qk_conv_axis *axis = plan->geometry.axis;
    const size_t width = (size_t)axis[QK_AXIS_COLUMN].out;
    const size_t channel = unit->group * plan->rows + row;
    const size_t position =
        (unit->outer * (size_t)axis[QK_AXIS_ROW].out + unit->row) * width + unit->column;
    const size_t channels = conv->desc.out_channels;
    const size_t positions = plan->geometry.positions;
    const bool last = conv->desc.channels_last;
    const size_t first = last ? (unit->image * positions + position) * channels + channel
                              : (unit->image * channels + channel) * positions + position;
    return (struct qk_epilogue_tile){
        .epilogue = plan->epilogue,
        .row_count = conv->backend->igemm->by_position ? conv->backend->igemm->mr : 0,
        .rows = rows,
        .bias = qk_conv_bias(conv, work->x_offset, channel, rows, bias),
        .multiplier = plan->epilogue->multiplier + channel,
        .w_zero_point = conv->igemm.ones ? conv->igemm.w_zero_point + channel : NULL,
        .y = work->y + first * plan->epilogue->y_bytes,
        .y_stride = last ? 1 : positions,
        .position_stride = last ? channels : 1,
    };
}

/* Computes y from a tile whose sums are complete. Sets what `tile` of the panel lacks. */
static void finish(const struct qk_conv_igemm_plan *plan, const struct work *work, size_t b,
                   struct qk_epilogue_tile *tile, const int32_t *sums)
{
    const struct qk_slab_kernels *slabs = plan->conv->backend->slabs;
    const struct qk_n_tile *n_tile = &work->n_tiles[b];
    tile->sums = sums;
    tile->positions = n_tile->padded;
    tile->column_sums = work->column_sums + b * plan->conv->backend->igemm->nr;
    tile->segments = n_tile->segments;
    tile->segment_count = n_tile->segment_count;
    if (plan->conv->desc.channels_last)
        slabs->any_epilogue(tile);
    else
        slabs->epilogues[plan->epilogue->kind](tile);
}

/* Returns true if the unit's positions are neighbours in y and in its slabs. */
static bool is_one_run(const struct qk_conv_igemm_plan *plan, const struct unit *unit)
{
    return unit->rows == 1 || plan->layout.pitch == unit->columns;
}

/* Returns true if whole vectors of positions fill a row without going beyond its pitch, so that
 * computing row by row takes no more products than N tiles that cross the ends of rows. */
static bool fills_rows(const struct qk_conv_igemm_plan *plan, const struct unit *unit)
{
    const size_t lanes = plan->conv->backend->igemm->lanes;
    return unit->columns >= QK_IGEMM_VECTOR &&
           qk_divide_up(unit->columns, lanes) * lanes <= plan->layout.pitch;
}

/* Computes y for the positions of a unit without sums in memory, if the product can store bytes:
 * for all positions at once, or row by row. Returns false if the unit has to go tile by tile, as it
 * does if dot products compute all its positions. If they compute only the last ones, a vector that
 * is mostly empty costs less than sums in memory. A kernel by position does not go row by row,
 * because most rows end with a tile that is not full. `args` and `tile` are those of the panel. */
static bool multiply_to_bytes(const struct qk_conv_igemm_plan *plan, const struct unit *unit,
                              const struct work *work, struct qk_igemm_args *args,
                              const struct qk_epilogue_tile *tile)
{
    const struct qk_conv *conv = plan->conv;
    const bool run = is_one_run(plan, unit);
    if (!conv->backend->igemm->stores_bytes || plan->epilogue->kind != QK_EPILOGUE_BYTES ||
        conv->desc.channels_last || tile->w_zero_point || unit->images > 1 ||
        unit->rows * unit->columns == unit->remainder ||
        !(run || (!conv->backend->igemm->by_position && fills_rows(plan, unit))))
        return false;
    for (size_t r = 0; r < tile->rows; r++)
        if (!(fabsf(tile->multiplier[r]) < 1))
            return false;
    struct qk_igemm_bytes bytes = {
        .bias = tile->bias,
        .multiplier = tile->multiplier,
        .zero_point = plan->epilogue->requantize.zero_point,
        .is_signed = plan->epilogue->requantize.is_signed,
        .y = tile->y,
        .y_stride = tile->y_stride,
    };
    args->quads = work->quads;
    args->positions = run ? unit->rows * unit->columns : unit->columns;
    args->bytes = &bytes;
    for (size_t left = run ? 1 : unit->rows; left > 0; left--) {
        conv->backend->igemm->multiply(args);
        args->quads += plan->layout.pitch * QK_IGEMM_QUAD_BYTES;
        bytes.y += unit->columns;
    }
    args->bytes = NULL;
    return true;
}

/* Adds up x's columns over steps [begin, end): multiplies them by a panel whose first row is 1
 * everywhere. The other rows of the tile are not used. */
static void add_column_sums(const struct qk_conv_igemm_plan *plan, const struct unit *unit,
                            const struct work *work, size_t begin, size_t end)
{
    const struct qk_igemm *igemm = plan->conv->backend->igemm;
    const size_t stride = igemm->by_position ? igemm->mr : 1;
    struct qk_igemm_args args = step_args(plan, begin, end);
    set_panel(plan, plan->conv->igemm.ones, 1, begin, &args);
    for (size_t b = 0; b < unit->n_tile_count; b++) {
        int32_t *sums = work->column_sums + b * igemm->nr;
        for (size_t i = 0; i < igemm->nr; i++)
            work->column_tile[i * stride] = sums[i];
        multiply(plan, unit, work, b, &args, work->column_tile);
        for (size_t i = 0; i < igemm->nr; i++)
            sums[i] = work->column_tile[i * stride];
    }
}

/* How many sums of a single position lie side by side: whole panels of most kernels, and whole
 * vectors. Every tile has room for them. */
#define POINT_ROWS 96

/* Returns true if the unit has a single position, and its channels are neighbours in y. */
static bool is_point(const struct qk_conv_igemm_plan *plan, const struct unit *unit,
                     const struct work *work)
{
    const struct qk_conv *conv = plan->conv;
    return unit->n_tile_count == 1 && work->n_tiles[0].padded == 1 && !conv->igemm.ones &&
           (conv->backend->igemm->by_position || unit->remainder == 1) &&
           (conv->desc.channels_last || plan->geometry.positions == 1);
}

/* Computes y for such a unit: the sums of several panels side by side, which the epilogue takes as
 * the rows of one tile. A tile for each panel would take several times as long as the products. */
static void run_point(const struct qk_conv_igemm_plan *plan, const struct unit *unit,
                      const struct work *work)
{
    const struct qk_conv *conv = plan->conv;
    const struct qk_igemm *igemm = conv->backend->igemm;
    const size_t group = POINT_ROWS / igemm->mr;
    const uint8_t *panel =
        conv->igemm.weights +
        (unit->group * conv->igemm.panel_count + unit->panel_begin) * conv->igemm.panel_bytes;
    struct qk_igemm_args args = step_args(plan, 0, plan->order.steps);
    args.quads = igemm->by_position ? work->quads : work->remainder;
    args.positions = 1;
    args.step_slabs = plan->order.step_slabs;
    args.sums_row = 1;
    args.sums_position = igemm->mr;
    for (size_t p = unit->panel_begin, count; p < unit->panel_end; p += count) {
        const size_t row = p * igemm->mr;
        count = qk_size_min(unit->panel_end - p, group);
        const size_t rows = qk_size_min(plan->rows - row, count * igemm->mr);
        for (size_t i = 0; i < count; i++) {
            set_panel(plan, panel, qk_size_min(rows - i * igemm->mr, igemm->mr), 0, &args);
            args.sums = work->sums + i * igemm->mr;
            if (igemm->by_position)
                igemm->multiply(&args);
            else
                igemm->dot(&args);
            panel += conv->igemm.panel_bytes;
        }
        int32_t bias[POINT_ROWS];
        struct qk_epilogue_tile tile = panel_tile(plan, unit, work, row, rows, bias);
        tile.row_count = POINT_ROWS;
        tile.sums = work->sums;
        tile.positions = 1;
        tile.segments = work->n_tiles[0].segments;
        tile.segment_count = work->n_tiles[0].segment_count;
        conv->backend->slabs->any_epilogue(&tile);
    }
}

/* Computes all tiles of the unit over steps [begin, end). Computes y, too, if these are the last
 * steps. */
static void run_steps(const struct qk_conv_igemm_plan *plan, const struct unit *unit,
                      const struct work *work, size_t begin, size_t end)
{
    const struct qk_conv *conv = plan->conv;
    const size_t mr = conv->backend->igemm->mr;
    const size_t tile = qk_igemm_tile_sums(conv->backend->igemm);
    const bool whole = begin == 0 && end == plan->order.steps;
    int32_t *sums = work->sums;
    if (whole && is_point(plan, unit, work)) {
        run_point(plan, unit, work);
        return;
    }
    struct qk_igemm_args args = step_args(plan, begin, end);
    for (size_t p = unit->panel_begin; p < unit->panel_end; p++) {
        const uint8_t *panel = conv->igemm.weights + (unit->group * conv->igemm.panel_count + p) *
                                                         conv->igemm.panel_bytes;
        const size_t row = p * mr;
        const size_t rows = qk_size_min(plan->rows - row, mr);
        int32_t bias[QK_IGEMM_MR_MAX];
        set_panel(plan, panel, rows, begin, &args);
        struct qk_epilogue_tile epilogue = panel_tile(plan, unit, work, row, rows, bias);
        if (whole && multiply_to_bytes(plan, unit, work, &args, &epilogue))
            continue;
        for (size_t b = 0; b < unit->n_tile_count; b++) {
            multiply(plan, unit, work, b, &args, sums);
            if (end == plan->order.steps)
                finish(plan, work, b, &epilogue, sums);
            if (!whole)
                sums += tile;
        }
    }
}

/* Cuts the unit's positions into N tiles, unless `last` has the same N tiles already: that is the
 * unit before, and small groups are many units of the same size. */
static void cut_n_tiles(const struct qk_conv_igemm_plan *plan, const struct work *work,
                        const struct unit *last, struct unit *unit)
{
    if (last->images == unit->images && last->rows == unit->rows &&
        last->columns == unit->columns) {
        unit->n_tile_count = last->n_tile_count;
        unit->remainder = last->remainder;
        return;
    }
    const struct qk_padded_grid grid = {
        .images = unit->images,
        .rows = unit->rows,
        .columns = unit->columns,
        .image_pitch = plan->layout.image_pitch,
        .pitch = plan->layout.pitch,
        .image_stride = (plan->conv->desc.channels_last ? 1 : plan->conv->desc.out_channels) *
                        plan->geometry.positions,
    };
    unit->n_tile_count =
        qk_conv_cut_n_tiles(plan->conv->backend->igemm, &grid, work->n_tiles, work->segments);
    unit->remainder = qk_conv_igemm_remainder(plan, qk_conv_padded_positions(&grid));
}

/* Runs units [begin_unit, end_unit) as if they were one, and sets *last to it. They may differ only
 * in their output channels. `last` is the unit before, or has no images. */
static void run_units(const struct qk_conv_igemm_plan *plan, size_t begin_unit, size_t end_unit,
                      const struct work *work, struct unit *last)
{
    const struct qk_slab_layout *layout = &plan->layout;
    struct unit unit = locate(plan, begin_unit);
    unit.panel_end = locate(plan, end_unit - 1).panel_end;
    cut_n_tiles(plan, work, last, &unit);
    *last = unit;
    const struct qk_slab_job job = slab_job(plan, &unit, work);
    for (size_t g = 0; g < layout->sets; g += layout->part_sets) {
        const size_t sets = qk_size_min(layout->sets - g, layout->part_sets);
        const size_t begin = g * layout->set_steps;
        const size_t end = begin + sets * layout->set_steps;
        qk_slabs_make(&job, g, g + sets, work->quads);
        gather_remainder(plan, &unit, work, begin, end);
        if (plan->conv->igemm.ones)
            add_column_sums(plan, &unit, work, begin, end);
        run_steps(plan, &unit, work, begin, end);
    }
}

void qk_conv_igemm_run(const struct qk_plan *plan, const void *const *inputs, void *const *outputs,
                       void *workspace, size_t begin, size_t end)
{
    const struct qk_conv_igemm_plan *state = plan->state;
    const struct qk_conv_igemm_workspace *at = &state->workspace;
    const struct qk_igemm *igemm = state->conv->backend->igemm;
    uint8_t *bytes = workspace;
    const int32_t x_zero_point = qk_conv_x_zero_point(state->conv, inputs);
    const struct work work = {
        .x = qk_conv_x(inputs),
        .y = outputs[0],
        .x_zero_point = x_zero_point,
        .x_offset = qk_conv_igemm_x_offset(state->conv, x_zero_point),
        .quads = bytes + at->quads,
        .sums = (int32_t *)(void *)(bytes + at->sums),
        .column_tile = (int32_t *)(void *)(bytes + at->column_tile),
        .column_sums = (int32_t *)(void *)(bytes + at->column_sums),
        .n_tiles = (struct qk_n_tile *)(void *)(bytes + at->n_tiles),
        .segments = (struct qk_tile_segment *)(void *)(bytes + at->segments),
        .remainder = bytes + at->remainder,
    };
    if (igemm->set_up)
        igemm->set_up(state->order.step_slabs);
    /* If the slabs of a unit hold all of K, they serve every part of the output channels. Units
     * that differ only in this part follow each other, so the units of one call share the slabs. */
    const bool whole = state->layout.part_sets == state->layout.sets;
    const size_t parts = whole ? state->m_parts : 1;
    struct unit last = {.images = 0};
    for (size_t next; begin < end; begin = next) {
        next = qk_size_min(begin - begin % parts + parts, end);
        run_units(state, begin, next, &work, &last);
    }
    if (igemm->tear_down)
        igemm->tear_down();
}
