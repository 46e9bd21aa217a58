/* Plans a convolution by integer products: cuts it into units, and says how each unit lays out x.
 *
 * A unit computes some output channels of one group (an m_part, made of whole panels) at some
 * positions: a band of rows, a band of columns of single rows, or the planes of several images. A
 * unit makes the slabs of its positions and then multiplies every panel with every N tile of these
 * slabs. The slabs should therefore stay in the core's own cache beside a panel, which bounds the
 * number of positions in a unit. If even the smallest number does not fit, K is taken in parts, and
 * sums wait in the workspace from one part to the next.
 *
 * Taps can share slabs in three ways (enum mode). The planner lays out x in each way, estimates the
 * cycles, and takes the cheapest layout. It then cuts the work further, so that a unit takes about
 * the time that qk_conv_unit_ns says. */
#include <math.h>

#include "kernels/conv/algorithm.h"
#include "kernels/conv/igemm/pack.h"
#include "kernels/conv/igemm/plan.h"
#include "kernels/sizes.h"

/* A unit has at least this many quads in each slab, if it has enough positions. If slabs of this
 * size do not fit into the cache together, or if there are too many slabs, K is taken in parts. */
#define K_PART_QUADS 512
/* A unit never has more quads than this in a slab. This bounds its list of N tiles. */
#define UNIT_QUADS ((size_t)1 << 14)
/* Units are cut so that other cores get some of them and a worker can give way to other requests.
 * They are not cut smaller than this, because what two neighbouring units both read is laid out in
 * each of them. */
#define UNIT_QUADS_LEAST 512
/* If the output channels are cut into parts, each part makes the same slabs again. All these slabs
 * may cost up to this fraction of the multiplication. */
#define SLABS_CHEAP 0.03
/* The output channels are cut in two, so that two threads can share the work, if slabs cost up to
 * this fraction of the multiplication. With more, making them on both leaves too little to gain.
 * At SLABS_MOST two threads take two thirds of the time of one. */
#define SLABS_MOST 0.5
/* If slabs cost at least this fraction, two bands of few positions are better, if they cost no more
 * than one. */
#define SLABS_DEAR 0.2
/* The cost of beginning a slab, as a multiple of costs->slab_cycles. */
#define SLAB_CHUNKS 0.5
/* Work of less than this many units' time becomes one unit, because handing over a part would not
 * pay. */
#define WORTH_CUTTING 1.2

enum mode {
    SHARED,  /* taps share slabs along both axes */
    COLUMNS, /* taps in one column share slabs; each column of taps has its own */
    SINGLE,  /* each tap has its own slabs */
    MODE_COUNT
};

/* A possible layout of x and cut into units. */
struct candidate {
    struct qk_slab_layout layout;
    size_t image_bands, row_bands, column_bands;
    size_t m_parts, m_part_panels;
    /* The cycles of all bands of the images that a unit has, without making slabs. INFINITY if this
     * layout is impossible. */
    double cycles;
    double slab_cycles; /* the cycles of making all slabs of these bands */
};

/* ---- Slabs ------------------------------------------------------------------------------- */

/* Returns how many columns of padding after a row can also be the padding before the next row, in
 * every phase. For the row axis, returns how many rows of padding after a plane can also be the
 * padding before the next plane. */
static size_t count_overlap(const struct qk_conv_axis *axis, const struct qk_stride_phases *slabs)
{
    struct qk_window window = {.in_columns = axis->in,
                               .row_stride = 1,
                               .column_stride = axis->stride,
                               .columns = (size_t)axis->out + slabs->span};
    size_t overlap = slabs->span;
    for (size_t c = 0; c < slabs->phases && overlap > 0; c++) {
        window.column_first = (int64_t)c * axis->dilation - axis->pad;
        qk_window_fit(&window);
        overlap = qk_size_min(overlap, qk_size_min(window.inside_columns.begin,
                                                   window.columns - window.inside_columns.end));
    }
    return overlap;
}

