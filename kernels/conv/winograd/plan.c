/* Prepares, packs and plans Winograd convolutions (winograd.h).
 *
 * Whether Winograd's algorithm is faster depends on the number of positions, which only plans know.
 * The weights are therefore packed twice: for igemm, and as one byte for each weight. U takes 3.6
 * bytes for each weight, so it is not kept: a unit makes U of one panel at a time, which costs some
 * 3 % of the products of a full block of tiles. */
#include "kernels/conv/winograd/plan.h"

#include "kernels/conv/algorithm.h"
#include "kernels/conv/backend.h"
#include "kernels/conv/channels.h"
#include "kernels/sizes.h"

/* With fewer channels or rows, transforms take longer than the products that they save. */
#define CHANNELS_LEAST 8
#define ROWS_LEAST 8
/* The cycles of the transforms, measured on a Zen 3: for each tile of a channel, for each weight,
 * and for each 8 tiles of a row, including the epilogue of their 32 sums. */
#define X_CYCLES 5.0
#define WEIGHT_CYCLES 1.3
#define SUMS_CYCLES 50.0
/* The speed of products in the L1 cache less what reading V from the L2 cache costs. */
#define PRODUCT_SPEED 0.85
/* A plan takes Winograd's algorithm if it costs less than this fraction of igemm's estimate, which
 * must be at least LEAST_NS: estimates of less are too inexact, as 64 channels at 7 x 7 showed,
 * which took 37 us instead of 30. */
#define WORTH_CHANGING 0.9
#define LEAST_NS 50000
/* Blocks may be cut into this many bands of columns. */
#define COLUMN_BANDS_MOST 8
/* Each part of the output channels transforms x again. All parts may together cost up to X_CHEAP of
 * the rest. One more part, for an even number of units, may cost up to X_MOST of it. */
#define X_CHEAP 0.08
#define X_MOST 0.2
/* If units would be so many times as long as wanted, igemm serves several threads better. */
#define UNITS_MOST 8.0

/* ---- Weights ----------------------------------------------------------------------------- */

static bool has_plain_weights(const struct qk_conv *conv)
{
    const int32_t centre = conv->constants.w_type == QK_UINT8 ? 128 : 0;
    for (size_t i = 0; i < conv->constants.w_zero_point_count; i++)
        if (qk_w_zero_point(conv, i) != centre)
            return false;
    return true;
}

bool qk_winograd_suits(const struct qk_conv *conv)
{
    const struct qk_conv_desc *desc = &conv->desc;
    const size_t rows = desc->out_channels / desc->group;
    if (!conv->backend->winograd || !(conv->tuning->words_terms_per_ns > 0) ||
        desc->spatial_rank != 2 || desc->channels_last || rows < ROWS_LEAST ||
        desc->group_channels < CHANNELS_LEAST || desc->group_channels > QK_WINOGRAD_CHANNELS_MAX)
        return false;
    for (int i = QK_AXIS_ROW; i <= QK_AXIS_COLUMN; i++)
        if (desc->kernel[i] != 3 || desc->stride[i] != 1 || desc->dilation[i] != 1)
            return false;
    return has_plain_weights(conv);
}

static size_t panel_count(const struct qk_conv *conv)
{
    return qk_divide_up(conv->desc.out_channels / conv->desc.group,
                        conv->backend->winograd->igemm->mr);
}

size_t qk_winograd_panel_weights(const struct qk_conv *conv)
{
    const size_t slabs = qk_divide_up(conv->desc.group_channels, 2);
    return qk_divide_up(slabs * 2 * conv->backend->winograd->igemm->mr, 32) * 32;
}

static bool prepare(struct qk_conv *conv, struct qk_memory memory, double *item_cycles)
{
    size_t bytes;
    if (!qk_conv_algorithm_igemm.prepare(conv, memory, item_cycles) ||
        !qk_mul_size(panel_count(conv) * conv->desc.group,
                     qk_winograd_panel_weights(conv) * QK_WINOGRAD_TAPS, &bytes))
        return false;
    *item_cycles += 2.0 * (double)conv->depth * (double)conv->backend->igemm->mr;
    conv->winograd = qk_conv_alloc(memory, bytes, 1);
    return conv->winograd;
}

/* Packs the weights of an output channel: [panel][tap][pair of channels][row][2]. If the number of
 * channels is odd, the last weights are 0. Other missing weights may be anything. */
