/* Plans and runs depthwise convolutions: decides which convolutions are depthwise, packs their
 * weights, cuts their work into units, and runs a unit on the kernel of its backend. */
#include <string.h>

#include "kernels/conv/algorithm.h"
#include "kernels/conv/backend.h"
#include "kernels/conv/channels.h"
#include "kernels/conv/depthwise/interleaved.h"
#include "kernels/sizes.h"
#include "kernels/wrap.h"

/* The most quads that an output channel's taps may take, so that a channel buffer has room for some
 * positions. */
#define QUADS_MOST 256
/* igemm is faster if each channel of x has more than MULTIPLICITY_MOST output channels, and each of
 * these has more than MULTIPLE_QUADS_MOST quads. */
#define MULTIPLICITY_MOST 32
#define MULTIPLE_QUADS_MOST 12

/* Rough costs in cycles: packing one weight, and everything else that packing an output channel
 * takes. */
#define WEIGHT_CYCLES 0.4
#define CHANNEL_CYCLES 6.0

/* If channels are last, a unit has so many channels that copies read and write whole cache lines,
 * as long as its planes of x and y take no more than half of a small L2 cache, or else fewer. Its
 * planes take at most three times this: those of a single channel (QK_CONV_WORKSPACE_MAX). */
#define LINE_CHANNELS 64
#define VECTOR_CHANNELS 16
#define PLANES_BYTES ((size_t)512 << 10)
/* Rough cycles of copying a byte of x or y. */
#define COPY_CYCLES 0.4

struct state {
    const struct qk_conv *conv;
    struct qk_conv_geometry geometry;
    struct qk_depthwise_layout layout;
    struct qk_depthwise_job job; /* what all units have in common */
    size_t outer;                /* positions of the outer axes */
    /* How many groups and output channels a unit has, and into how many parts this cuts all of
     * them: */
    size_t unit_groups, group_parts; /* groups */
    size_t m_part, m_parts; /* output channels of each group; if there are several parts, a unit has
                               one group */
    size_t row_bands, column_bands;
    size_t workspace_at[6];
    const struct qk_move_kernels *move;
    size_t x_plane, y_plane; /* the most bytes of a unit's channel of x, and of y; 0 unless channels
                                are last */
};

/* ---- Weights ----------------------------------------------------------------------------- */

/* The column axis is known only with x: it is the last axis that has more than one element. Every
 * axis that can become it must therefore fit. */
bool qk_conv_is_depthwise(const struct qk_conv *conv)
{
    const struct qk_conv_desc *desc = &conv->desc;
    const bool many = desc->out_channels / desc->group > MULTIPLICITY_MOST;
    const size_t most = many ? MULTIPLE_QUADS_MOST : QUADS_MOST;
    if (desc->group_channels != 1)
        return false;
    for (int i = QK_AXIS_COLUMN; i >= 0; i--) {
        const size_t kernel = (size_t)desc->kernel[i];
        const size_t taps =
            qk_depthwise_count_taps(desc->kernel[i], desc->stride[i], desc->dilation[i],
                                    conv->backend->depthwise->load_bytes);
        if (taps == 0 || conv->depth / kernel > most ||
            conv->depth / kernel * qk_divide_up(kernel, taps) > most)
            return false;
        if (kernel > 1)
            break;
    }
    return true;
}

static bool prepare(struct qk_conv *conv, struct qk_memory memory, double *item_cycles)
{
    const struct qk_conv_constants *from = &conv->constants;
    const size_t channels = conv->desc.out_channels;
    const uint8_t zero = from->w_type == QK_INT8 ? 0 : 0x80; /* packing turns it into 0 */
    struct qk_conv_depthwise *packed = &conv->depthwise;
    packed->weights = qk_conv_alloc(memory, from->w_count + QK_DEPTHWISE_BYTES, 1);
    packed->w_zero_point = qk_conv_alloc(memory, channels, sizeof(*packed->w_zero_point));
    for (size_t i = 0; i < from->w_zero_point_count; i++)
        packed->any_zero_point = packed->any_zero_point || from->w_zero_point[i] != zero;
    conv->packing.items = channels;
    *item_cycles = CHANNEL_CYCLES + WEIGHT_CYCLES * (double)conv->depth;
    return packed->weights && packed->w_zero_point;
}

