#include "kernels/conv/depthwise.h"

#include <string.h>

#include "kernels/conv/pack.h"

/* All planes of one channel, staged: they stay in a core's nearest caches. */
#define PLANES_BYTES ((size_t)64 << 10)
/* Staged at a time, if there is more than one group. */
#define BATCH_BYTES ((size_t)8 << 10)
/* About 100 microseconds of channels make a unit. */
#define UNIT_CYCLES 300000.0
#define CYCLES_A_NS 3.0

struct layout {
    struct qk_slab_axis row;
    size_t planes; /* of one channel: outer taps times clusters of rows */
    size_t rows, columns;
    size_t pitch;
    size_t plane_bytes;
    size_t row_bands, column_bands;
};

struct state {
    const struct qk_conv *conv;
    const uint8_t *x;
    struct qk_conv_geometry geometry;
    struct layout layout;
    const uint32_t *offsets;
    uint8_t order[64];
    size_t outer; /* positions of the axes before the last two */
    size_t chunk; /* groups of a unit */
    size_t chunks;
    size_t batch;        /* groups staged at a time */
    size_t group_bytes;  /* of one group's planes */
    size_t blocks_bytes; /* of the workspace, before the planes */
};

static size_t size_min(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t size_max(size_t a, size_t b)
{
    return a > b ? a : b;
}

static size_t divide_up(size_t a, size_t b)
{
    return a == 0 ? 0 : (a - 1) / b + 1;
}

/* ---- Weights ----------------------------------------------------------------------------- */

static size_t row_cells(const struct qk_conv_desc *desc)
{
    return divide_up((size_t)desc->kernel[QK_AXIS_COLUMN], QK_DEPTHWISE_TAPS);
}

/* Rows of taps, over all axes but the last. */
static size_t tap_rows(const struct qk_conv *conv)
{
    return conv->depth / (size_t)conv->desc.kernel[QK_AXIS_COLUMN];
}

/* Where the shapes are such that any x can be staged: with a cluster for each row of taps, and a
 * few columns. */
bool qk_conv_is_depthwise(const struct qk_conv *conv)
{
    const struct qk_conv_desc *desc = &conv->desc;
    const int64_t stride = desc->stride[QK_AXIS_COLUMN];
    const int64_t dilation = desc->dilation[QK_AXIS_COLUMN];
    const size_t kernel = (size_t)desc->kernel[QK_AXIS_COLUMN];
    if (!conv->backend->depthwise || desc->group_channels != 1 || stride > 64 || dilation > 64 ||
        !qk_depthwise_fits((size_t)stride, (size_t)dilation))
        return false;
    return kernel <= 1024 && tap_rows(conv) <= 1024 &&
           tap_rows(conv) * (kernel * (size_t)dilation + 256) <= PLANES_BYTES;
}

/* One output channel; gives the sum of what is stored. */
static int32_t pack_channel(const uint8_t *w, size_t rows, size_t width, uint8_t flip,
                            uint8_t *cells)
{
    int32_t sum = 0;
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < width; c += QK_DEPTHWISE_TAPS, cells += QK_DEPTHWISE_TAPS) {
            memset(cells, 0, QK_DEPTHWISE_TAPS);
            for (size_t t = 0; t < size_min(width - c, QK_DEPTHWISE_TAPS); t++) {
                cells[t] = w[r * width + c + t] ^ flip;
                sum += (int8_t)cells[t];
            }
        }
    return sum;
}

bool qk_conv_pack_depthwise(struct qk_conv *conv, const struct qk_conv_constants *constants,
                            struct qk_memory memory, int32_t *sums)
{
    const size_t channels = conv->desc.out_channels;
    const size_t width = (size_t)conv->desc.kernel[QK_AXIS_COLUMN];
    const size_t cells = tap_rows(conv) * row_cells(&conv->desc);
    const int32_t centre = constants->w->type == QK_UINT8 ? 128 : 0;
    const uint8_t *w = constants->w->data;
    uint8_t *weights = qk_conv_alloc(memory, channels, cells * QK_DEPTHWISE_TAPS);
    uint8_t *ones = qk_conv_alloc(memory, cells, QK_DEPTHWISE_TAPS);
    int32_t *zero_points = qk_conv_alloc(memory, channels, sizeof(*zero_points));
    if (!weights || !ones || !zero_points)
        return false;
    for (size_t m = 0; m < channels; m++) {
        const int32_t sum = pack_channel(w + m * conv->depth, tap_rows(conv), width,
                                         (uint8_t)centre, weights + m * cells * QK_DEPTHWISE_TAPS);
        zero_points[m] = qk_w_zero_point(constants, m) - centre;
        sums[m] = (int32_t)((uint32_t)sum - (uint32_t)conv->depth * (uint32_t)zero_points[m]);
    }
    memset(ones, 0, cells * QK_DEPTHWISE_TAPS);
    for (size_t i = 0; i < cells; i++)
        memset(ones + i * QK_DEPTHWISE_TAPS, 1,
               size_min(width - i % row_cells(&conv->desc) * QK_DEPTHWISE_TAPS, QK_DEPTHWISE_TAPS));
    conv->depthwise = (struct qk_conv_depthwise){cells, weights, ones, zero_points};
    return true;
}