static void pack_row(const struct qk_conv *conv, size_t channel)
{
    const size_t rows = conv->desc.out_channels / conv->desc.group;
    const size_t channels = conv->desc.group_channels;
    const size_t mr = conv->backend->winograd->igemm->mr;
    const size_t weights = qk_winograd_panel_weights(conv);
    const size_t row = channel % rows;
    const size_t panel = channel / rows * panel_count(conv) + row / mr;
    const uint8_t flip = conv->constants.w_type == QK_UINT8 ? 0x80 : 0;
    const uint8_t *from = conv->constants.w + channel * conv->depth;
    for (size_t c = 0; c < channels + channels % 2; c++) {
        int8_t *to = conv->winograd + panel * weights * QK_WINOGRAD_TAPS +
                     (c / 2 * mr + row % mr) * 2 + c % 2;
        for (size_t tap = 0; tap < QK_WINOGRAD_TAPS; tap++)
            to[tap * weights] =
                c < channels ? (int8_t)(from[c * QK_WINOGRAD_TAPS + tap] ^ flip) : 0;
    }
}

/* An item is a panel of igemm. Two items may have rows of one panel here, but no common bytes. */
static void pack(const struct qk_conv *conv, size_t begin, size_t end)
{
    const size_t rows = conv->desc.out_channels / conv->desc.group;
    const size_t mr = conv->backend->igemm->mr;
    qk_conv_algorithm_igemm.pack(conv, begin, end);
    for (size_t i = begin; i < end; i++) {
        const size_t first = i % conv->igemm.panel_count * mr;
        const size_t last = first + qk_size_min(rows - first, mr);
        for (size_t row = first; row < last; row++)
            pack_row(conv, i / conv->igemm.panel_count * rows + row);
    }
}

/* ---- Blocks ------------------------------------------------------------------------------ */

static size_t tiles_of(const struct qk_winograd_plan *plan, int axis)
{
    return qk_divide_up((size_t)plan->geometry.axis[axis].out, 2);
}

/* Sets the plan's bands, with this number of bands of columns. Returns false if a block would be
 * too large for a tile of sums, or V for the cache. */
static bool cut_blocks(struct qk_winograd_plan *plan, size_t column_bands)
{
    const size_t height = tiles_of(plan, QK_AXIS_ROW);
    const size_t columns = qk_divide_up(tiles_of(plan, QK_AXIS_COLUMN), column_bands);
    const size_t tile_bytes = QK_WINOGRAD_POINTS * QK_IGEMM_QUAD_BYTES * plan->slabs;
    const size_t vectors = /* a slab has whole ones */
        2 * plan->conv->tuning->quads_bytes / (tile_bytes * QK_IGEMM_VECTOR);
    const size_t most = qk_size_min(vectors * QK_IGEMM_VECTOR, QK_IGEMM_NR) / columns;
    if (most == 0)
        return false;
    plan->column_bands = qk_divide_up(tiles_of(plan, QK_AXIS_COLUMN), columns);
    plan->tile_columns = columns;
    plan->tile_rows = qk_even_part(height, most);
    plan->row_bands = qk_divide_up(height, plan->tile_rows);
    return true;
}

struct cycles {
    double x, all; /* of all units: transforming x once; everything else, too */
};

/* Estimates the cycles of all units, if each transforms x once. */
static struct cycles count_cycles(const struct qk_winograd_plan *plan)
{
    const struct qk_conv *conv = plan->conv;
    const double terms_per_cycle =
        conv->tuning->words_terms_per_ns / conv->tuning->cycles_per_ns * PRODUCT_SPEED;
    const size_t tiles = plan->tile_rows * plan->tile_columns;
    const double vectors = (double)qk_divide_up(tiles, 8);
    const double rows = (double)(conv->desc.out_channels / conv->desc.group);
    const double channels = (double)plan->slabs * 2;
    const double blocks = (double)plan->geometry.images * (double)conv->desc.group *
                          (double)plan->row_bands * (double)plan->column_bands;
    const double x = X_CYCLES * (double)tiles * channels;
    const double products = QK_WINOGRAD_POINTS * vectors * 8 * rows * channels / terms_per_cycle;
    const double sums = (double)plan->tile_rows *
                        (double)qk_divide_up(plan->tile_columns, QK_WINOGRAD_LANES) * rows *
                        SUMS_CYCLES;
    return (struct cycles){x * blocks,
                           (x + products + sums + WEIGHT_CYCLES * rows * channels) * blocks};
}

/* Sets the plan's blocks to the cheapest ones. Returns false if there are none. */
static bool choose_blocks(struct qk_winograd_plan *plan, struct cycles *cycles)
{
    size_t best = 0;
    for (size_t bands = 1; bands <= COLUMN_BANDS_MOST; bands++)
        if (cut_blocks(plan, bands)) {
            const struct cycles found = count_cycles(plan);
            if (best == 0 || found.all < cycles->all) {
                best = bands;
                *cycles = found;
            }
        }
    return best > 0 && cut_blocks(plan, best);
}

static size_t block_count(const struct qk_winograd_plan *plan)
{
    return plan->geometry.images * plan->conv->desc.group * plan->row_bands * plan->column_bands;
}

/* Cuts the output channels into parts if there are too few blocks for units of the wanted time. An
 * odd number of blocks gets an even number of parts, so that two threads have the same work. Adds
 * what the parts cost to `cycles`. Returns false if units would be much too long. */