/* Adds up the weights of output channels [begin, end), which are packed already. The kernel reads
 * behind the last weight. The channels there may belong to another unit, so channels near the end
 * are summed without the kernel. */
static void sum_weights(const struct qk_conv *conv, size_t begin, size_t end)
{
    const uint8_t *weights = conv->depthwise.weights + begin * conv->depth;
    const bool last = end == conv->desc.out_channels;
    const size_t near = last ? 0 : qk_divide_up(QK_DEPTHWISE_BYTES, conv->depth);
    const size_t count = end - begin - qk_size_min(near, end - begin);
    int32_t *sums = conv->bias + begin;
    if (count > 0)
        conv->backend->depthwise->sum(weights, count, conv->depth, sums);
    for (size_t i = count; i < end - begin; i++) {
        int32_t sum = 0; /* does not overflow: the bytes are few */
        for (size_t k = 0; k < conv->depth; k++)
            sum += (int8_t)weights[i * conv->depth + k];
        sums[i] = sum;
    }
}

QK_WRAPS static void pack(const struct qk_conv *conv, size_t begin, size_t end)
{
    const struct qk_conv_constants *from = &conv->constants;
    const uint8_t flip = from->w_type == QK_INT8 ? 0 : 0x80;
    const size_t first = begin * conv->depth;
    const size_t count = end * conv->depth - first;
    uint8_t *weights = conv->depthwise.weights + first;
    memcpy(weights, from->w + first, count);
    size_t at = 0;
    for (; flip && count - at >= QK_DEPTHWISE_BYTES; at += QK_DEPTHWISE_BYTES)
        for (size_t i = 0; i < QK_DEPTHWISE_BYTES; i++) /* a constant length is vectorized */
            weights[at + i] ^= flip;
    for (; flip && at < count; at++)
        weights[at] ^= flip;
    if (end == conv->desc.out_channels)
        memset(weights + count, 0, QK_DEPTHWISE_BYTES);
    sum_weights(conv, begin, end);
    for (size_t m = begin; m < end; m++) {
        const int32_t zero_point = qk_w_zero_point(conv, m) - (from->w_type == QK_INT8 ? 0 : 128);
        conv->depthwise.w_zero_point[m] = zero_point;
        conv->bias[m] =
            (int32_t)((uint32_t)conv->bias[m] - (uint32_t)conv->depth * (uint32_t)zero_point);
    }
    const int32_t x_offset =
        qk_conv_x_offset(conv->x_type, conv->x_zero_point, conv->backend->depthwise->x_signed);
    qk_conv_pack_channels(conv, x_offset, begin, end);
}

/* ---- Run --------------------------------------------------------------------------------- */

struct unit {
    size_t image, outer;
    size_t group_begin, group_end;
    size_t m_begin, m_end; /* output channels of each group */
    size_t row, rows;
    size_t column, columns;
};

static struct unit locate(const struct state *state, size_t index)
{
    const struct qk_depthwise_layout *layout = &state->layout;
    const size_t height = (size_t)state->geometry.axis[QK_AXIS_ROW].out;
    const size_t width = (size_t)state->geometry.axis[QK_AXIS_COLUMN].out;
    const size_t multiplicity = state->conv->desc.out_channels / state->conv->desc.group;
    struct unit unit;
    unit.column = index % state->column_bands * layout->columns;
    unit.columns = qk_size_min(width - unit.column, layout->columns);
    index /= state->column_bands;
    unit.row = index % state->row_bands * layout->rows;
    unit.rows = qk_size_min(height - unit.row, layout->rows);
    index /= state->row_bands;
    unit.outer = index % state->outer;
    index /= state->outer;
    unit.m_begin = index % state->m_parts * state->m_part;
    unit.m_end = qk_size_min(unit.m_begin + state->m_part, multiplicity);
    index /= state->m_parts;
    unit.group_begin = index % state->group_parts * state->unit_groups;
    unit.group_end = qk_size_min(unit.group_begin + state->unit_groups, state->conv->desc.group);
    unit.image = index / state->group_parts;
    return unit;
}

