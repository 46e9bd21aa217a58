#include "kernels/conv/depthwise.h"

#include <string.h>

#include "kernels/conv/pack.h"
#include "kernels/conv/sizes.h"

/* About 100 microseconds of channels make a unit. */
#define UNIT_CYCLES 300000.0
#define CYCLES_A_NS 3.0
/* Taps of the axes before the last two: planes of one channel. */
#define PLANES_MOST 64
/* Rows that are computed together. */
#define TALL 4
/* A strip of fewer positions than this is not worth it. */
#define STRIP_LEAST 8
/* With more output channels for each of x, panels are faster: they load x once for many of them. */
#define MULTIPLICITY_MOST 32

struct state {
    const struct qk_conv *conv;
    const uint8_t *x;
    struct qk_conv_geometry geometry;
    struct qk_depthwise_job job; /* but for what a unit says */
    size_t outer;                /* positions of the axes before the last two */
    /* What a unit has, and how many units that makes: */
    size_t chunk, chunks; /* groups */
    size_t part, parts;   /* output channels of each; with parts, there is one group in a unit */
    size_t band, bands;   /* rows */
    size_t piece, pieces; /* columns, in whole strips */
};

/* ---- Weights ----------------------------------------------------------------------------- */

static size_t row_cells(const struct qk_conv_desc *desc)
{
    return qk_divide_up((size_t)desc->kernel[QK_AXIS_COLUMN], QK_DEPTHWISE_TAPS);
}

/* Rows of taps, over all axes but the last. */
static size_t tap_rows(const struct qk_conv *conv)
{
    return conv->depth / (size_t)conv->desc.kernel[QK_AXIS_COLUMN];
}

/* Positions whose taps are all within QK_DEPTHWISE_BYTES; 0: not even one's. */
static size_t strip_most(const struct qk_conv_desc *desc)
{
    const int64_t bytes = QK_DEPTHWISE_BYTES;
    const int64_t kernel = desc->kernel[QK_AXIS_COLUMN];
    const int64_t dilation = desc->dilation[QK_AXIS_COLUMN];
    if (kernel > bytes || dilation > bytes || (kernel - 1) * dilation >= bytes)
        return 0;
    return (size_t)((bytes - 1 - (kernel - 1) * dilation) / desc->stride[QK_AXIS_COLUMN]) + 1;
}

/* Rows of the output that see at most QK_DEPTHWISE_ROWS_SEEN of x; 0: not even one. */
static size_t band_most(const struct qk_conv_desc *desc)
{
    const int64_t seen = QK_DEPTHWISE_ROWS_SEEN;
    const int64_t kernel = desc->kernel[QK_AXIS_ROW];
    const int64_t dilation = desc->dilation[QK_AXIS_ROW];
    if (kernel > seen || dilation > seen || (kernel - 1) * dilation >= seen)
        return 0;
    return (size_t)((seen - 1 - (kernel - 1) * dilation) / desc->stride[QK_AXIS_ROW]) + 1;
}

bool qk_conv_is_depthwise(const struct qk_conv *conv)
{
    return conv->backend->depthwise && conv->desc.group_channels == 1 &&
           conv->desc.out_channels / conv->desc.group <= MULTIPLICITY_MOST &&
           strip_most(&conv->desc) >= STRIP_LEAST && band_most(&conv->desc) > 0 &&
           tap_rows(conv) / (size_t)conv->desc.kernel[QK_AXIS_ROW] <= PLANES_MOST;
}

/* The `count` bytes at `from`, as one word; a word is read where that is within `end`. */
static inline uint32_t load_taps(const uint8_t *from, size_t count, const uint8_t *end)
{
    uint32_t word = 0;
    if (end - from >= (ptrdiff_t)sizeof(word))
        memcpy(&word, from, sizeof(word));
    else
        for (size_t t = 0; t < count; t++)
            word |= (uint32_t)from[t] << 8 * t;
    return word & UINT32_MAX >> 8 * (QK_DEPTHWISE_TAPS - count);
}

/* One output channel; gives the sum of what is stored. */
static int32_t pack_channel(const uint8_t *w, const uint8_t *end, size_t rows, size_t width,
                            uint8_t flip, uint8_t *cells)
{
    const uint32_t flips = flip * UINT32_C(0x01010101);
    int32_t sum = 0;
    for (size_t r = 0; r < rows; r++, w += width)
        for (size_t c = 0; c < width; c += QK_DEPTHWISE_TAPS, cells += QK_DEPTHWISE_TAPS) {
            const size_t count = qk_size_min(width - c, QK_DEPTHWISE_TAPS);
            const uint32_t there = UINT32_MAX >> 8 * (QK_DEPTHWISE_TAPS - count);
            const uint32_t word = load_taps(w + c, count, end) ^ (flips & there);
            for (size_t t = 0; t < QK_DEPTHWISE_TAPS; t++)
                sum += (int8_t)(word >> 8 * t);
            memcpy(cells, &word, sizeof(word));
        }
    return sum;
}