/* ---- Layout ------------------------------------------------------------------------------ */

/* Bytes of a row that positions [0, columns) see. */
static size_t columns_seen(const struct qk_conv_axis *axis, size_t columns)
{
    return (columns - 1) * (size_t)axis->stride +
           (size_t)(axis->kernel - 1) * (size_t)axis->dilation + 1;
}

/* Columns of padding behind a whole line that may be those before the next. */
static size_t count_overlap(const struct qk_conv_axis *axis)
{
    struct qk_stage job = {.in_columns = axis->in,
                           .column_first = -axis->pad,
                           .row_stride = 1,
                           .column_stride = 1,
                           .columns = columns_seen(axis, (size_t)axis->out)};
    qk_stage_fit(&job);
    return size_min(job.inside_columns.begin, job.columns - job.inside_columns.end);
}

static size_t pitch_for(const struct qk_conv_axis *axis, size_t columns, size_t overlap)
{
    const size_t stride = (size_t)axis->stride;
    const size_t least = size_max(columns_seen(axis, columns) - overlap, columns * stride);
    return divide_up(least, stride) * stride;
}

/* Whole lines, or else a part of one. False: not even that. */
static bool fit_layout(const struct qk_conv_geometry *geometry, struct layout *layout)
{
    const struct qk_conv_axis *row = &geometry->axis[QK_AXIS_ROW];
    const struct qk_conv_axis *column = &geometry->axis[QK_AXIS_COLUMN];
    const size_t height = (size_t)row->out;
    const size_t width = (size_t)column->out;
    const size_t most = PLANES_BYTES / layout->planes;
    const size_t tall = layout->row.span + 1;
    const size_t reach = (size_t)(column->kernel - 1) * (size_t)column->dilation + 1;
    layout->columns = width;
    layout->rows = 0;
    if (width <= most / (size_t)column->stride) {
        layout->pitch = pitch_for(column, width, count_overlap(column));
        const size_t lines = most / layout->pitch; /* less what a last line has beyond its pitch */
        layout->rows = lines > tall ? size_min(lines - tall, height) : 0;
    }
    if (layout->rows == 0) {
        if (most / tall <= reach + (size_t)column->stride)
            return false;
        layout->rows = 1;
        layout->columns = size_min((most / tall - reach) / (size_t)column->stride, width);
    }
    layout->row_bands = divide_up(height, layout->rows);
    layout->rows = divide_up(height, layout->row_bands);
    layout->column_bands = divide_up(width, layout->columns);
    layout->columns = divide_up(width, layout->column_bands);
    if (layout->column_bands > 1 || layout->rows == 1)
        layout->pitch = pitch_for(column, layout->columns, 0);
    layout->plane_bytes = (layout->rows + layout->row.span - 1) * layout->pitch +
                          columns_seen(column, layout->columns);
    return true;
}

/* Rows that share planes, or a plane for each row of taps: what is less to stage. */
static struct layout choose_layout(const struct qk_conv *conv,
                                   const struct qk_conv_geometry *geometry)
{
    const struct qk_conv_axis *row = &geometry->axis[QK_AXIS_ROW];
    const size_t taps = (size_t)row->kernel;
    const size_t outer = tap_rows(conv) / taps;
    struct layout best = {.plane_bytes = SIZE_MAX, .planes = 1, .row_bands = 1};
    for (int shared = 0; shared < 2; shared++) {
        if (shared && !qk_slab_may_share(row))
            continue;
        struct layout layout = {.row = qk_slab_axis_for(row, taps, shared)};
        layout.planes = outer * layout.row.clusters;
        if (fit_layout(geometry, &layout) &&
            (double)layout.plane_bytes * (double)layout.planes * (double)layout.row_bands <
                (double)best.plane_bytes * (double)best.planes * (double)best.row_bands)
            best = layout;
    }
    return best;
}

void qk_depthwise_order(size_t stride, size_t dilation, uint8_t order[64])
{
    for (size_t p = 0; p < 16; p++)
        for (size_t t = 0; t < QK_DEPTHWISE_TAPS; t++)
            order[QK_DEPTHWISE_TAPS * p + t] = (uint8_t)(p * stride + t * dilation);
}

