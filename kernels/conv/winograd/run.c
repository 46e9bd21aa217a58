/* Runs units of a Winograd convolution: transforms x of a block, and then, panel by panel,
 * transforms weights, multiplies, transforms the products to sums, and computes y. */
#include "kernels/conv/winograd/plan.h"

#include <string.h>

#include "kernels/conv/algorithm.h"
#include "kernels/conv/backend.h"
#include "kernels/conv/channels.h"
#include "kernels/conv/igemm/pack.h"
#include "kernels/sizes.h"
#include "kernels/wrap.h"

struct unit {
    size_t image, group;
    size_t row, column;   /* the first position */
    size_t rows, columns; /* positions of y */
    size_t tile_rows, tile_columns;
    size_t panel_begin, panel_end;
};

/* The input and output of a run, and the parts of one worker's workspace. */
struct work {
    const uint8_t *x;
    uint8_t *y;
    int32_t x_zero_point;
    int32_t x_offset;  /* of igemm's x */
    int32_t x_missing; /* how much less x is here than igemm's x */
    uint8_t *padded, *quads;
    int8_t *unpacked;
    int16_t *weights;
    size_t first_panel; /* of all groups: the first panel of U; SIZE_MAX: none */
    int32_t *products, *sums;
    struct qk_tile_segment *segments;
};

static struct unit locate(const struct qk_winograd_plan *plan, size_t index)
{
    const struct qk_conv_axis *axis = plan->geometry.axis;
    const size_t n = plan->kernels->n;
    struct unit unit;
    unit.panel_begin = index % plan->m_parts * plan->m_part_panels;
    unit.panel_end = qk_size_min(unit.panel_begin + plan->m_part_panels, plan->panels);
    index /= plan->m_parts;
    unit.column = index % plan->column_bands * plan->tile_columns * n;
    unit.columns =
        qk_size_min((size_t)axis[QK_AXIS_COLUMN].out - unit.column, plan->tile_columns * n);
    index /= plan->column_bands;
    unit.row = index % plan->row_bands * plan->tile_rows * n;
    unit.rows = qk_size_min((size_t)axis[QK_AXIS_ROW].out - unit.row, plan->tile_rows * n);
    index /= plan->row_bands;
    unit.group = index % plan->conv->desc.group;
    unit.image = index / plan->conv->desc.group;
    unit.tile_rows = qk_divide_up(unit.rows, n);
    unit.tile_columns = qk_divide_up(unit.columns, n);
    return unit;
}

/* ---- x ----------------------------------------------------------------------------------- */

/* The rows and columns of a unit's padded rows that lie in x. Other elements are padding. */
struct inside {
    size_t row_begin, row_end, column_begin, column_end;
    const uint8_t *x; /* the first of these elements of the first channel */
};

/* Sets [*begin, *end), the part of `wanted` elements from `first` on that lies in [0, in). */
static void clip(int64_t first, size_t wanted, int64_t in, size_t *begin, size_t *end)
{
    const int64_t last = first + (int64_t)wanted < in ? first + (int64_t)wanted : in;
    const int64_t from = first < 0 ? 0 : first;
    *begin = from < last ? (size_t)(from - first) : 0;
    *end = from < last ? (size_t)(last - first) : 0;
}

static struct inside find_inside(const struct qk_winograd_plan *plan, const struct unit *unit,
                                 const uint8_t *plane)
{
    const size_t n = plan->kernels->n;
    const struct qk_conv_axis *rows = &plan->geometry.axis[QK_AXIS_ROW];
    const struct qk_conv_axis *columns = &plan->geometry.axis[QK_AXIS_COLUMN];
    const int64_t row = (int64_t)unit->row - rows->pad;
    const int64_t column = (int64_t)unit->column - columns->pad;
    struct inside inside;
    clip(row, unit->tile_rows * n + 2, rows->in, &inside.row_begin, &inside.row_end);
    clip(column, unit->tile_columns * n + 2, columns->in, &inside.column_begin, &inside.column_end);
    if (inside.column_begin == inside.column_end)
        inside.row_end = inside.row_begin;
    inside.x = inside.row_begin == inside.row_end
                   ? plane
                   : plane + (row + (int64_t)inside.row_begin) * columns->in + column +
                         (int64_t)inside.column_begin;
    return inside;
}