bool qk_conv_pack_depthwise(struct qk_conv *conv, const struct qk_conv_constants *constants,
                            struct qk_memory memory, int32_t *sums)
{
    const size_t channels = conv->desc.out_channels;
    const size_t width = (size_t)conv->desc.kernel[QK_AXIS_COLUMN];
    const size_t rows = tap_rows(conv);
    const size_t cells = rows * row_cells(&conv->desc);
    const int32_t centre = constants->w->type == QK_UINT8 ? 128 : 0;
    const uint8_t *w = constants->w->data;
    uint8_t *weights = qk_conv_alloc(memory, channels, cells * QK_DEPTHWISE_TAPS);
    uint8_t *ones = qk_conv_alloc(memory, cells, QK_DEPTHWISE_TAPS);
    int32_t *zero_points = qk_conv_alloc(memory, channels, sizeof(*zero_points));
    bool any = false;
    if (!weights || !ones || !zero_points)
        return false;
    for (size_t m = 0; m < channels; m++) {
        const int32_t sum = pack_channel(w + m * conv->depth, w + constants->w->count, rows, width,
                                         (uint8_t)centre, weights + m * cells * QK_DEPTHWISE_TAPS);
        zero_points[m] = qk_w_zero_point(constants, m) - centre;
        any = any || zero_points[m] != 0;
        sums[m] = (int32_t)((uint32_t)sum - (uint32_t)conv->depth * (uint32_t)zero_points[m]);
    }
    memset(ones, 0, cells * QK_DEPTHWISE_TAPS);
    for (size_t i = 0; i < cells; i++)
        memset(
            ones + i * QK_DEPTHWISE_TAPS, 1,
            qk_size_min(width - i % row_cells(&conv->desc) * QK_DEPTHWISE_TAPS, QK_DEPTHWISE_TAPS));
    conv->depthwise = (struct qk_conv_depthwise){cells, weights, ones, zero_points, any};
    return true;
}

/* ---- Run --------------------------------------------------------------------------------- */

struct unit {
    size_t image, outer;
    size_t group_begin, group_end;
    size_t part_begin, part_end; /* of each group's output channels */
    size_t row, rows;
    size_t column, columns;
};

static struct unit locate(const struct state *state, size_t index)
{
    const size_t width = (size_t)state->geometry.axis[QK_AXIS_COLUMN].out;
    const size_t multiplicity = state->conv->desc.out_channels / state->conv->desc.group;
    struct unit unit;
    unit.column = index % state->pieces * state->piece;
    unit.columns = qk_size_min(width - unit.column, state->piece);
    index /= state->pieces;
    unit.row = index % state->bands * state->band;
    unit.rows = qk_size_min((size_t)state->geometry.axis[QK_AXIS_ROW].out - unit.row, state->band);
    index /= state->bands;
    unit.outer = index % state->outer;
    index /= state->outer;
    unit.part_begin = index % state->parts * state->part;
    unit.part_end = qk_size_min(unit.part_begin + state->part, multiplicity);
    index /= state->parts;
    unit.group_begin = index % state->chunks * state->chunk;
    unit.group_end = qk_size_min(unit.group_begin + state->chunk, state->conv->desc.group);
    unit.image = index / state->chunks;
    return unit;
}

static void run_unit(const struct state *state, const struct unit *unit, uint8_t *output)
{
    const struct qk_conv *conv = state->conv;
    const struct qk_conv_geometry *geometry = &state->geometry;
    const size_t groups = conv->desc.group;
    const size_t multiplicity = conv->desc.out_channels / groups;
    const size_t m = unit->group_begin * multiplicity + unit->part_begin;
    const size_t width = (size_t)geometry->axis[QK_AXIS_COLUMN].out;
    const size_t line = unit->outer * (size_t)geometry->axis[QK_AXIS_ROW].out + unit->row;
    size_t planes[PLANES_MOST];
    for (size_t p = 0; p < state->job.plane_count; p++)
        if (!qk_conv_find_plane(geometry, unit->outer, p, &planes[p]))
            planes[p] = QK_DEPTHWISE_NO_PLANE;
    struct qk_depthwise_job job = state->job;
    job.row = unit->row;
    job.rows = unit->rows;
    job.column = unit->column;
    job.columns = unit->columns;
    job.multiplicity = unit->part_end - unit->part_begin;
    job.x = state->x + (unit->image * groups + unit->group_begin) * geometry->channel_size;
    job.planes = planes;
    job.channels = unit->group_end - unit->group_begin;
    job.weights = conv->depthwise.weights + m * conv->depthwise.cells * QK_DEPTHWISE_TAPS;
    job.w_zero_point = conv->depthwise.w_zero_point + m;
    job.bias = conv->bias + m;
    job.multiplier = conv->multiplier + m;
    job.y =
        output + (unit->image * conv->desc.out_channels + m) * geometry->positions + line * width;
    conv->backend->depthwise(&job);
}

static void run(const struct qk_plan *plan, void *output, void *workspace, size_t begin, size_t end)
{
    const struct state *state = plan->state;
    (void)workspace;
    for (size_t i = begin; i < end; i++) {
        const struct unit unit = locate(state, i);
        run_unit(state, &unit, output);
    }
}