/* Where the taps of each cell begin, from the first plane on. */
static void fill_offsets(const struct state *state, uint32_t *offsets)
{
    const struct qk_conv_desc *desc = &state->conv->desc;
    const struct layout *layout = &state->layout;
    const size_t taps = (size_t)desc->kernel[QK_AXIS_ROW];
    const size_t cells = row_cells(desc);
    for (size_t r = 0; r < tap_rows(state->conv); r++) {
        const size_t tap = r % taps;
        const size_t plane = r / taps * layout->row.clusters + tap % layout->row.clusters;
        const size_t line = tap / layout->row.clusters * layout->row.shift;
        for (size_t c = 0; c < cells; c++)
            *offsets++ =
                (uint32_t)(plane * (layout->plane_bytes + QK_STAGE_SLACK) + line * layout->pitch +
                           c * QK_DEPTHWISE_TAPS * (size_t)desc->dilation[QK_AXIS_COLUMN]);
    }
}

/* ---- Run --------------------------------------------------------------------------------- */

struct unit {
    size_t image, outer;
    size_t group_begin, group_end;
    size_t row, column, rows, columns;
};

static struct unit locate(const struct state *state, size_t index)
{
    const struct layout *layout = &state->layout;
    const struct qk_conv_axis *axis = state->geometry.axis;
    struct unit unit;
    unit.column = index % layout->column_bands * layout->columns;
    unit.columns = size_min((size_t)axis[QK_AXIS_COLUMN].out - unit.column, layout->columns);
    index /= layout->column_bands;
    unit.row = index % layout->row_bands * layout->rows;
    unit.rows = size_min((size_t)axis[QK_AXIS_ROW].out - unit.row, layout->rows);
    index /= layout->row_bands;
    unit.outer = index % state->outer;
    index /= state->outer;
    unit.group_begin = index % state->chunks * state->chunk;
    unit.group_end = size_min(unit.group_begin + state->chunk, state->conv->desc.group);
    unit.image = index / state->chunks;
    return unit;
}

/* The planes of groups [begin, end), `group_bytes` apart. */
static void stage_planes(const struct state *state, const struct unit *unit, size_t begin,
                         size_t end, uint8_t *planes)
{
    const struct qk_conv *conv = state->conv;
    const struct layout *layout = &state->layout;
    const struct qk_conv_geometry *geometry = &state->geometry;
    const struct qk_conv_axis *row = &geometry->axis[QK_AXIS_ROW];
    const struct qk_conv_axis *column = &geometry->axis[QK_AXIS_COLUMN];
    const uint8_t *x = state->x + unit->image * conv->desc.group * geometry->channel_size;
    struct qk_stage job = {
        .in_rows = row->in,
        .in_columns = column->in,
        .column_first = qk_conv_look(column, unit->column, 0),
        .row_stride = row->stride,
        .column_stride = 1,
        .rows = unit->rows + layout->row.span,
        .columns = columns_seen(column, unit->columns),
        .pitch = layout->pitch,
        .fill = (uint8_t)conv->x_zero_point,
        .flip = conv->x_type == QK_INT8 ? 0x80 : 0,
    };
    for (size_t p = 0; p < layout->planes; p++) {
        size_t plane;
        const bool inside =
            qk_conv_find_plane(geometry, unit->outer, p / layout->row.clusters, &plane);
        uint8_t *to = planes + p * (layout->plane_bytes + QK_STAGE_SLACK);
        job.row_first = qk_conv_look(row, unit->row, p % layout->row.clusters);
        qk_stage_fit(&job);
        for (size_t group = begin; group < end; group++, to += state->group_bytes)
            conv->backend->vector->stage(
                &job, inside ? x + group * geometry->channel_size + plane : NULL, to);
    }
}

static void run_group(const struct state *state, const struct unit *unit, size_t group,
                      struct qk_depthwise_job job, uint8_t *output)
{
    const struct qk_conv *conv = state->conv;
    const struct qk_conv_geometry *geometry = &state->geometry;
    const size_t rows = conv->desc.out_channels / conv->desc.group;
    const size_t width = (size_t)geometry->axis[QK_AXIS_COLUMN].out;
    const size_t position =
        (unit->outer * (size_t)geometry->axis[QK_AXIS_ROW].out + unit->row) * width + unit->column;
    for (size_t m = group * rows; m < (group + 1) * rows; m++) {
        job.weights = conv->depthwise.weights + m * job.cells * QK_DEPTHWISE_TAPS;
        job.w_zero_point = conv->depthwise.w_zero_point[m];
        job.bias = conv->bias[m];
        job.multiplier = conv->multiplier[m];
        job.y =
            output + (unit->image * conv->desc.out_channels + m) * geometry->positions + position;
        conv->backend->depthwise(&job);
    }
}