/* Copies `count` bytes without the call of a function, because most rows are short. */
static inline void copy_row(uint8_t *to, const uint8_t *from, size_t count)
{
    if (count >= 16) {
        for (size_t i = 0; i + 16 <= count; i += 16)
            memcpy(to + i, from + i, 16);
        memcpy(to + count - 16, from + count - 16, 16);
    } else if (count >= 8) {
        memcpy(to, from, 8);
        memcpy(to + count - 8, from + count - 8, 8);
    } else if (count >= 4) {
        memcpy(to, from, 4);
        memcpy(to + count - 4, from + count - 4, 4);
    } else {
        for (size_t i = 0; i < count; i++)
            to[i] = from[i];
    }
}

/* Copies a channel's elements between the padding. */
static void copy_inside(const struct qk_winograd_plan *plan, const struct inside *inside,
                        const uint8_t *from, uint8_t *to)
{
    const size_t width = (size_t)plan->geometry.axis[QK_AXIS_COLUMN].in;
    const size_t count = inside->column_end - inside->column_begin;
    to += inside->row_begin * plan->row_bytes + inside->column_begin;
    for (size_t row = inside->row_begin; row < inside->row_end; row++) {
        copy_row(to, from, count);
        to += plan->row_bytes;
        from += width;
    }
}

/* All channels have the same padding, so it is written once. */
static void transform_x(const struct qk_winograd_plan *plan, const struct unit *unit,
                        const struct work *work)
{
    const struct qk_conv *conv = plan->conv;
    const size_t channels = conv->desc.group_channels;
    const size_t channel_bytes = (plan->kernels->n * plan->tile_rows + 2) * plan->row_bytes;
    const struct inside inside =
        find_inside(plan, unit,
                    work->x + (unit->image * conv->desc.group + unit->group) * channels *
                                  plan->geometry.channel_size);
    struct qk_winograd_x job = {
        .x = {work->padded, work->padded + channel_bytes},
        .row_bytes = plan->row_bytes,
        .tile_rows = unit->tile_rows,
        .tile_columns = unit->tile_columns,
        .flip = qk_conv_x_flip(conv->x_type, false),
        .quads = work->quads,
        .point_bytes = plan->point_bytes,
    };
    memset(work->padded, work->x_zero_point, 2 * channel_bytes);
    for (size_t c = 0; c < channels; c++) {
        copy_inside(plan, &inside, inside.x + c * plan->geometry.channel_size,
                    work->padded + c % 2 * channel_bytes);
        if (c % 2 == 0 && c + 1 < channels)
            continue;
        plan->kernels->transform_x(&job); /* the weights of a missing channel are 0 */
        job.quads += plan->slab_bytes;
    }
}

/* ---- Products and sums ------------------------------------------------------------------- */

/* Lists the segments of y in the sums of positions [begin, end), which are at most QK_IGEMM_NR.
 * Returns how many there are. */