static size_t slab_quads(const struct qk_slab_layout *layout)
{
    return (layout->images - 1) * layout->image_pitch +
           (layout->rows + layout->row.span - 1) * layout->pitch + layout->columns +
           layout->column.span;
}

/* Sets the bytes of a slab from the rows and columns of a unit. A slab has an odd number of cache
 * lines, so that equal quads of all slabs do not share a few sets of the cache. */
static void set_slab_bytes(struct qk_slab_layout *layout)
{
    size_t cache_lines = qk_divide_up(slab_quads(layout), 16);
    layout->slab_bytes = (cache_lines | 1) * 64;
}

/* ---- Units ------------------------------------------------------------------------------- */

/* Gives a unit as many rows as possible, or else as many columns of one row, so that a slab has at
 * most `quads` quads. Returns false if not even the columns of one N tile fit. */
static bool fit_unit(const struct qk_conv_igemm_plan *plan, struct candidate *candidate,
                     size_t quads)
{
    struct qk_slab_layout *layout = &candidate->layout;
    const size_t height = (size_t)plan->geometry.axis[QK_AXIS_ROW].out;
    const size_t width = (size_t)plan->geometry.axis[QK_AXIS_COLUMN].out;
    const size_t span = layout->column.span;
    const size_t tall = layout->row.span;
    if (quads > width && quads - width > span && tall < (quads - width - span)) {
        const size_t pitch = width + span - layout->overlap;
        const size_t more = (quads - width - span) / pitch; /* rows after the first */
        if (more >= tall) {
            layout->rows = qk_size_min(more - tall + 1, height);
            layout->columns = width;
            layout->pitch = pitch;
            return true;
        }
    }
    if (tall >= quads || quads / (tall + 1) < span + QK_IGEMM_NR)
        return false;
    layout->overlap = 0;
    layout->rows = 1;
    layout->columns = qk_size_min(quads / (tall + 1) - span, width);
    layout->pitch = layout->columns + span;
    return true;
}

/* Returns how many quads of a slab a band should at least have. Tiles by position may end where a
 * band ends. Tiles by rows have whole vectors, and longer bands fill them better. The 6 was found
 * by measuring convolutions, not by a formula; 512 / 6 = 85 quads are some six tiles of 14
 * positions. */
static size_t quads_least(const struct qk_conv_igemm_plan *plan)
{
    return plan->conv->backend->igemm->by_position ? UNIT_QUADS_LEAST / 6 : UNIT_QUADS_LEAST;
}

/* Returns into how many bands the work may be cut at most. `whole` is the number of quads of a slab
 * that has all rows and columns. Work of few quads is cut in two if making the slabs takes so long
 * that the output channels cannot be cut instead, and if two bands fill vectors as one does. Two
 * threads can then share a 3 x 3 kernel with a stride of 2 on a plane of 32 x 32. */
static size_t bands_most(const struct qk_conv_igemm_plan *plan, const struct candidate *candidate,
                         size_t whole)
{
    const struct qk_slab_layout *layout = &candidate->layout;
    const size_t height = (size_t)plan->geometry.axis[QK_AXIS_ROW].out;
    const size_t most = whole / quads_least(plan);
    if (most > 1 || plan->conv->backend->igemm->by_position ||
        candidate->slab_cycles < SLABS_DEAR * candidate->cycles)
        return qk_size_max(most, 1);
    const size_t first =
        height > 1 ? qk_divide_up(height, 2) * layout->pitch
                   : qk_divide_up(qk_divide_up(whole, 2), QK_IGEMM_VECTOR) * QK_IGEMM_VECTOR;
    const size_t second = whole > first ? whole - first : 0;
    const size_t vectors = qk_divide_up(first, 8) + qk_divide_up(second, 8);
    const bool alike = 4 * second >= 3 * first;
    return alike && 10 * vectors <= 11 * qk_divide_up(whole, 8) ? 2 : 1;
}

/* Returns the number of which the columns of a band should be a multiple, if it has some `columns`
 * of them. For kernels by rows, a band ends where a vector ends. If it is long, it ends where a
 * tile ends, so that all tiles are full. */
