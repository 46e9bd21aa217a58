/* Prepares, packs and plans Winograd convolutions (winograd.h).
 *
 * Whether Winograd's algorithm is faster depends on the number of positions, which only plans know.
 * The weights are therefore packed for igemm. U takes 3.6 or 8 bytes for each weight, so it is not
 * kept: a unit makes U of some panels at a time from igemm's panels, which costs some 4 % of the
 * products of a full block of tiles. */
#include "kernels/conv/winograd/plan.h"

#include <math.h>
#include <stdlib.h>

#include "kernels/conv/algorithm.h"
#include "kernels/conv/backend.h"
#include "kernels/conv/channels.h"
#include "kernels/sizes.h"

/* With fewer channels or rows, transforms take longer than the products that they save. */
#define CHANNELS_LEAST 8
#define ROWS_LEAST 8
/* A plan takes Winograd's algorithm if it costs less than this fraction of igemm's estimate, which
 * is smaller if there are groups. The channels of a group are few, so what the estimate leaves out
 * is a larger share of the time: taking weights out of panels, and copying rows of x. With 16 and
 * 32 channels in a group at 14 x 14 and 7 x 7, estimates of 0.70 and 0.73 took 1.11 and 1.37 times
 * as long as igemm on a Zen 3. Estimates of 0.64 took 0.78 times as long. */
#define WORTH_CHANGING 0.9
#define WORTH_CHANGING_GROUPS 0.7
/* V of a block should fit into the L2 cache. If V of even 16 tiles does not, it may be this many
 * times as large: 512 channels at 14 x 14 are still twice as fast as with igemm. */
#define V_MOST 2
/* How many numbers of bands are tried, and with how many bands of rows a large block may be cut for
 * several threads. */
#define COLUMN_BANDS_TRIED 3
#define COLUMN_BANDS_TRIED_BY_ROWS 8
#define ROW_BANDS_MOST 8
/* If several threads compute the parts of the output channels, each transforms x again. All parts
 * may together cost up to X_CHEAP of the whole. One more part, for an even number of units, may
 * cost up to X_MOST of it: two threads that both spend a third of the time on x still take two
 * thirds of the time of one. */
#define X_CHEAP 0.08
#define X_MOST 0.35
/* A unit may take UNITS_MOST times the wanted time, or IGEMM_UNITS_MOST times that of igemm's
 * units, whichever is longer. Otherwise igemm would serve several threads better. */
#define UNITS_MOST 8.0
#define IGEMM_UNITS_MOST 1.5
/* How much longer the sums of rows take that do not follow each other in y, by position: their
 * epilogue takes fewer positions at a time. */
#define RAGGED 1.3

/* By position, the time of half a panel, as a part of the time of a panel. */
#define HALF_PANEL 0.6

/* ---- Weights ----------------------------------------------------------------------------- */

static bool has_plain_weights(const struct qk_conv *conv)
{
    const int32_t centre = conv->constants.w_type == QK_UINT8 ? 128 : 0;
    for (size_t i = 0; i < conv->constants.w_zero_point_count; i++)
        if (qk_w_zero_point(conv, i) != centre)
            return false;
    return true;
}

bool qk_winograd_suits(const struct qk_conv *conv, const struct qk_conv_backend *backend)
{
    const struct qk_conv_desc *desc = &conv->desc;
    const size_t group_rows = desc->out_channels / desc->group;
    if (!backend->winograd || !backend->igemm->unpack || !conv->tuning->main ||
        desc->spatial_rank != 2 || desc->channels_last || group_rows < ROWS_LEAST ||
        desc->group_channels < CHANNELS_LEAST || desc->group_channels > QK_WINOGRAD_CHANNELS_MAX)
        return false;
    for (int i = QK_AXIS_ROW; i <= QK_AXIS_COLUMN; i++)
        if (desc->kernel[i] != 3 || desc->stride[i] != 1 || desc->dilation[i] != 1)
            return false;
    return has_plain_weights(conv) &&
           !qk_slab_order_for(desc, backend, conv->costs).columns_in_quads;
}

size_t qk_winograd_panel_weights(const struct qk_conv *conv)
{
    const size_t channels = qk_divide_up(conv->desc.group_channels, 4) * 4;
    return qk_divide_up(channels * conv->backend->igemm->mr, 32) * 32;
}

/* Adds up the weights of an output channel. */
static struct qk_winograd_row add_row(const struct qk_conv *conv, size_t channel)
{
    const uint8_t flip = conv->constants.w_type == QK_UINT8 ? 0x80 : 0;
    return conv->backend->winograd->add_row(conv->constants.w + channel * conv->depth, conv->depth,
                                            flip);
}