/* ---- Plan -------------------------------------------------------------------------------- */

static void fit_job(struct state *state)
{
    const struct qk_conv *conv = state->conv;
    const struct qk_conv_axis *row = &state->geometry.axis[QK_AXIS_ROW];
    const struct qk_conv_axis *column = &state->geometry.axis[QK_AXIS_COLUMN];
    const size_t width = (size_t)column->out;
    struct qk_depthwise_job *job = &state->job;
    *job = (struct qk_depthwise_job){
        .row_axis = row,
        .column_axis = column,
        .strip = qk_divide_up(width, qk_divide_up(width, strip_most(&conv->desc))),
        .cells = row_cells(&conv->desc),
        .fill = (uint8_t)conv->x_zero_point,
        .flip = conv->x_type == QK_INT8 ? 0x80 : 0,
        .channel_size = state->geometry.channel_size,
        .plane_count = tap_rows(conv) / (size_t)row->kernel,
        .ones = conv->depthwise.ones,
        .requantize = &conv->requantize,
        .y_signed = conv->y_type == QK_INT8,
        .y_stride = state->geometry.positions,
    };
    for (size_t i = 0; i < QK_DEPTHWISE_BYTES; i++)
        job->order[i] = (uint8_t)(i / QK_DEPTHWISE_TAPS * (size_t)column->stride +
                                  i % QK_DEPTHWISE_TAPS * (size_t)column->dilation);
}

/* One strip of `tall` rows for one output channel: TALL are computed, unless it is one. */
static double count_cycles(const struct state *state, size_t tall)
{
    const struct qk_conv_depthwise *packed = &state->conv->depthwise;
    const double vectors = (double)qk_divide_up(state->job.strip, 16);
    /* Zero points of w need sums of x beside those of products. */
    const double sums = packed->any_zero_point ? 2 : 1;
    return sums * (vectors + 1) * (tall == 1 ? 1 : TALL) * (3 + (double)packed->cells);
}

/* As many of `count` as `wanted` allows, but at least one; all units have about as many. */
static size_t take(size_t count, double *wanted, size_t *units)
{
    const size_t most = *wanted < (double)count ? qk_size_max((size_t)*wanted, 1) : count;
    *units = qk_divide_up(count, most);
    const size_t even = qk_divide_up(count, *units);
    *wanted /= (double)even;
    return even;
}

/* Output channels first, which share what a strip of x needs, then columns, rows and groups. No
 * unit is larger than one strip of TALL rows for one output channel must be. Returns the cycles of
 * the largest. */
static double cut_units(struct state *state)
{
    const struct qk_conv_desc *desc = &state->conv->desc;
    const size_t height = (size_t)state->geometry.axis[QK_AXIS_ROW].out;
    const size_t width = (size_t)state->geometry.axis[QK_AXIS_COLUMN].out;
    const size_t most = qk_size_min(band_most(desc), height);
    const size_t tall = qk_size_min(most, TALL);
    const double cycles = count_cycles(state, tall);
    double wanted = UNIT_CYCLES / cycles;
    state->part = take(desc->out_channels / desc->group, &wanted, &state->parts);
    const size_t strips = take(qk_divide_up(width, state->job.strip), &wanted, &state->pieces);
    double rows = wanted < (double)(most / tall) ? wanted : (double)(most / tall);
    const size_t talls = take(qk_divide_up(height, tall), &rows, &state->bands);
    wanted = state->parts > 1 ? 1 : wanted / (double)talls;
    state->chunk = take(desc->group, &wanted, &state->chunks);
    state->piece = qk_size_min(strips * state->job.strip, width);
    state->band = qk_size_min(talls * tall, height);
    state->pieces = qk_divide_up(width, state->piece);
    state->bands = qk_divide_up(height, state->band);
    state->parts = qk_divide_up(desc->out_channels / desc->group, state->part);
    state->chunks = qk_divide_up(desc->group, state->chunk);
    return cycles * (double)state->part * (double)strips * (double)talls * (double)state->chunk;
}

bool qk_conv_plan_depthwise(const struct qk_conv *conv, const struct qk_conv_geometry *geometry,
                            const uint8_t *x, struct qk_memory memory, struct qk_plan *plan)
{
    struct state *state = qk_conv_alloc(memory, 1, sizeof(*state));
    if (!state)
        return false;
    *state = (struct state){.conv = conv, .x = x, .geometry = *geometry};
    plan->kernel = conv->backend->depthwise_kernel;
    plan->run = run;
    plan->state = state;
    plan->unit_count = 0;
    plan->unit_cost_ns = 0;
    plan->workspace_bytes = 0;
    if (plan->output.count == 0)
        return true;
    state->outer = qk_conv_outer_positions(geometry);
    fit_job(state);
    const double cycles = cut_units(state);
    /* At most one unit for each byte of output. */
    plan->unit_count = geometry->images * state->chunks * state->parts * state->outer *
                       state->bands * state->pieces;
    plan->unit_cost_ns = (uint64_t)(cycles / CYCLES_A_NS) + 1;
    return true;
}