static size_t columns_multiple(const struct qk_conv_igemm_plan *plan, size_t columns)
{
    const struct qk_igemm *igemm = plan->conv->backend->igemm;
    if (igemm->by_position)
        return 1;
    return columns < UNIT_QUADS_LEAST ? QK_IGEMM_VECTOR : qk_size_max(igemm->nr, QK_IGEMM_VECTOR);
}

static size_t round_columns(const struct qk_conv_igemm_plan *plan, size_t columns)
{
    const size_t multiple = columns_multiple(plan, columns);
    return qk_divide_up(columns, multiple) * multiple;
}

/* Cuts rows, or else columns, into bands of about the same size, none larger than before. Makes at
 * least `least` bands, unless they would be too small. */
static void cut_bands(const struct qk_conv_igemm_plan *plan, struct candidate *candidate,
                      size_t least)
{
    struct qk_slab_layout *layout = &candidate->layout;
    const size_t height = (size_t)plan->geometry.axis[QK_AXIS_ROW].out;
    const size_t width = (size_t)plan->geometry.axis[QK_AXIS_COLUMN].out;
    const bool whole_rows = layout->columns == width;
    const size_t whole = whole_rows ? height * layout->pitch : width;
    const size_t wanted = qk_size_min(least, bands_most(plan, candidate, whole));
    if (whole_rows && height > 1) {
        layout->rows = qk_size_min(layout->rows, qk_divide_up(height, qk_size_min(wanted, height)));
    } else {
        const size_t columns = round_columns(plan, qk_divide_up(width, wanted));
        layout->columns = qk_size_min(layout->columns, columns);
        if (layout->columns < width) {
            layout->overlap = 0;
            layout->pitch = layout->columns + layout->column.span;
        }
    }
    candidate->row_bands = qk_divide_up(height, layout->rows);
    layout->rows = qk_divide_up(height, candidate->row_bands);
    candidate->column_bands = qk_divide_up(width, layout->columns);
    if (candidate->column_bands > 1) {
        const size_t columns = round_columns(plan, qk_divide_up(width, candidate->column_bands));
        layout->columns = qk_size_min(layout->columns, columns);
    }
}

/* Makes bands of columns smaller, if two threads then end closer together. Bands of rows stay as
 * they are: shorter ones would read more rows twice, and leave more of their tiles empty. */
static void share_columns(const struct qk_conv_igemm_plan *plan, struct candidate *candidate)
{
    struct qk_slab_layout *layout = &candidate->layout;
    const size_t width = (size_t)plan->geometry.axis[QK_AXIS_COLUMN].out;
    const size_t tile = columns_multiple(plan, layout->columns);
    const size_t least = qk_divide_up(quads_least(plan), tile);
    const size_t most = qk_size_max(layout->columns / tile, 1);
    const size_t tiles = qk_unit_items(qk_divide_up(width, tile), least, most);
    layout->columns = qk_size_min(layout->columns, tiles * tile);
    candidate->column_bands = qk_divide_up(width, layout->columns);
}

/* Chains images with small planes, one after the other, into units of about UNIT_QUADS_LEAST padded
 * positions. This fills N tiles, and weights are read once for all images of a unit. A slab has at
 * most `most` quads. */
static void chain_images(const struct qk_conv_igemm_plan *plan, struct candidate *candidate,
                         size_t most)
{
    struct qk_slab_layout *layout = &candidate->layout;
    const size_t shared = count_overlap(&plan->geometry.axis[QK_AXIS_ROW], &layout->row);
    const size_t pitch = (layout->rows + layout->row.span - shared) * layout->pitch;
    const size_t images = plan->geometry.images;
    const size_t fit = qk_size_min(most, UNIT_QUADS_LEAST) / pitch;
    const bool whole =
        candidate->row_bands * candidate->column_bands == 1 && layout->part_sets == layout->sets;
    candidate->image_bands = whole && fit > 1 ? qk_divide_up(images, fit) : images;
    layout->images = qk_divide_up(images, candidate->image_bands);
    layout->image_pitch = layout->images > 1 ? pitch : SIZE_MAX;
}