/* Runs a job whose channels are last. `m` is its first output channel. */
static void run_interleaved(const struct state *state, const struct unit *unit, size_t m,
                            const uint8_t *x, uint8_t *y, uint8_t *workspace,
                            struct qk_depthwise_job *job)
{
    const struct qk_conv *conv = state->conv;
    const struct qk_conv_geometry *geometry = &state->geometry;
    const size_t channels = conv->desc.group;
    const size_t width = (size_t)geometry->axis[QK_AXIS_COLUMN].out;
    const size_t position = unit->image * geometry->positions + unit->row * width + unit->column;
    uint8_t *planes = workspace + state->workspace_at[4];
    struct qk_depthwise_crop crop;
    qk_depthwise_crop(geometry, unit->row, unit->rows, unit->column, unit->columns, &crop);
    if (geometry->channel_size > 0)
        qk_depthwise_take_planes(state->move, geometry, &crop,
                                 x + unit->image * channels * geometry->channel_size +
                                     unit->group_begin,
                                 channels, job->channels, planes);
    job->geometry = &crop.geometry;
    job->row = job->column = 0;
    job->x = planes;
    job->x_end = planes + job->channels * crop.geometry.channel_size;
    job->y = workspace + state->workspace_at[5];
    job->y_stride = crop.geometry.positions;
    conv->backend->depthwise->run[job->epilogue->kind](job);
    qk_depthwise_put_planes(state->move, job->y, unit->rows, unit->columns, width,
                            conv->desc.out_channels, job->channels * job->multiplicity,
                            y + position * conv->desc.out_channels + m);
}

static void run_unit(const struct state *state, const struct unit *unit, const uint8_t *x,
                     uint8_t *y, uint8_t *workspace)
{
    const struct qk_conv *conv = state->conv;
    const struct qk_conv_geometry *geometry = &state->geometry;
    const size_t groups = conv->desc.group;
    const size_t multiplicity = conv->desc.out_channels / groups;
    const size_t m = unit->group_begin * multiplicity + unit->m_begin;
    const size_t width = (size_t)geometry->axis[QK_AXIS_COLUMN].out;
    const size_t y_row = unit->outer * (size_t)geometry->axis[QK_AXIS_ROW].out + unit->row;
    const size_t *at = state->workspace_at;
    struct qk_depthwise_job job = state->job;
    job.work = (struct qk_depthwise_workspace){
        .patterns = (void *)(workspace + at[0]),
        .weights = workspace + at[1],
        .ones = workspace + at[2],
        .buffers = workspace + at[3],
    };
    job.outer = unit->outer;
    job.row = unit->row;
    job.rows = unit->rows;
    job.column = unit->column;
    job.columns = unit->columns;
    job.channels = unit->group_end - unit->group_begin;
    job.multiplicity = unit->m_end - unit->m_begin;
    job.x = x + (unit->image * groups + unit->group_begin) * geometry->channel_size;
    job.x_end = x + geometry->images * groups * geometry->channel_size;
    job.weights = conv->depthwise.weights + m * conv->depth;
    job.w_zero_point = conv->depthwise.w_zero_point + m;
    job.bias = conv->bias + m;
    job.multiplier = job.epilogue->multiplier + m;
    job.y = y + (unit->image * conv->desc.out_channels + m) * geometry->positions + y_row * width +
            unit->column;
    if (conv->desc.channels_last)
        run_interleaved(state, unit, m, x, y, workspace, &job);
    else
        conv->backend->depthwise->run[job.epilogue->kind](&job);
}

static void run(const struct qk_plan *plan, const void *const *inputs, void *const *outputs,
                void *workspace, size_t begin, size_t end)
{
    const struct state *state = plan->state;
    for (size_t i = begin; i < end; i++) {
        const struct unit unit = locate(state, i);
        run_unit(state, &unit, qk_conv_x(inputs), outputs[0], workspace);
    }
}

/* ---- Plan -------------------------------------------------------------------------------- */