static void run(const struct qk_plan *plan, void *output, void *workspace, size_t begin, size_t end)
{
    const struct state *state = plan->state;
    const struct qk_conv *conv = state->conv;
    const struct qk_conv_axis *column = &state->geometry.axis[QK_AXIS_COLUMN];
    struct qk_conv_block *blocks = workspace;
    uint8_t *planes = (uint8_t *)workspace + state->blocks_bytes;
    for (size_t i = begin; i < end; i++) {
        const struct unit unit = locate(state, i);
        struct qk_depthwise_job job = {
            .offsets = state->offsets,
            .cells = conv->depthwise.cells,
            .stride = (size_t)column->stride,
            .order = state->order,
            .ones = conv->depthwise.ones,
            .requantize = &conv->requantize,
            .y_signed = conv->y_type == QK_INT8,
            .blocks = blocks,
            .block_count = qk_conv_cut_blocks(unit.rows, unit.columns,
                                              state->layout.pitch / (size_t)column->stride, blocks),
        };
        for (size_t begin_group = unit.group_begin; begin_group < unit.group_end;) {
            const size_t end_group = size_min(begin_group + state->batch, unit.group_end);
            stage_planes(state, &unit, begin_group, end_group, planes);
            for (job.planes = planes; begin_group < end_group; begin_group++) {
                run_group(state, &unit, begin_group, job, output);
                job.planes += state->group_bytes;
            }
        }
    }
}

/* ---- Plan -------------------------------------------------------------------------------- */

/* One group in one band. */
static double count_cycles(const struct state *state)
{
    const struct layout *layout = &state->layout;
    const struct qk_conv *conv = state->conv;
    const double places = (double)(layout->plane_bytes / (size_t)conv->desc.stride[QK_AXIS_COLUMN]);
    const double rows = (double)(conv->desc.out_channels / conv->desc.group);
    return places / 64 * rows * ((double)conv->depthwise.cells * 8 + 24) +
           (double)layout->planes * (double)layout->plane_bytes / 16 + 100;
}

bool qk_conv_plan_depthwise(const struct qk_conv *conv, const struct qk_conv_geometry *geometry,
                            const uint8_t *x, struct qk_memory memory, struct qk_plan *plan)
{
    struct state *state = qk_conv_alloc(memory, 1, sizeof(*state));
    uint32_t *offsets = qk_conv_alloc(memory, conv->depthwise.cells, sizeof(*offsets));
    if (!state || !offsets)
        return false;
    *state = (struct state){.conv = conv, .x = x, .geometry = *geometry, .offsets = offsets};
    plan->kernel = conv->backend->depthwise_kernel;
    plan->run = run;
    plan->state = state;
    plan->unit_count = 0;
    plan->unit_cost_ns = 0;
    plan->workspace_bytes = 0;
    if (plan->output.count == 0)
        return true;
    state->outer = qk_conv_outer_positions(geometry);
    state->layout = choose_layout(conv, geometry);
    const struct layout *layout = &state->layout;
    fill_offsets(state, offsets);
    qk_depthwise_order((size_t)conv->desc.stride[QK_AXIS_COLUMN],
                       (size_t)conv->desc.dilation[QK_AXIS_COLUMN], state->order);
    /* A load that meets bytes which are still on their way from several stores waits for all of
     * them: so some groups are staged before the first is read. */
    state->group_bytes = layout->planes * (layout->plane_bytes + QK_STAGE_SLACK);
    state->batch = size_max(BATCH_BYTES / state->group_bytes, 1);
    const double cycles = count_cycles(state);
    state->chunk = size_max(size_min((size_t)(UNIT_CYCLES / cycles), conv->desc.group), 1);
    state->chunks = divide_up(conv->desc.group, state->chunk);
    state->chunk = divide_up(conv->desc.group, state->chunks);
    const size_t blocks = qk_conv_blocks_most(layout->rows * layout->pitch);
    state->blocks_bytes = divide_up(blocks * sizeof(struct qk_conv_block), 64) * 64;
    plan->workspace_bytes =
        state->blocks_bytes + state->batch * state->group_bytes + QK_DEPTHWISE_SLACK;
    /* At most one unit for each byte of output. */
    plan->unit_count =
        geometry->images * state->chunks * state->outer * layout->row_bands * layout->column_bands;
    plan->unit_cost_ns = (uint64_t)(cycles * (double)state->chunk / CYCLES_A_NS) + 1;
    return true;
}