static size_t list_segments(const struct qk_winograd_plan *plan, const struct unit *unit,
                            size_t begin, size_t end, struct qk_tile_segment *segments)
{
    const size_t width = (size_t)plan->geometry.axis[QK_AXIS_COLUMN].out;
    const size_t pitch = qk_winograd_pitch(plan->kernels, unit->tile_columns);
    size_t count = 0;
    size_t next = SIZE_MAX; /* the offset after the last segment */
    for (size_t at = begin; at < end && at / pitch < unit->rows;
         at = qk_size_min((at / pitch + 1) * pitch, end)) {
        const size_t column = at % pitch;
        const size_t last = qk_size_min(unit->columns, column + end - at);
        if (last <= column)
            continue;
        const uint64_t ones =
            last - column < 64 ? (UINT64_C(1) << (last - column)) - 1 : UINT64_MAX;
        const uint64_t keep = ones << (at - begin);
        const size_t offset = at / pitch * width + column;
        if (offset == next)
            segments[count - 1].keep |= keep;
        else
            segments[count++] = (struct qk_tile_segment){keep, offset};
        next = offset + last - column;
    }
    return count;
}

/* Computes M of panels that are multiplied at a time, for a strip from tile `first` on. They have
 * `rows` rows, and their U begins at `weights`. The panels take turns at each point, so that V of
 * the point stays in the L1 cache. */
static void multiply(const struct qk_winograd_plan *plan, const struct unit *strip,
                     const struct work *work, size_t first, const int16_t *weights, size_t rows)
{
    const struct qk_igemm *igemm = plan->kernels->igemm;
    const size_t tiles = strip->tile_rows * strip->tile_columns;
    struct qk_igemm_args args = {
        .slab_bytes = plan->slab_bytes,
        .steps = plan->steps,
        .step_count = plan->step_count,
        .step_bytes = QK_IGEMM_STEP_SLABS * igemm->quad_stride,
        .vectors = qk_divide_up(tiles, QK_IGEMM_VECTOR),
        .positions = tiles,
    };
    for (size_t point = 0; point < plan->kernels->points; point++) {
        args.quads = work->quads + point * plan->point_bytes + first * QK_IGEMM_QUAD_BYTES;
        for (size_t row = 0; row < rows; row += igemm->mr) {
            const size_t panel = row / igemm->mr * plan->kernels->points + point;
            args.rows = qk_size_min(rows - row, igemm->mr);
            args.weights = (const uint8_t *)(weights + panel * plan->point_weights);
            args.sums = work->products + panel * igemm->mr * qk_winograd_nr(plan->kernels);
            igemm->multiply(&args);
        }
    }
}

/* Writes the biases of `count` output channels. igemm's biases are for sums of x as igemm has it,
 * which is unsigned bytes, or words less the zero point. The sums of this algorithm have x less
 * QK_WINOGRAD_X_CENTRE. */
QK_WRAPS static void make_bias(const struct qk_conv *conv, const struct work *work, size_t channel,
                               size_t count, int32_t *bias)
{
    const int32_t *from = qk_conv_bias(conv, work->x_offset, channel, count, bias);
    for (size_t i = 0; i < count; i++)
        bias[i] = (int32_t)((uint32_t)from[i] +
                            (uint32_t)work->x_missing * (uint32_t)conv->winograd.sums[channel + i]);
}

/* Returns the job of the epilogue for `rows` rows of a group from `row` on, without what differs
 * between tiles of sums. `bias` has room for the biases of a panel. */
static struct qk_epilogue_tile panel_tile(const struct qk_winograd_plan *plan,
                                          const struct unit *unit, const struct work *work,
                                          size_t row, size_t rows, int32_t *bias)
{
    const struct qk_conv *conv = plan->conv;
    const size_t width = (size_t)plan->geometry.axis[QK_AXIS_COLUMN].out;
    const size_t channel = unit->group * (conv->desc.out_channels / conv->desc.group) + row;
    const size_t first =
        (unit->image * conv->desc.out_channels + channel) * plan->geometry.positions +
        unit->row * width + unit->column;
    make_bias(conv, work, channel, rows, bias);
    return (struct qk_epilogue_tile){
        .epilogue = plan->epilogue,
        .row_count = plan->kernels->igemm->by_position ? plan->kernels->igemm->mr : 0,
        .rows = rows,
        .bias = bias,
        .multiplier = plan->epilogue->multiplier + channel,
        .y = work->y + first * plan->epilogue->y_bytes,
        .y_stride = plan->geometry.positions,
        .position_stride = 1,
    };
}