/* Returns the size of the largest tiles for which no output channel has too large weights. Plans
 * read it, and are made before the weights are packed. Weights of up to 227 channels need not be
 * looked at. */
static size_t largest_tiles(const struct qk_conv *conv)
{
    if (conv->depth <= QK_WINOGRAD_WEIGHTS_MAX(4) / 128)
        return 4;
    for (size_t m = 0; m < conv->desc.out_channels; m++)
        if (add_row(conv, m).size > QK_WINOGRAD_WEIGHTS_MAX(4))
            return 2;
    return 4;
}

static bool prepare(struct qk_conv *conv, struct qk_memory memory, double *item_cycles)
{
    if (!qk_conv_algorithm_igemm.prepare(conv, memory, item_cycles))
        return false;
    conv->winograd.largest_tiles = largest_tiles(conv);
    conv->winograd.sums = qk_conv_alloc(memory, conv->desc.out_channels, sizeof(int32_t));
    return conv->winograd.sums;
}

static void pack(const struct qk_conv *conv, size_t begin, size_t end)
{
    const size_t group_rows = conv->desc.out_channels / conv->desc.group;
    const size_t mr = conv->backend->igemm->mr;
    qk_conv_algorithm_igemm.pack(conv, begin, end);
    for (size_t i = begin; i < end; i++) {
        const size_t row = i % conv->igemm.panel_count * mr;
        const size_t first = i / conv->igemm.panel_count * group_rows + row;
        for (size_t m = first; m < first + qk_size_min(group_rows - row, mr); m++)
            conv->winograd.sums[m] = add_row(conv, m).sum;
    }
}

/* ---- Blocks ------------------------------------------------------------------------------ */

static size_t tiles_of(const struct qk_winograd_plan *plan, int axis)
{
    return qk_divide_up((size_t)plan->geometry.axis[axis].out, plan->kernels->n);
}

/* Sets the plan's bands: this number of bands of columns, and at least `row_bands` bands of rows.
 * Returns false if a row of a block would be too large for a tile of sums, or V for the cache. */
static bool cut_blocks(struct qk_winograd_plan *plan, size_t column_bands, size_t row_bands)
{
    const size_t height = tiles_of(plan, QK_AXIS_ROW);
    const size_t columns = qk_divide_up(tiles_of(plan, QK_AXIS_COLUMN), column_bands);
    const size_t vector_bytes =
        QK_IGEMM_VECTOR * plan->kernels->points * QK_IGEMM_QUAD_BYTES * plan->slabs;
    const size_t cache_bytes = 2 * plan->conv->tuning->quads_bytes;
    size_t vectors = cache_bytes / vector_bytes; /* a slab has whole ones */
    if (vectors == 0 && vector_bytes <= V_MOST * cache_bytes)
        vectors = 1;
    const size_t strip_most = qk_winograd_nr(plan->kernels) / columns;
    const size_t most = vectors * QK_IGEMM_VECTOR / columns;
    if (most == 0 || strip_most == 0)
        return false;
    plan->column_bands = qk_divide_up(tiles_of(plan, QK_AXIS_COLUMN), columns);
    plan->tile_columns = columns;
    plan->tile_rows = qk_even_part(height, qk_size_min(most, qk_divide_up(height, row_bands)));
    /* By rows, several blocks cost no more than several strips of one. */
    if (!plan->kernels->igemm->by_position)
        plan->tile_rows = qk_even_part(height, qk_size_min(plan->tile_rows, strip_most));
    plan->strip_tile_rows = qk_even_part(plan->tile_rows, strip_most);
    plan->row_bands = qk_divide_up(height, plan->tile_rows);
    return true;
}

/* Returns how many full rows take as long as the rows of a group's first `count` panels. By
 * position, half a panel takes longer than half the time. */
static double full_rows(const struct qk_winograd_plan *plan, size_t count)
{
    const size_t mr = plan->kernels->igemm->mr;
    const size_t group_rows = plan->conv->desc.out_channels / plan->conv->desc.group;
    const size_t wanted = qk_size_min(group_rows, count * mr);
    if (!plan->kernels->igemm->by_position || wanted % mr == 0)
        return (double)wanted;
    return (double)(wanted / mr * mr) + (wanted % mr <= mr / 2 ? HALF_PANEL : 1) * (double)mr;
}

/* The cycles of a block: transforming x and weights, and everything else. */
struct cycles {
    double x, weights, rest;
};

