/* Runs units of a Winograd convolution: transforms x of a block, and then, panel by panel,
 * transforms weights, multiplies, transforms the products to sums, and computes y. */
#include "kernels/conv/winograd/plan.h"

#include <string.h>

#include "kernels/conv/algorithm.h"
#include "kernels/conv/backend.h"
#include "kernels/conv/channels.h"
#include "kernels/conv/igemm/pack.h"
#include "kernels/sizes.h"

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
    int32_t x_zero_point, x_offset;
    uint8_t *padded, *quads;
    int16_t *weights;
    int32_t *products, *sums;
    struct qk_tile_segment *segments;
};

static struct unit locate(const struct qk_winograd_plan *plan, size_t index)
{
    const struct qk_conv_axis *axis = plan->geometry.axis;
    struct unit unit;
    unit.panel_begin = index % plan->m_parts * plan->m_part_panels;
    unit.panel_end = qk_size_min(unit.panel_begin + plan->m_part_panels, plan->panels);
    index /= plan->m_parts;
    unit.column = index % plan->column_bands * plan->tile_columns * 2;
    unit.columns =
        qk_size_min((size_t)axis[QK_AXIS_COLUMN].out - unit.column, plan->tile_columns * 2);
    index /= plan->column_bands;
    unit.row = index % plan->row_bands * plan->tile_rows * 2;
    unit.rows = qk_size_min((size_t)axis[QK_AXIS_ROW].out - unit.row, plan->tile_rows * 2);
    index /= plan->row_bands;
    unit.group = index % plan->conv->desc.group;
    unit.image = index / plan->conv->desc.group;
    unit.tile_rows = qk_divide_up(unit.rows, 2);
    unit.tile_columns = qk_divide_up(unit.columns, 2);
    return unit;
}

/* ---- x ----------------------------------------------------------------------------------- */

/* Copies `count` bytes without the call of a function, because most rows are short. */
static inline void copy_row(uint8_t *to, const uint8_t *from, size_t count)
{
    if (count < 16) {
        for (size_t i = 0; i < count; i++)
            to[i] = from[i];
        return;
    }
    for (size_t i = 0; i + 16 <= count; i += 16)
        memcpy(to + i, from + i, 16);
    memcpy(to + count - 16, from + count - 16, 16);
}

/* Writes padding to `to` + [begin, end), and up to 15 bytes more. */
static inline void fill_padding(uint8_t *to, size_t begin, size_t end, uint8_t padding)
{
    for (size_t i = begin; i < end; i += 16)
        memset(to + i, padding, 16);
}

/* Writes the padded rows that a unit reads of one channel. Each row has room for 16 more bytes. */
static void pad_channel(const struct qk_winograd_plan *plan, const struct unit *unit,
                        const uint8_t *plane, uint8_t padding, uint8_t *to)
{
    const struct qk_conv_axis *row_axis = &plan->geometry.axis[QK_AXIS_ROW];
    const struct qk_conv_axis *axis = &plan->geometry.axis[QK_AXIS_COLUMN];
    const int64_t first = (int64_t)unit->column - axis->pad;
    const int64_t wanted = (int64_t)unit->tile_columns * 2 + 2;
    const int64_t begin = first < 0 ? (-first < wanted ? -first : wanted) : 0;
    const int64_t left = axis->in - first;
    const int64_t end = left < begin ? begin : left < wanted ? left : wanted;
    for (size_t i = 0; i < unit->tile_rows * 2 + 2; i++, to += plan->row_bytes) {
        const int64_t row = (int64_t)(unit->row + i) - row_axis->pad;
        const bool inside = row >= 0 && row < row_axis->in && begin < end;
        fill_padding(to, 0, (size_t)(inside ? begin : wanted), padding);
        if (inside) {
            copy_row(to + begin, plane + row * axis->in + first + begin, (size_t)(end - begin));
            fill_padding(to, (size_t)end, (size_t)wanted, padding);
        }
    }
}

static void transform_x(const struct qk_winograd_plan *plan, const struct unit *unit,
                        const struct work *work)
{
    const struct qk_conv *conv = plan->conv;
    const size_t channels = conv->desc.group_channels;
    const uint8_t *plane = work->x + (unit->image * conv->desc.group + unit->group) * channels *
                                         plan->geometry.channel_size;
    const uint8_t flip = qk_conv_x_flip(conv->x_type, false);
    /* The sums of igemm's words are not corrected by the bias, so x is transformed less its zero
     * point. */
    const bool words = conv->backend->igemm->quad_k == 2;
    const size_t channel_bytes = (2 * plan->tile_rows + 2) * plan->row_bytes;
    struct qk_winograd_x job = {
        .x = {work->padded, work->padded + channel_bytes},
        .row_bytes = plan->row_bytes,
        .tile_rows = unit->tile_rows,
        .tile_columns = unit->tile_columns,
        .flip = flip,
        .x_zero_point = words ? (uint8_t)((uint8_t)work->x_zero_point ^ flip) : 0,
        .quads = work->quads,
        .point_bytes = plan->point_bytes,
    };
    for (size_t c = 0; c < channels; c++, plane += plan->geometry.channel_size) {
        pad_channel(plan, unit, plane, (uint8_t)work->x_zero_point,
                    work->padded + c % 2 * channel_bytes);
        if (c % 2 == 0 && c + 1 < channels)
            continue;
        plan->kernels->transform_x(&job); /* the weights of a missing channel are 0 */
        job.quads += plan->slab_bytes;
    }
}

/* ---- Products and sums ------------------------------------------------------------------- */