/* Returns how many products one row takes for 16 positions. */
static double count_products(const struct qk_slab_order *order, const struct qk_igemm *igemm)
{
    return (double)order->steps *
           (igemm->whole_steps ? 1 : (double)order->slabs / (double)order->k_blocks);
}

/* Returns the cycles of one dot product: 1.5 for 16 quads, half the speed of products that read
 * registers, and 8 to add up the lanes. */
static double dot_cycles(const struct qk_slab_order *order)
{
    return (double)order->steps * (double)order->step_slabs / 16 * 1.5 + 8;
}

/* Returns the largest number of positions for which dot products cost less than a vector that is
 * mostly empty. A single position costs less whatever the number of terms, because its sums then
 * lie side by side (run_point). */
static size_t remainder_most(const struct qk_conv_igemm_plan *plan)
{
    const struct qk_conv_backend *backend = plan->conv->backend;
    const size_t quads = plan->order.steps * plan->order.step_slabs;
    if (!backend->igemm->dot || quads > plan->conv->tuning->dot_bytes / QK_IGEMM_QUAD_BYTES)
        return 0;
    const bool point = plan->geometry.images == 1 && plan->geometry.positions == 1;
    if (backend->igemm->whole_steps || point)
        return 1;
    const double most = count_products(&plan->order, backend->igemm) *
                        plan->conv->costs->product_cycles / dot_cycles(&plan->order);
    return most < QK_IGEMM_REMAINDER_MAX ? (size_t)most : QK_IGEMM_REMAINDER_MAX;
}

/* Returns the cycles of making one slab of an image. Beginning the slab costs SLAB_CHUNKS,
 * beginning a row costs 1, and 16 quads cost 1/2, all as multiples of costs->slab_cycles. */
static double fill_cycles(const struct qk_conv_igemm_plan *plan,
                          const struct qk_slab_layout *layout)
{
    const struct qk_conv_axis *row = &plan->geometry.axis[QK_AXIS_ROW];
    const struct qk_conv_axis *column = &plan->geometry.axis[QK_AXIS_COLUMN];
    const bool run = row->stride == 1 && column->stride == 1 && column->pad == 0 &&
                     (int64_t)layout->pitch == column->in;
    const double rows = run ? 1 : (double)(layout->rows + layout->row.span);
    const size_t columns = run ? layout->rows * layout->pitch : layout->columns;
    const double chunks = (double)qk_divide_up(columns + layout->column.span, 16);
    return (SLAB_CHUNKS + rows * (1 + chunks / 2)) * plan->conv->costs->slab_cycles;
}

/* Estimates the cycles for all positions of the images that a unit has, in one group and at one
 * position of the outer axes. `cycles` adds up products of whole vectors, dot products of the
 * remainder, 16 cycles for each row of 64 padded positions, and reading the weights. The 16 cycles
 * are a guess of what a row of a tile costs beside its products: mostly its epilogue. */
static void count_cycles(const struct qk_conv_igemm_plan *plan, struct candidate *candidate)
{
    const struct qk_slab_layout *layout = &candidate->layout;
    const struct qk_igemm *igemm = plan->conv->backend->igemm;
    const struct qk_conv_igemm *packed = &plan->conv->igemm;
    const double bands = (double)candidate->row_bands * (double)candidate->column_bands;
    const struct qk_padded_grid grid = {
        .images = layout->images,
        .rows = layout->rows,
        .columns = layout->columns,
        .image_pitch = layout->image_pitch,
        .pitch = layout->pitch,
    };
    const size_t padded = qk_conv_computed_positions(igemm, &grid);
    const size_t remainder = qk_conv_igemm_remainder(plan, padded);
    const double vectors =
        igemm->by_position ? (double)padded / 16 : (double)qk_divide_up(padded - remainder, 16);
    const double rows =
        (double)(igemm->by_position ? qk_divide_up(plan->rows, igemm->lanes) * igemm->lanes
                                    : plan->rows);
    const double products = count_products(&plan->order, igemm);
    const double slabs = (double)layout->sets * (double)layout->set_slabs;
    candidate->cycles = bands * (vectors * rows * products * plan->conv->costs->product_cycles +
                                 (double)remainder * rows * dot_cycles(&plan->order) +
                                 ceil((double)padded / 64) * rows * 16 +
                                 (double)packed->panel_count * (double)packed->panel_bytes /
                                     plan->conv->tuning->weights_per_cycle);
    candidate->slab_cycles = bands * (double)layout->images * slabs * fill_cycles(plan, layout);
}