/* `vectors` counts tiles in eights: by rows, products take whole vectors of them. */
static struct cycles count_cycles(const struct qk_winograd_plan *plan)
{
    const struct qk_conv *conv = plan->conv;
    const struct qk_winograd *kernels = plan->kernels;
    const bool by_position = kernels->igemm->by_position;
    const double terms_per_cycle =
        conv->tuning->words_costs.terms_per_ns / conv->tuning->cycles_per_ns;
    /* A CPU that multiplies vectors at half the speed also adds them at half the speed. */
    const double slower =
        kernels->terms_per_cycle > 0 ? kernels->terms_per_cycle / terms_per_cycle : 1;
    const size_t tiles = plan->tile_rows * plan->tile_columns;
    const double vectors = by_position ? (double)tiles / 8 : (double)qk_divide_up(tiles, 8);
    const double rows = full_rows(plan, plan->panels);
    const double channels = (double)plan->slabs * 2;
    const double row_vectors =
        (double)plan->tile_rows * (double)qk_divide_up(plan->tile_columns, QK_WINOGRAD_LANES);
    const double products = (double)kernels->points * vectors * 8 * rows * channels /
                            (terms_per_cycle * kernels->product_speed);
    const bool ragged =
        plan->tile_columns * kernels->n != (size_t)plan->geometry.axis[QK_AXIS_COLUMN].out;
    const double sums = kernels->sums_cycles * rows *
                        (!by_position ? row_vectors
                         : ragged     ? vectors * RAGGED
                                      : vectors);
    return (struct cycles){.x = slower * kernels->x_cycles * row_vectors * channels,
                           .weights = slower * kernels->kernel_cycles * rows * channels,
                           .rest = products + slower * sums};
}

static size_t block_count(const struct qk_winograd_plan *plan)
{
    return plan->geometry.images * plan->conv->desc.group * plan->row_bands * plan->column_bands;
}

/* Returns into how many parts the output channels should be cut: several if there are too few
 * blocks for units of the wanted time, as far as that is cheap. An odd number of blocks gets an
 * even number of parts, so that two threads get the same work. Makes more parts if units would be
 * too long for several threads: longer than wanted, and longer than igemm's. */
static size_t count_m_parts(const struct qk_winograd_plan *plan, double igemm_unit_ns,
                            struct cycles block)
{
    const struct qk_conv *conv = plan->conv;
    const size_t blocks = block_count(plan);
    const double all = block.x + block.weights + block.rest;
    const double block_ns = all / conv->tuning->cycles_per_ns;
    const double unit_ns = qk_conv_unit_ns(conv->tuning, block_ns * (double)blocks);
    const double longest_ns = fmax(UNITS_MOST * unit_ns, IGEMM_UNITS_MOST * igemm_unit_ns);
    const double wanted = block_ns / unit_ns;
    const double cheap = 1 + all / block.x * X_CHEAP;
    const double least = fmin(ceil(block_ns / longest_ns), (double)plan->panels);
    size_t m_parts = qk_size_max((size_t)fmin(wanted, cheap), (size_t)least);
    if (blocks % 2 == 1 && wanted > 1 && block.x < X_MOST * all)
        m_parts += m_parts % 2;
    return qk_size_min(qk_size_max(m_parts, 1), plan->panels);
}

static size_t reserve(size_t *at, size_t bytes)
{
    const size_t begin = *at;
    *at += qk_divide_up(bytes, 64) * 64;
    return begin;
}

/* Sets how many panels of a unit are transformed at a time, which is as many as fit into half of
 * the cache, and lays out the workspace. By position, M of one panel is made at a time. */