/* Lists the segments of y in tile `b` of the sums. Returns how many there are. */
static size_t list_segments(const struct qk_winograd_plan *plan, const struct unit *unit, size_t b,
                            struct qk_tile_segment *segments)
{
    const size_t width = (size_t)plan->geometry.axis[QK_AXIS_COLUMN].out;
    const size_t pitch = QK_WINOGRAD_PITCH(unit->tile_columns);
    const size_t end = (b + 1) * QK_IGEMM_NR;
    size_t count = 0;
    size_t next = SIZE_MAX; /* the offset after the last segment */
    for (size_t at = b * QK_IGEMM_NR; at < end && at / pitch < unit->rows;
         at = qk_size_min((at / pitch + 1) * pitch, end)) {
        const size_t column = at % pitch;
        const size_t last = qk_size_min(unit->columns, column + end - at);
        if (last <= column)
            continue;
        const uint64_t ones =
            last - column < 64 ? (UINT64_C(1) << (last - column)) - 1 : UINT64_MAX;
        const uint64_t keep = ones << at % QK_IGEMM_NR;
        const size_t offset = at / pitch * width + column;
        if (offset == next)
            segments[count - 1].keep |= keep;
        else
            segments[count++] = (struct qk_tile_segment){keep, offset};
        next = offset + last - column;
    }
    return count;
}

/* Computes M of a group of panels that has `rows` rows. The panels of a group take turns at each
 * point, so that V of the point stays in the L1 cache. */
static void multiply(const struct qk_winograd_plan *plan, const struct unit *unit,
                     const struct work *work, size_t rows)
{
    const struct qk_igemm *igemm = plan->kernels->igemm;
    const size_t tiles = unit->tile_rows * unit->tile_columns;
    const size_t point_weights = qk_winograd_panel_weights(plan->conv);
    struct qk_igemm_args args = {
        .slab_bytes = plan->slab_bytes,
        .steps = plan->steps,
        .step_count = plan->step_count,
        .step_bytes = QK_IGEMM_STEP_SLABS * igemm->quad_stride,
        .vectors = qk_divide_up(tiles, QK_IGEMM_VECTOR),
        .positions = tiles,
    };
    for (size_t point = 0; point < QK_WINOGRAD_POINTS; point++) {
        args.quads = work->quads + point * plan->point_bytes;
        for (size_t row = 0; row < rows; row += igemm->mr) {
            const size_t panel = row / igemm->mr * QK_WINOGRAD_POINTS + point;
            args.rows = qk_size_min(rows - row, igemm->mr);
            args.weights = (const uint8_t *)(work->weights + panel * point_weights);
            args.sums = work->products + panel * igemm->mr * QK_IGEMM_NR;
            igemm->multiply(&args);
        }
    }
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
    return (struct qk_epilogue_tile){
        .epilogue = plan->epilogue,
        .rows = rows,
        .bias = qk_conv_bias(conv, work->x_offset, channel, rows, bias),
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
    const size_t all = unit->rows * QK_WINOGRAD_PITCH(unit->tile_columns);
    const size_t mr = plan->kernels->igemm->mr;
    for (size_t b = 0; b * QK_IGEMM_NR < all; b++) {
        tile->sums = work->sums + b * mr * QK_IGEMM_NR;
        tile->positions = qk_size_min(all - b * QK_IGEMM_NR, QK_IGEMM_NR);
        tile->segments = work->segments;
        tile->segment_count = list_segments(plan, unit, b, work->segments);
        if (tile->segment_count > 0)
            slabs->epilogues[plan->epilogue->kind](tile);
    }
}

/* Makes U of the panels [begin, end). */
static void transform_weights(const struct qk_winograd_plan *plan, const struct unit *unit,
                              const struct work *work, size_t begin, size_t end)
{
    const size_t weights = qk_winograd_panel_weights(plan->conv);
    for (size_t p = begin; p < end; p++)
        plan->kernels->transform_weights(
            plan->conv->winograd + (unit->group * plan->panels + p) * weights * QK_WINOGRAD_TAPS,
            weights, work->weights + (p - begin) * QK_WINOGRAD_POINTS * weights);
}

static void run_panels(const struct qk_winograd_plan *plan, const struct unit *unit,
                       const struct work *work)
{
    const size_t mr = plan->kernels->igemm->mr;
    const size_t group_rows = plan->conv->desc.out_channels / plan->conv->desc.group;
    for (size_t begin = unit->panel_begin, end; begin < unit->panel_end; begin = end) {
        end = qk_size_min(begin + plan->together, unit->panel_end);
        transform_weights(plan, unit, work, begin, end);
        multiply(plan, unit, work, qk_size_min(group_rows, end * mr) - begin * mr);
        for (size_t p = begin; p < end; p++) {
            const size_t rows = qk_size_min(group_rows - p * mr, mr);
            const struct qk_winograd_sums job = {
                .products = work->products + (p - begin) * QK_WINOGRAD_POINTS * mr * QK_IGEMM_NR,
                .mr = mr,
                .rows = rows,
                .tile_rows = unit->tile_rows,
                .tile_columns = unit->tile_columns,
                .sums = work->sums,
            };
            int32_t bias[QK_IGEMM_MR_MAX];
            struct qk_epilogue_tile tile = panel_tile(plan, unit, work, p * mr, rows, bias);
            plan->kernels->transform_sums(&job);
            finish(plan, unit, work, &tile);
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
    const struct work work = {
        .x = qk_conv_x(inputs),
        .y = outputs[0],
        .x_zero_point = x_zero_point,
        .x_offset = qk_conv_igemm_x_offset(state->conv, x_zero_point),
        .padded = bytes + at->padded,
        .quads = bytes + at->quads,
        .weights = (int16_t *)(void *)(bytes + at->weights),
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