static size_t lay_out_workspace(struct state *state)
{
    const struct qk_depthwise_layout *layout = &state->layout;
    const size_t vectors = layout->buffer_bytes / QK_DEPTHWISE_BYTES;
    const size_t quad_rows = qk_depthwise_quad_rows(layout);
    const size_t weights = qk_divide_up(state->job.quads, QK_DEPTHWISE_LANES) * QK_DEPTHWISE_BYTES;
    const size_t bytes[] = {
        (vectors + quad_rows) * sizeof(struct qk_depthwise_load_pattern),
        QK_DEPTHWISE_OUTPUTS * weights,
        weights,
        layout->batch * layout->buffer_bytes + QK_DEPTHWISE_BYTES,
        state->unit_groups * state->x_plane,
        state->unit_groups * state->m_part * state->y_plane,
    };
    size_t at = 0;
    for (size_t i = 0; i < sizeof(bytes) / sizeof(bytes[0]); i++) {
        state->workspace_at[i] = at;
        at += qk_divide_up(bytes[i], QK_DEPTHWISE_BYTES) * QK_DEPTHWISE_BYTES;
    }
    return at;
}

/* Fills in where in a channel buffer each quad is read, and which weights it has, for all quads in
 * the order of taps. */
static void fill_quads(const struct state *state, uint32_t *offsets,
                       struct qk_depthwise_weight_order *weight_orders)
{
    const struct qk_depthwise_layout *layout = &state->layout;
    const size_t width = (size_t)state->geometry.axis[QK_AXIS_COLUMN].kernel;
    const size_t height = (size_t)state->geometry.axis[QK_AXIS_ROW].kernel;
    for (size_t i = 0; i < state->job.quads; i++) {
        const size_t column = i % layout->row_quads;
        const size_t row = i / layout->row_quads % height;
        const size_t plane = i / layout->row_quads / height;
        offsets[i] = (uint32_t)qk_depthwise_quad(layout, plane, row, column);

        struct qk_depthwise_weight_order *group = weight_orders + i / QK_DEPTHWISE_LANES;
        const size_t lane = i % QK_DEPTHWISE_LANES;
        const size_t first = i / layout->row_quads * width + column * layout->taps;
        const size_t count = qk_size_min(width - column * layout->taps, layout->taps);
        if (lane == 0)
            *group = (struct qk_depthwise_weight_order){.from = first};
        for (size_t t = 0; t < count; t++) {
            group->order[lane * QK_DEPTHWISE_TAPS + t] = (uint8_t)(first + t - group->from);
            group->mask |= UINT64_C(1) << (lane * QK_DEPTHWISE_TAPS + t);
        }
    }
}

/* Returns how many of `count` items a unit takes: at most `wanted`, at least one. `blocks`: into
 * how many parts the rest of the work is cut. An odd number of them gets units that two threads can
 * share. Sets *units to the number of units that this makes. */
static size_t take(size_t count, double wanted, size_t blocks, size_t *units)
{
    const size_t most = wanted < (double)count ? qk_size_max((size_t)wanted, 1) : count;
    const size_t items =
        blocks % 2 == 0 ? qk_even_part(count, most) : qk_unit_items(count, 1, most);
    *units = qk_divide_up(count, items);
    return items;
}

/* If channels are last: finds how large the planes of a unit are, and how many channels it should
 * have. `wanted` is the number that takes as long as a unit should. */
static double interleave(struct state *state, double wanted)
{
    const struct qk_depthwise_layout *layout = &state->layout;
    state->x_plane = qk_depthwise_crop_most(&state->geometry, layout->rows, layout->columns);
    state->y_plane = layout->rows * layout->columns;
    const size_t fits = PLANES_BYTES / (state->x_plane + state->y_plane * state->m_part);
    const size_t step = fits >= LINE_CHANNELS ? LINE_CHANNELS : VECTOR_CHANNELS;
    const size_t most = fits > step ? fits / step * step : qk_size_max(fits, 1);
    const size_t channels = wanted < (double)step   ? step
                            : wanted < (double)most ? (size_t)wanted / step * step
                                                    : most;
    return (double)qk_size_min(channels, most);
}

/* Returns into how many blocks of positions, in all images, each channel is cut. */
static size_t count_blocks(const struct state *state)
{
    return state->geometry.images * state->outer * state->row_bands * state->column_bands;
}

/* Returns how many cycles a unit should take of a convolution that takes this many for one tile of
 * one image. */
static double unit_cycles(const struct state *state, double cycles)
{
    const struct qk_conv_tuning *tuning = state->conv->tuning;
    const double parts = (double)count_blocks(state);
    return qk_conv_unit_ns(tuning, cycles * parts / tuning->cycles_per_ns) * tuning->cycles_per_ns;
}