static double image_cycles(const struct candidate *candidate)
{
    return (candidate->cycles + candidate->slab_cycles) / (double)candidate->layout.images;
}

/* Returns a layout of x in which taps share slabs as `mode` says. Its cycles are INFINITY if such a
 * layout is impossible. */
static struct candidate candidate_for(const struct qk_conv_igemm_plan *plan, enum mode mode)
{
    const struct qk_slab_order *order = &plan->order;
    const struct qk_conv_axis *row = &plan->geometry.axis[QK_AXIS_ROW];
    const struct qk_conv_axis *column = &plan->geometry.axis[QK_AXIS_COLUMN];
    struct candidate candidate = {.layout.images = 1, .cycles = INFINITY};
    struct qk_slab_layout *layout = &candidate.layout;
    if (mode != SINGLE && (!qk_taps_may_share(row) || !qk_taps_may_share(column)))
        return candidate;
    layout->row = qk_stride_phases_of(row, order->row_taps, mode != SINGLE);
    layout->column = qk_stride_phases_of(column, order->column_taps, mode == SHARED);
    layout->overlap = count_overlap(column, &layout->column);
    layout->fine = mode == SINGLE;
    layout->set_slabs =
        order->step_slabs * (layout->fine ? 1 : layout->row.phases * layout->column.phases);
    layout->set_steps = layout->fine ? 1 : order->row_taps * order->column_taps;
    layout->sets = order->steps / layout->set_steps;
    layout->part_sets = layout->sets;
    const size_t all_slabs = layout->sets * layout->set_slabs;
    const size_t unit_quads = plan->conv->tuning->quads_bytes / QK_IGEMM_QUAD_BYTES;
    const size_t quads = qk_size_min(unit_quads / all_slabs, UNIT_QUADS);
    if (all_slabs > plan->conv->tuning->slabs_most || !fit_unit(plan, &candidate, quads)) {
        if (layout->set_slabs > unit_quads / K_PART_QUADS ||
            !fit_unit(plan, &candidate, K_PART_QUADS))
            return candidate;
        layout->part_sets = unit_quads / K_PART_QUADS / layout->set_slabs;
    }
    cut_bands(plan, &candidate, 1);
    chain_images(plan, &candidate, quads);
    count_cycles(plan, &candidate);
    return candidate;
}

/* Returns into how many units one position of the outer axes should be cut, so that each unit takes
 * about as long as qk_conv_unit_ns says. The number is 1 or even, so that two threads get the same
 * number of units. */
static size_t wanted_units(const struct qk_conv_igemm_plan *plan, const struct candidate *candidate)
{
    const struct qk_conv_tuning *tuning = plan->conv->tuning;
    const double ns = (candidate->cycles + candidate->slab_cycles) / tuning->cycles_per_ns;
    const double count =
        (double)candidate->image_bands * (double)plan->conv->desc.group * (double)plan->outer;
    const double units = ns / qk_conv_unit_ns(tuning, ns * count);
    if (units < WORTH_CUTTING)
        return 1;
    return units < 1e6 ? qk_size_max((size_t)(units / 2 + 0.5), 1) * 2 : 1000000;
}

/* Returns into how many parts the output channels are cut, if there are `bands` bands and `wanted`
 * units are wanted. Every part makes the slabs again, so SLABS_CHEAP limits the number of parts. If
 * the number of bands is odd and slabs cost less than SLABS_MOST, the number of parts is rounded up
 * to an even one, so that two threads have the same work. */