static void lay_out(struct qk_winograd_plan *plan)
{
    const struct qk_winograd *kernels = plan->kernels;
    const bool by_position = kernels->igemm->by_position;
    const size_t n = kernels->n, points = kernels->points;
    const size_t tile_bytes = kernels->igemm->mr * qk_winograd_nr(kernels) * sizeof(int32_t);
    const size_t pitch = QK_WINOGRAD_PITCH(n, plan->tile_columns);
    const size_t tiles = plan->tile_rows * plan->tile_columns;
    const size_t sums_tiles = qk_divide_up(n * plan->strip_tile_rows * pitch, QK_IGEMM_NR);
    /* A pitch is at least n, and the first and the last row may be cut. */
    const size_t segments = QK_IGEMM_NR / n + 1;
    struct qk_winograd_workspace *work = &plan->workspace;
    size_t at = 0;
    /* An odd number of cache lines, because the transform writes all points side by side. An even
     * number would put them in few sets of the cache. */
    plan->point_weights = (qk_winograd_panel_weights(plan->conv) / 32 | 1) * 32;
    const size_t u_bytes = points * sizeof(int16_t) * plan->point_weights;
    const size_t panel_bytes = u_bytes + (by_position ? 0 : points * tile_bytes);
    plan->transformed_panels = qk_size_max(
        qk_size_min(plan->conv->tuning->quads_bytes / panel_bytes, plan->m_part_panels), 1);
    plan->multiplied_panels = by_position ? 1 : plan->transformed_panels;
    /* The transforms need pitch + 4 bytes. Rows that are no multiple of 64 lie in more sets of the
     * cache. */
    plan->row_bytes = pitch + 18;
    plan->slab_bytes = qk_divide_up(tiles, QK_IGEMM_VECTOR) * QK_IGEMM_VECTOR * QK_IGEMM_QUAD_BYTES;
    plan->point_bytes = plan->slabs * plan->slab_bytes + 64; /* transforms write beyond a slab */
    work->padded = reserve(&at, 2 * (n * plan->tile_rows + 2) * plan->row_bytes);
    work->quads = reserve(&at, points * plan->point_bytes);
    work->unpacked = reserve(&at, QK_WINOGRAD_TAPS * qk_winograd_panel_weights(plan->conv));
    work->weights = reserve(&at, plan->transformed_panels * u_bytes);
    work->products = reserve(&at, plan->multiplied_panels * points * tile_bytes +
                                      QK_WINOGRAD_LANES * sizeof(int32_t));
    work->sums = reserve(&at, sums_tiles * kernels->igemm->mr * QK_IGEMM_NR * sizeof(int32_t));
    work->segments = reserve(&at, segments * sizeof(struct qk_tile_segment));
    work->bytes = at;
}

/* Returns what one thread takes for all units: it transforms x only once for all parts of a block,
 * and the weights only once for all blocks if U of all panels is kept. */
static double time_one(const struct qk_winograd_plan *plan, struct cycles block, bool keeps)
{
    const double blocks = (double)block_count(plan) / (double)plan->row_bands *
                          (double)tiles_of(plan, QK_AXIS_ROW) / (double)plan->tile_rows;
    const size_t transforms = keeps ? plan->conv->desc.group : block_count(plan);
    return (block.x + block.rest) * blocks + block.weights * (double)transforms;
}

static double longest_unit(const struct qk_winograd_plan *plan, struct cycles block)
{
    const double share = full_rows(plan, plan->m_part_panels) / full_rows(plan, plan->panels);
    return block.x + (block.weights + block.rest) * share;
}

/* Returns what several threads take that take units in turn, and that transform x and weights for
 * each unit: not more than if all units were as long as the longest one, and not more than an equal
 * share and the longest unit at the end. */
static double time_many(const struct qk_winograd_plan *plan, struct cycles block, size_t threads)
{
    const double m_parts = (double)plan->m_parts, blocks = (double)block_count(plan);
    const double longest = longest_unit(plan, block);
    const double all = blocks * (block.x * m_parts + block.weights + block.rest);
    const double turns = ceil(blocks * m_parts / (double)threads);
    return fmin(turns * longest, (all + longest * (double)(threads - 1)) / (double)threads);
}

/* Cuts the output channels into at most `m_parts` parts, and estimates the plan's time. By
 * position, blocks are so large that their number matters if several threads share them. A run may
 * have all threads or one, and waits for the longest unit if its thread is held up. */
static void cut_m(struct qk_winograd_plan *plan, size_t m_parts, struct cycles block)
{
    const size_t threads = plan->conv->tuning->threads;
    plan->m_part_panels = qk_divide_up(plan->panels, m_parts);
    plan->m_parts = qk_divide_up(plan->panels, plan->m_part_panels);
    lay_out(plan);
    plan->cycles = time_one(plan, block, plan->transformed_panels == plan->panels);
    plan->score = plan->cycles;
    if (plan->kernels->igemm->by_position && threads > 1)
        plan->score +=
            time_many(plan, block, threads) * (double)threads / 2 + longest_unit(plan, block) / 4;
}

/* ---- The plan ---------------------------------------------------------------------------- */

/* Sets the plan's steps, which lists all slabs in turn. Returns false if there is no memory. */
static bool list_steps(struct qk_winograd_plan *plan, struct qk_memory memory)
{
    plan->step_count = qk_divide_up(plan->slabs, QK_IGEMM_STEP_SLABS);
    struct qk_igemm_step *steps = qk_conv_alloc(memory, plan->step_count, sizeof(*steps));
    for (size_t i = 0; steps && i < plan->step_count; i++) {
        const size_t first = i * QK_IGEMM_STEP_SLABS;
        steps[i].offset = (uint32_t)(first * plan->slab_bytes);
        steps[i].slabs = (uint32_t)qk_size_min(plan->slabs - first, QK_IGEMM_STEP_SLABS);
    }
    plan->steps = steps;
    return steps;
}