/* Computes the epilogue of all tiles of sums of a panel. */
static void finish(const struct qk_winograd_plan *plan, const struct unit *unit,
                   const struct work *work, struct qk_epilogue_tile *tile)
{
    const struct qk_slab_kernels *slabs = plan->conv->backend->slabs;
    const size_t all = unit->rows * qk_winograd_pitch(plan->kernels, unit->tile_columns);
    const size_t mr = plan->kernels->igemm->mr;
    for (size_t at = 0; at < all; at += QK_IGEMM_NR) {
        tile->sums = work->sums + at * mr;
        tile->positions = qk_size_min(all - at, QK_IGEMM_NR);
        tile->segments = work->segments;
        tile->segment_count = list_segments(plan, unit, at, at + QK_IGEMM_NR, work->segments);
        if (tile->segment_count > 0)
            slabs->epilogues[plan->epilogue->kind](tile);
    }
}

/* Takes the weights of a panel out of igemm's panel. */
static void unpack(const struct qk_winograd_plan *plan, const uint8_t *panel, int8_t *to)
{
    const struct qk_conv *conv = plan->conv;
    const struct qk_igemm *igemm = conv->backend->igemm;
    const size_t step_bytes = conv->igemm.step_bytes;
    const size_t slab_weights = igemm->mr * igemm->quad_k;
    const uint8_t *marks = panel + plan->order.steps * step_bytes;
    const uint8_t *wide_weights = marks + qk_igemm_wide_bytes(igemm, plan->order.steps);
    for (size_t s = 0; s < plan->order.steps; s++) {
        const size_t k_block = s / QK_WINOGRAD_TAPS, tap = s % QK_WINOGRAD_TAPS;
        struct qk_igemm_wide wide = {0};
        if (igemm->mark_wide)
            memcpy(&wide, marks + s * sizeof(wide), sizeof(wide));
        igemm->unpack(panel + s * step_bytes, qk_slab_count(&plan->order, k_block), wide,
                      wide_weights,
                      to + tap * qk_winograd_panel_weights(conv) +
                          k_block * plan->order.step_slabs * slab_weights);
    }
}

/* Makes U of the panels [begin, end), unless the unit before has left it. */
static void transform_weights(const struct qk_winograd_plan *plan, const struct unit *unit,
                              struct work *work, size_t begin, size_t end)
{
    const size_t first = unit->group * plan->panels + begin;
    if (work->first_panel == first)
        return;
    work->first_panel = first;
    const size_t weights = qk_winograd_panel_weights(plan->conv);
    const struct qk_conv_igemm *packed = &plan->conv->igemm;
    for (size_t p = begin; p < end; p++) {
        unpack(plan, packed->weights + (first + p - begin) * packed->panel_bytes, work->unpacked);
        plan->kernels->transform_weights(work->unpacked, weights,
                                         work->weights + (p - begin) * plan->kernels->points *
                                                             plan->point_weights,
                                         plan->point_weights);
    }
}

/* Computes y of the panels [begin, end) for a strip, whose M is made. */
static void finish_strip(const struct qk_winograd_plan *plan, const struct unit *strip,
                         const struct work *work, size_t begin, size_t end)
{
    const struct qk_igemm *igemm = plan->kernels->igemm;
    const size_t group_rows = plan->conv->desc.out_channels / plan->conv->desc.group;
    const size_t panel_products = plan->kernels->points * igemm->mr * qk_winograd_nr(plan->kernels);
    for (size_t p = begin; p < end; p++) {
        const size_t rows = qk_size_min(group_rows - p * igemm->mr, igemm->mr);
        const struct qk_winograd_sums job = {
            .products = work->products + (p - begin) * panel_products,
            .igemm = igemm,
            .rows = rows,
            .tile_rows = strip->tile_rows,
            .tile_columns = strip->tile_columns,
            .sums = work->sums,
        };
        int32_t bias[QK_IGEMM_MR_MAX];
        struct qk_epilogue_tile tile = panel_tile(plan, strip, work, p * igemm->mr, rows, bias);
        plan->kernels->transform_sums(&job);
        finish(plan, strip, work, &tile);
    }
}