static size_t count_m_parts(const struct candidate *candidate, size_t bands, size_t wanted)
{
    const double cheap = candidate->cycles / candidate->slab_cycles * SLABS_CHEAP;
    const size_t most = cheap < 1e6 ? (size_t)cheap : 1000000;
    const size_t parts = qk_size_min(qk_divide_up(wanted, bands), most);
    const bool may_pair = candidate->slab_cycles < SLABS_MOST * candidate->cycles;
    return wanted > 1 && bands % 2 == 1 && may_pair ? qk_divide_up(qk_size_max(parts, 2), 2) * 2
                                                    : qk_size_max(parts, 1);
}

/* Cuts the work into units of about the time that qk_conv_unit_ns says: first into bands, then into
 * parts of the output channels. */
static void cut_units(const struct qk_conv_igemm_plan *plan, struct candidate *candidate)
{
    const size_t panels = plan->conv->igemm.panel_count;
    const size_t wanted = wanted_units(plan, candidate);
    size_t most = panels;
    if (candidate->layout.images == 1)
        cut_bands(plan, candidate, wanted);
    if (wanted > 1 && candidate->column_bands > 1)
        share_columns(plan, candidate);
    set_slab_bytes(&candidate->layout);
    if (candidate->layout.part_sets < candidate->layout.sets) {
        const struct qk_igemm *igemm = plan->conv->backend->igemm;
        const size_t n_tiles = qk_conv_n_tiles_most(igemm, slab_quads(&candidate->layout));
        const size_t tile = qk_igemm_tile_sums(igemm) * sizeof(int32_t);
        most = qk_size_max(plan->conv->tuning->sums_bytes / tile / n_tiles, 1);
    }
    const size_t m_parts =
        count_m_parts(candidate, candidate->row_bands * candidate->column_bands, wanted);
    candidate->m_parts = qk_size_max(qk_size_min(m_parts, panels), qk_divide_up(panels, most));
    candidate->m_part_panels = qk_divide_up(panels, candidate->m_parts);
    candidate->m_parts = qk_divide_up(panels, candidate->m_part_panels);
}

/* ---- Workspace --------------------------------------------------------------------------- */

/* Reserves `bytes` of the workspace, rounded up to whole cache lines. Returns the offset of the
 * reserved bytes. */
static size_t reserve(size_t *at, size_t bytes)
{
    const size_t begin = *at;
    *at += qk_divide_up(bytes, 64) * 64;
    return begin;
}

static struct qk_conv_igemm_workspace lay_out(const struct qk_conv_igemm_plan *plan)
{
    const struct qk_slab_layout *layout = &plan->layout;
    const struct qk_igemm *igemm = plan->conv->backend->igemm;
    const size_t tile = qk_igemm_tile_sums(igemm) * sizeof(int32_t);
    const size_t n_tiles = qk_conv_n_tiles_most(igemm, slab_quads(layout));
    const bool whole = layout->part_sets == layout->sets;
    const bool column_sums = plan->conv->igemm.ones != NULL;
    /* Kernels read whole vectors, which may end beyond the last quad. With whole_steps they also
     * read beyond the last slab. */
    const size_t slack = QK_IGEMM_NR * QK_IGEMM_QUAD_BYTES;
    const size_t slabs =
        layout->part_sets * layout->set_slabs + (igemm->whole_steps ? plan->order.step_slabs : 0);
    struct qk_conv_igemm_workspace work;
    size_t at = 0;
    work.quads = reserve(&at, slabs * layout->slab_bytes + slack);
    work.sums = reserve(&at, whole ? tile : plan->m_part_panels * n_tiles * tile);
    work.column_tile = reserve(&at, column_sums ? tile : 0);
    work.column_sums =
        reserve(&at, column_sums ? (n_tiles * igemm->nr + QK_IGEMM_VECTOR) * sizeof(int32_t) : 0);
    work.n_tiles = reserve(&at, n_tiles * sizeof(struct qk_n_tile));
    work.segments = reserve(&at, (n_tiles + layout->images) * sizeof(struct qk_tile_segment));
    const size_t dot_quads = plan->order.steps * plan->order.step_slabs;
    work.dot_bytes = plan->remainder > 0 ? dot_quads * QK_IGEMM_QUAD_BYTES + QK_IGEMM_SLACK : 0;
    work.remainder = reserve(&at, plan->remainder * work.dot_bytes);
    work.bytes = at;
    return work;
}