/* Replaces *best by the plan, cut in the best way, if that is better and takes at most `most`
 * cycles. */
static void keep_better(struct qk_winograd_plan plan, double igemm_unit_ns, double most,
                        struct qk_winograd_plan *best)
{
    const struct cycles block = count_cycles(&plan);
    if (time_one(&plan, block, true) > most)
        return;
    const bool by_position = plan.kernels->igemm->by_position;
    size_t m_parts = by_position ? 1 : count_m_parts(&plan, igemm_unit_ns, block);
    for (size_t last = by_position ? plan.panels : m_parts;;
         m_parts = qk_size_min(2 * m_parts, last)) {
        cut_m(&plan, m_parts, block);
        if (plan.workspace.bytes <= QK_CONV_WORKSPACE_MAX && plan.cycles <= most &&
            (best->cycles <= 0 || plan.score < best->score))
            *best = plan;
        if (m_parts == last)
            return;
    }
}

/* Fits the plan to tiles of each size, and to blocks of many sizes. Returns false if none costs
 * clearly less than igemm's plan; otherwise sets the plan to the best one. */
static bool fit(struct qk_winograd_plan *plan, const struct qk_plan *igemm)
{
    const struct qk_conv *conv = plan->conv;
    const double igemm_ns = (double)igemm->unit_cost_ns * (double)igemm->unit_count;
    const double most = igemm_ns * conv->tuning->cycles_per_ns *
                        (conv->desc.group > 1 ? WORTH_CHANGING_GROUPS : WORTH_CHANGING);
    struct qk_winograd_plan fitted = *plan;
    for (size_t i = 0; i < QK_WINOGRAD_SIZES && conv->backend->winograd[i].n > 0; i++) {
        fitted.kernels = &conv->backend->winograd[i];
        if (fitted.kernels->n > conv->winograd.largest_tiles || igemm_ns < fitted.kernels->least_ns)
            continue;
        const bool by_position = fitted.kernels->igemm->by_position;
        const size_t row_bands_most = by_position ? ROW_BANDS_MOST : 1;
        const size_t least =
            qk_divide_up(tiles_of(&fitted, QK_AXIS_COLUMN), qk_winograd_nr(fitted.kernels));
        const size_t end = least + (by_position ? COLUMN_BANDS_TRIED : COLUMN_BANDS_TRIED_BY_ROWS);
        for (size_t column_bands = least; column_bands < end; column_bands++)
            for (size_t row_bands = 1; row_bands <= row_bands_most; row_bands *= 2)
                if (cut_blocks(&fitted, column_bands, row_bands))
                    keep_better(fitted, (double)igemm->unit_cost_ns, most, plan);
    }
    return plan->cycles > 0;
}

/* Plans the convolution for igemm, and then for Winograd's algorithm if that is cheaper. */
static bool make_plan(const struct qk_conv_plan_args *args, struct qk_memory memory,
                      struct qk_plan *plan)
{
    const struct qk_conv *conv = args->conv;
    struct qk_winograd_plan fitted = {
        .conv = conv,
        .epilogue = args->epilogue,
        .geometry = *args->geometry,
        .order = qk_slab_order_for(&conv->desc, conv->backend, conv->costs),
        .panels = conv->igemm.panel_count,
        .slabs = qk_divide_up(conv->desc.group_channels, 2),
    };
    if (!qk_conv_algorithm_igemm.plan(args, memory, plan))
        return false;
    if (plan->outputs[0].count == 0 || !fit(&fitted, plan))
        return true;
    const double ns = fitted.cycles / conv->tuning->cycles_per_ns;
    struct qk_winograd_plan *state = qk_conv_alloc(memory, 1, sizeof(*state));
    if (!state)
        return false;
    *state = fitted;
    if (!list_steps(state, memory))
        return false;
    plan->kernel = state->kernels->kernel;
    plan->run = qk_winograd_run;
    plan->state = state;
    plan->workspace_bytes = state->workspace.bytes;
    plan->unit_count = block_count(state) * state->m_parts;
    plan->unit_cost_ns = (uint64_t)(ns / (double)plan->unit_count) + 1;
    return true;
}

const struct qk_conv_algorithm qk_conv_algorithm_winograd = {
    .prepare = prepare,
    .pack = pack,
    .plan = make_plan,
};