static bool cut_rows(struct qk_winograd_plan *plan, struct cycles *cycles)
{
    const struct qk_conv *conv = plan->conv;
    const double ns = cycles->all / conv->tuning->cycles_per_ns;
    const size_t blocks = block_count(plan);
    const double wanted = ns / qk_conv_unit_ns(conv->tuning, ns) / (double)blocks;
    const double cheap = 1 + cycles->all / cycles->x * X_CHEAP;
    size_t parts = qk_size_max((size_t)(wanted < cheap ? wanted : cheap), 1);
    if (blocks % 2 == 1 && wanted > 1 && cycles->x < X_MOST * cycles->all)
        parts += parts % 2;
    parts = qk_size_min(parts, plan->panels);
    plan->m_part_panels = qk_divide_up(plan->panels, parts);
    plan->m_parts = qk_divide_up(plan->panels, plan->m_part_panels);
    cycles->all += cycles->x * (double)(plan->m_parts - 1);
    return wanted <= UNITS_MOST * (double)plan->m_parts;
}

/* ---- The plan ---------------------------------------------------------------------------- */

static size_t reserve(size_t *at, size_t bytes)
{
    const size_t begin = *at;
    *at += qk_divide_up(bytes, 64) * 64;
    return begin;
}

static void lay_out(struct qk_winograd_plan *plan)
{
    const size_t mr = plan->kernels->igemm->mr;
    const size_t pitch = QK_WINOGRAD_PITCH(plan->tile_columns);
    const size_t tiles = plan->tile_rows * plan->tile_columns;
    const size_t sums_tiles = qk_divide_up(2 * plan->tile_rows * pitch, QK_IGEMM_NR);
    const size_t row_segments = QK_IGEMM_NR / QK_IGEMM_VECTOR; /* pitches have whole vectors */
    struct qk_winograd_workspace *work = &plan->workspace;
    size_t at = 0;
    const size_t panel_bytes =
        QK_WINOGRAD_POINTS * (sizeof(int16_t) * qk_winograd_panel_weights(plan->conv) +
                              mr * QK_IGEMM_NR * sizeof(int32_t));
    plan->together = qk_size_max(
        qk_size_min(plan->conv->tuning->quads_bytes / panel_bytes, plan->m_part_panels), 1);
    plan->row_bytes = pitch + 18; /* padding is written 16 bytes at a time */
    plan->slab_bytes = qk_divide_up(tiles, QK_IGEMM_VECTOR) * QK_IGEMM_VECTOR * QK_IGEMM_QUAD_BYTES;
    plan->point_bytes = plan->slabs * plan->slab_bytes + 64; /* transforms write beyond a slab */
    work->padded = reserve(&at, 2 * (2 * plan->tile_rows + 2) * plan->row_bytes);
    work->quads = reserve(&at, QK_WINOGRAD_POINTS * plan->point_bytes);
    work->weights = reserve(&at, plan->together * QK_WINOGRAD_POINTS * sizeof(int16_t) *
                                     qk_winograd_panel_weights(plan->conv));
    work->products =
        reserve(&at, (plan->together * QK_WINOGRAD_POINTS * mr * QK_IGEMM_NR + QK_WINOGRAD_LANES) *
                         sizeof(int32_t));
    work->sums = reserve(&at, sums_tiles * mr * QK_IGEMM_NR * sizeof(int32_t));
    work->segments = reserve(&at, row_segments * sizeof(struct qk_tile_segment));
    work->bytes = at;
}

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

/* Plans the convolution for igemm, and then for Winograd's algorithm if that is cheaper. */
static bool make_plan(const struct qk_conv_plan_args *args, struct qk_memory memory,
                      struct qk_plan *plan)
{
    const struct qk_conv *conv = args->conv;
    struct cycles cycles = {0, 0};
    struct qk_winograd_plan fitted = {
        .conv = conv,
        .kernels = conv->backend->winograd,
        .epilogue = args->epilogue,
        .geometry = *args->geometry,
        .panels = panel_count(conv),
        .slabs = qk_divide_up(conv->desc.group_channels, 2),
    };
    if (!qk_conv_algorithm_igemm.plan(args, memory, plan))
        return false;
    if (plan->outputs[0].count == 0 || !choose_blocks(&fitted, &cycles) ||
        !cut_rows(&fitted, &cycles))
        return true;
    const double igemm_ns = (double)plan->unit_cost_ns * (double)plan->unit_count;
    const double ns = cycles.all / conv->tuning->cycles_per_ns;
    if (igemm_ns < LEAST_NS || ns > WORTH_CHANGING * igemm_ns)
        return true;
    struct qk_winograd_plan *state = qk_conv_alloc(memory, 1, sizeof(*state));
    if (!state)
        return false;
    lay_out(&fitted);
    *state = fitted;
    if (!list_steps(state, memory))
        return false;
    plan->kernel = "conv_winograd_avx2";
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