/* Computes y of the panels [begin, end), whose U is made, for a strip from tile `first` on. */
static void run_strip(const struct qk_winograd_plan *plan, const struct unit *strip,
                      const struct work *work, size_t first, size_t begin, size_t end)
{
    const size_t mr = plan->kernels->igemm->mr;
    const size_t group_rows = plan->conv->desc.out_channels / plan->conv->desc.group;
    const int16_t *weights = work->weights;
    for (size_t p = begin, next; p < end; p = next) {
        next = qk_size_min(p + plan->multiplied_panels, end);
        multiply(plan, strip, work, first, weights, qk_size_min(group_rows, next * mr) - p * mr);
        finish_strip(plan, strip, work, p, next);
        weights += (next - p) * plan->kernels->points * plan->point_weights;
    }
}

static void run_panels(const struct qk_winograd_plan *plan, const struct unit *unit,
                       struct work *work)
{
    const size_t n = plan->kernels->n;
    for (size_t begin = unit->panel_begin, end; begin < unit->panel_end; begin = end) {
        end = qk_size_min(begin + plan->transformed_panels, unit->panel_end);
        transform_weights(plan, unit, work, begin, end);
        for (size_t done = 0; done < unit->tile_rows; done += plan->strip_tile_rows) {
            struct unit strip = *unit;
            strip.tile_rows = qk_size_min(unit->tile_rows - done, plan->strip_tile_rows);
            strip.row += done * n;
            strip.rows = qk_size_min(unit->rows - done * n, strip.tile_rows * n);
            run_strip(plan, &strip, work, done * unit->tile_columns, begin, end);
        }
    }
}

void qk_winograd_run(const struct qk_plan *plan, const void *const *inputs, void *const *outputs,
                     void *workspace, size_t begin, size_t end)
{
    const struct qk_winograd_plan *state = plan->state;
    const struct qk_winograd_workspace *at = &state->workspace;
    uint8_t *bytes = workspace;
    const int32_t x_zero_point = qk_conv_x_zero_point(state->conv, inputs);
    /* igemm's words are x less its zero point, so that x_offset is 0. */
    const int32_t x_offset = qk_conv_igemm_x_offset(state->conv, x_zero_point);
    const int32_t unsigned_zero_point = qk_conv_x_offset(state->conv->x_type, x_zero_point, false);
    struct work work = {
        .x = qk_conv_x(inputs),
        .y = outputs[0],
        .x_zero_point = x_zero_point,
        .x_offset = x_offset,
        .x_missing = QK_WINOGRAD_X_CENTRE - (unsigned_zero_point - x_offset),
        .padded = bytes + at->padded,
        .quads = bytes + at->quads,
        .unpacked = (int8_t *)(void *)(bytes + at->unpacked),
        .weights = (int16_t *)(void *)(bytes + at->weights),
        .first_panel = SIZE_MAX,
        .products = (int32_t *)(void *)(bytes + at->products),
        .sums = (int32_t *)(void *)(bytes + at->sums),
        .segments = (struct qk_tile_segment *)(void *)(bytes + at->segments),
    };
    /* Units that differ only in their output channels follow each other, and share V. */
    for (size_t next; begin < end; begin = next) {
        next = qk_size_min(begin - begin % state->m_parts + state->m_parts, end);
        struct unit unit = locate(state, begin);
        unit.panel_end = locate(state, next - 1).panel_end;
        transform_x(state, &unit, &work);
        run_panels(state, &unit, &work);
    }
}