/* Cuts channels into units, and returns how many cycles the largest unit takes. */
static double cut_units(struct state *state)
{
    const struct qk_conv_desc *desc = &state->conv->desc;
    const struct qk_depthwise_layout *layout = &state->layout;
    const double vectors = (double)qk_divide_up(layout->rows * layout->pitch, QK_DEPTHWISE_LANES);
    const double products = (double)state->job.quads * (state->job.any_zero_point ? 1.2 : 0.6);
    const double slower = state->conv->backend->depthwise->cycles;
    const double cycles = (20 + vectors * (3 + products)) * slower;
    const double made = (double)layout->buffer_bytes / QK_DEPTHWISE_BYTES * 2;
    const double unit =
        unit_cycles(state, made * (double)desc->group + cycles * (double)desc->out_channels);
    state->m_part =
        take(desc->out_channels / desc->group, unit / cycles, desc->group, &state->m_parts);
    double channel = made + cycles * (double)state->m_part;
    double groups = unit / channel;
    if (desc->channels_last) {
        groups = interleave(state, groups);
        channel += COPY_CYCLES * (double)(state->x_plane + state->y_plane * state->m_part);
    }
    state->unit_groups = take(desc->group, state->m_parts > 1 ? 1 : groups, count_blocks(state),
                              &state->group_parts);
    return channel * (double)state->unit_groups + made * 5;
}

static bool make_plan(const struct qk_conv_plan_args *args, struct qk_memory memory,
                      struct qk_plan *plan)
{
    const struct qk_conv *conv = args->conv;
    const struct qk_conv_geometry *geometry = args->geometry;
    struct state *state = qk_conv_alloc(memory, 1, sizeof(*state));
    if (!state)
        return false;
    *state = (struct state){.conv = conv, .geometry = *geometry, .move = args->move};
    plan->kernel = conv->backend->depthwise->kernel;
    plan->run = run;
    plan->state = state;
    if (plan->outputs[0].count == 0)
        return true;
    qk_conv_geometry_squeeze(&state->geometry, 2);
    state->outer = qk_conv_outer_positions(&state->geometry);
    qk_depthwise_lay_out(&state->layout, &state->geometry, conv->depth,
                         conv->backend->depthwise->load_bytes);
    state->row_bands =
        qk_divide_up((size_t)state->geometry.axis[QK_AXIS_ROW].out, state->layout.rows);
    state->column_bands =
        qk_divide_up((size_t)state->geometry.axis[QK_AXIS_COLUMN].out, state->layout.columns);
    const size_t quads =
        conv->depth / (size_t)state->geometry.axis[QK_AXIS_COLUMN].kernel * state->layout.row_quads;
    uint32_t *offsets = qk_conv_alloc(memory, quads, sizeof(*offsets));
    struct qk_depthwise_weight_order *weight_orders =
        qk_conv_alloc(memory, qk_divide_up(quads, QK_DEPTHWISE_LANES), sizeof(*weight_orders));
    if (!offsets || !weight_orders)
        return false;
    state->job = (struct qk_depthwise_job){
        .layout = &state->layout,
        .geometry = &state->geometry,
        .fill = (uint8_t)conv->x_zero_point,
        .flip = qk_conv_x_flip(conv->x_type, conv->backend->depthwise->x_signed),
        .x_signed = conv->backend->depthwise->x_signed,
        .depth = conv->depth,
        .quads = quads,
        .offsets = offsets,
        .weight_orders = weight_orders,
        .any_zero_point = conv->depthwise.any_zero_point,
        .epilogue = args->epilogue,
        .y_stride = geometry->positions,
    };
    fill_quads(state, offsets, weight_orders);
    const double cycles = cut_units(state);
    plan->workspace_bytes = lay_out_workspace(state);
    /* There is at most one unit for each byte of output, so the product does not overflow. */
    plan->unit_count = count_blocks(state) * state->group_parts * state->m_parts;
    plan->unit_cost_ns = (uint64_t)(cycles / conv->tuning->cycles_per_ns) + 1;
    return true;
}

const struct qk_conv_algorithm qk_conv_algorithm_depthwise = {
    .prepare = prepare,
    .pack = pack,
    .plan = make_plan,
};