/* ---- The plan ---------------------------------------------------------------------------- */

/* Fills in the plan from the cheapest layout. Sets *cycles to the cycles of a unit.
 *
 * There always is a layout, because SINGLE always fits, if necessary with K in parts. SINGLE has no
 * spans, and a slab set has at most QK_IGEMM_STEP_SLABS = 16 slabs. quads_bytes, which
 * kernels/choice.c keeps at 64 KiB or more, has room for 32 slabs of K_PART_QUADS quads. */
static void fit(struct qk_conv_igemm_plan *plan, double *cycles)
{
    struct candidate best = {.layout.images = 1, .cycles = INFINITY};
    for (enum mode mode = 0; mode < MODE_COUNT; mode++) {
        struct candidate candidate = candidate_for(plan, mode);
        if (image_cycles(&candidate) < image_cycles(&best))
            best = candidate;
    }
    cut_units(plan, &best);
    plan->layout = best.layout;
    plan->image_bands = best.image_bands;
    plan->row_bands = best.row_bands;
    plan->column_bands = best.column_bands;
    plan->m_parts = best.m_parts;
    plan->m_part_panels = best.m_part_panels;
    plan->workspace = lay_out(plan);
    const bool whole = best.layout.part_sets == best.layout.sets;
    *cycles = (best.cycles / (double)best.m_parts +
               best.slab_cycles / (double)(whole ? best.m_parts : 1)) /
              (double)(best.row_bands * best.column_bands);
}

static bool make_plan(const struct qk_conv_plan_args *args, struct qk_memory memory,
                      struct qk_plan *plan)
{
    const struct qk_conv *conv = args->conv;
    struct qk_conv_igemm_plan *state = qk_conv_alloc(memory, 1, sizeof(*state));
    if (!state)
        return false;
    *state = (struct qk_conv_igemm_plan){
        .conv = conv,
        .epilogue = args->epilogue,
        .geometry = *args->geometry,
        .order = qk_slab_order_for(&conv->desc, conv->backend, conv->costs),
        .rows = conv->desc.out_channels / conv->desc.group,
    };
    plan->kernel = conv->backend->kernel;
    plan->run = qk_conv_igemm_run;
    plan->state = state;
    if (plan->outputs[0].count == 0)
        return true;
    qk_conv_geometry_squeeze(&state->geometry, conv->backend->igemm->by_position ? 2 : 1);
    qk_slab_order_move(&state->order, &state->geometry);
    qk_conv_geometry_interleave(&state->geometry, &conv->desc);
    state->remainder = remainder_most(state);
    state->outer = qk_conv_outer_positions(&state->geometry);
    struct qk_igemm_step *steps = qk_conv_alloc(memory, state->order.steps, sizeof(*steps));
    if (!steps)
        return false;
    double cycles;
    fit(state, &cycles);
    qk_slab_steps(&state->order, &state->layout, steps);
    state->steps = steps;
    plan->workspace_bytes = state->workspace.bytes;
    /* This cannot overflow: there is at most one unit for each byte of output. */
    plan->unit_count = state->image_bands * conv->desc.group * state->outer * state->row_bands *
                       state->column_bands * state->m_parts;
    plan->unit_cost_ns =
        cycles < 1e15 ? (uint64_t)(cycles / conv->tuning->cycles_per_ns) + 1 : (uint64_t)1e15;
    return true;
}

const struct qk_conv_algorithm qk_conv_algorithm_igemm = {
    .prepare = qk_conv_prepare_igemm,
    .pack = qk_conv_pack_igemm,
    .plan = make_plan,
};
