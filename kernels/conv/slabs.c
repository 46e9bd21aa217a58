#include "kernels/conv/slabs.h"

#include "kernels/conv/sizes.h"

/* ---- The order of K ---------------------------------------------------------------------- */

static int64_t greatest_divisor(int64_t a, int64_t b)
{
    while (b != 0) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Clusters of an axis whose slabs are shared. */
static double count_clusters(const struct qk_conv_desc *desc, int axis)
{
    const int64_t stride = desc->stride[axis];
    const int64_t cycle = stride / greatest_divisor(stride, desc->dilation[axis]);
    return (double)(cycle < desc->kernel[axis] ? cycle : desc->kernel[axis]);
}

/* Whether cells of columns cost less than those of channels: products, whole steps or cells with
 * zeros and all, and slabs, of which each serves all output channels of a group. For one tap of the
 * axes before the last two. */
static bool prefer_columns(const struct qk_conv_desc *desc, const struct qk_conv_backend *backend,
                           size_t column_slabs, size_t channel_slabs)
{
    const size_t unit = backend->gemm->whole_steps ? QK_IGEMM_STEP_SLABS : 1;
    const double rows = (double)(desc->out_channels / desc->group);
    const double taps = (double)desc->kernel[QK_AXIS_ROW];
    const double products = rows * taps * backend->cycles;
    const double slabs = count_clusters(desc, QK_AXIS_ROW) * backend->slab_cycles;
    const double columns =
        products * (double)qk_divide_up(column_slabs, unit) + slabs * (double)column_slabs;
    const double channels = products * (double)qk_divide_up(channel_slabs, unit) *
                                (double)desc->kernel[QK_AXIS_COLUMN] +
                            slabs * count_clusters(desc, QK_AXIS_COLUMN) * (double)channel_slabs;
    return columns < channels;
}

struct qk_slab_order qk_slab_order_for(const struct qk_conv_desc *desc,
                                       const struct qk_conv_backend *backend)
{
    const size_t cell_k = backend->gemm->cell_k;
    const size_t width = (size_t)desc->kernel[QK_AXIS_COLUMN];
    const size_t channel_slabs = qk_divide_up(desc->group_channels, cell_k);
    const size_t column_cells = qk_divide_up(width, cell_k);
    const size_t column_slabs = desc->group_channels * column_cells;
    struct qk_slab_order order = {
        .columns_in_cells = width > 1 && prefer_columns(desc, backend, column_slabs, channel_slabs),
        .cell_k = cell_k,
        .column_cells = column_cells,
        .outer_taps = 1,
        .row_taps = (size_t)desc->kernel[QK_AXIS_ROW],
    };
    order.slabs = order.columns_in_cells ? column_slabs : channel_slabs;
    order.column_taps = order.columns_in_cells ? 1 : width;
    for (int i = 0; i < QK_AXIS_ROW; i++)
        order.outer_taps *= (size_t)desc->kernel[i];
    order.step_slabs = qk_size_min(order.slabs, QK_IGEMM_STEP_SLABS);
    order.blocks = qk_divide_up(order.slabs, order.step_slabs);
    order.steps = order.blocks * order.outer_taps * order.row_taps * order.column_taps;
    return order;
}

void qk_slab_order_move(struct qk_slab_order *order, const struct qk_conv_geometry *geometry)
{
    order->outer_taps = 1;
    for (int i = 0; i < QK_AXIS_ROW; i++)
        order->outer_taps *= (size_t)geometry->axis[i].kernel;
    order->row_taps = (size_t)geometry->axis[QK_AXIS_ROW].kernel;
    if (!order->columns_in_cells)
        order->column_taps = (size_t)geometry->axis[QK_AXIS_COLUMN].kernel;
}

void qk_slab_steps(const struct qk_slab_order *order, const struct qk_slab_layout *layout,
                   struct qk_igemm_step *steps)
{
    const struct qk_slab_axis *row = &layout->row;
    const struct qk_slab_axis *column = &layout->column;
    const size_t taps = order->row_taps * order->column_taps;
    for (size_t s = 0; s < order->steps; s++) {
        const size_t r = s % taps / order->column_taps;
        const size_t c = s % order->column_taps;
        const size_t group = s / layout->group_steps % layout->part_groups;
        const size_t cluster =
            layout->fine ? 0 : r % row->clusters * column->clusters + c % column->clusters;
        const size_t slab = group * layout->group_slabs + cluster * order->step_slabs;
        const size_t cell =
            r / row->clusters * row->shift * layout->pitch + c / column->clusters * column->shift;
        steps[s] = (struct qk_igemm_step){
            .offset = (uint32_t)(slab * layout->slab_bytes + cell * QK_IGEMM_CELL_BYTES),
            .slabs = (uint32_t)qk_slab_count(order, s / (order->outer_taps * taps)),
        };
    }
}

/* ---- Axes -------------------------------------------------------------------------------- */

/* Axes and strides beyond this are not shifted along, so that no sum of them overflows. */
#define SHARED_MOST (INT64_C(1) << 20)

bool qk_slab_may_share(const struct qk_conv_axis *axis)
{
    return axis->in <= SHARED_MOST && axis->pad <= SHARED_MOST && axis->stride <= SHARED_MOST &&
           axis->dilation <= SHARED_MOST && axis->kernel <= SHARED_MOST &&
           axis->kernel * axis->dilation <= SHARED_MOST;
}

struct qk_slab_axis qk_slab_axis_for(const struct qk_conv_axis *axis, size_t taps, bool shared)
{
    const int64_t divisor = greatest_divisor(axis->stride, axis->dilation);
    const size_t cycle = (size_t)(axis->stride / divisor);
    if (!shared || taps <= cycle)
        return (struct qk_slab_axis){.clusters = taps};
    const size_t shift = (size_t)(axis->dilation / divisor);
    return (struct qk_slab_axis){cycle, shift, (taps - 1) / cycle * shift};
}

/* ---- Making them ------------------------------------------------------------------------- */

/* Whether the window is one run of bytes in x. */
static bool lies_in_x(const struct qk_stage *window)
{
    return window->column_stride == 1 && window->inside_columns.begin == 0 &&
           window->inside_columns.end == window->columns && window->inside_rows.begin == 0 &&
           window->inside_rows.end == window->rows &&
           (window->rows == 1 ||
            (window->row_stride == 1 && (int64_t)window->pitch == window->in_columns));
}

/* Where the window of a plane is as bytes: in x, or copied to `stage`. */
static const uint8_t *source(const struct qk_slab_job *job, const struct qk_stage *window,
                             const uint8_t *plane, uint8_t *stage)
{
    if (plane && lies_in_x(window))
        return plane + window->row_first * window->in_columns + window->column_first;
    job->backend->vector->stage(window, plane, stage);
    return stage;
}

/* The rows and columns of one cluster, as its first tap sees them. */
static struct qk_stage cluster_window(const struct qk_slab_job *job, size_t row_tap,
                                      size_t column_tap)
{
    const struct qk_conv_axis *row = &job->geometry->axis[QK_AXIS_ROW];
    const struct qk_conv_axis *column = &job->geometry->axis[QK_AXIS_COLUMN];
    struct qk_stage window = {
        .in_rows = row->in,
        .in_columns = column->in,
        .row_first = qk_conv_look(row, job->row, row_tap),
        .column_first = qk_conv_look(column, job->column, column_tap),
        .row_stride = row->stride,
        .column_stride = column->stride,
        .rows = job->rows + job->layout->row.span,
        .columns = job->columns + job->layout->column.span,
        .pitch = job->layout->pitch,
        .fill = (uint8_t)job->x_zero_point,
    };
    qk_stage_fit(&window);
    return window;
}

static void interleave(const struct qk_slab_job *job, const struct qk_stage *window,
                       const uint8_t *const from[], uint8_t *cells)
{
    job->backend->vector->interleave(&(struct qk_interleave){
        .from = {from[0], from[1], from[2], from[3]},
        .count = (window->rows - 1) * window->pitch + window->columns,
        .x_type = job->x_type,
        .x_zero_point = job->x_zero_point,
        .cells = cells,
    });
}

/* The slabs of a block whose cells hold channels. `x`: the plane of the first channel; NULL: it is
 * padding. */
static void make_of_channels(const struct qk_slab_job *job, const struct qk_stage *window,
                             const uint8_t *x, size_t first, size_t slabs, uint8_t *cells)
{
    const size_t cell_k = job->order->cell_k;
    for (size_t i = 0; i < slabs; i++, cells += job->layout->slab_bytes) {
        const uint8_t *from[4] = {NULL};
        for (size_t k = 0; k < cell_k; k++) {
            const size_t channel = (first + i) * cell_k + k;
            const uint8_t *plane = x ? x + channel * job->geometry->channel_size : NULL;
            /* What is not there meets weights of 0. */
            from[k] = channel < job->group_channels
                          ? source(job, window, plane, job->stage + k * job->stage_bytes)
                          : from[0];
        }
        interleave(job, window, from, cells);
    }
}

/* The same where they hold columns of taps. */
static void make_of_columns(const struct qk_slab_job *job, size_t row_tap, const uint8_t *x,
                            size_t first, size_t slabs, uint8_t *cells)
{
    const struct qk_slab_order *order = job->order;
    const size_t width = (size_t)job->geometry->axis[QK_AXIS_COLUMN].kernel;
    for (size_t i = first; i < first + slabs; i++, cells += job->layout->slab_bytes) {
        const uint8_t *from[4] = {NULL};
        const uint8_t *plane = x ? x + i / order->column_cells * job->geometry->channel_size : NULL;
        struct qk_stage window;
        for (size_t k = 0; k < order->cell_k; k++) {
            const size_t tap = i % order->column_cells * order->cell_k + k;
            if (tap < width)
                window = cluster_window(job, row_tap, tap);
            from[k] = tap < width ? source(job, &window, plane, job->stage + k * job->stage_bytes)
                                  : from[0];
        }
        interleave(job, &window, from, cells);
    }
}

static void make_cluster(const struct qk_slab_job *job, size_t block, size_t outer_tap,
                         size_t row_tap, size_t column_tap, uint8_t *cells)
{
    const struct qk_slab_order *order = job->order;
    const size_t first = block * order->step_slabs;
    const size_t slabs = qk_slab_count(order, block);
    size_t plane;
    const bool inside = qk_conv_find_plane(job->geometry, job->outer, outer_tap, &plane);
    const uint8_t *x = inside ? job->x + plane : NULL;
    if (order->columns_in_cells) {
        make_of_columns(job, row_tap, x, first, slabs, cells);
        return;
    }
    const struct qk_stage window = cluster_window(job, row_tap, column_tap);
    make_of_channels(job, &window, x, first, slabs, cells);
}

void qk_slabs_make(const struct qk_slab_job *job, size_t begin, size_t end, uint8_t *cells)
{
    const struct qk_slab_order *order = job->order;
    const struct qk_slab_layout *layout = job->layout;
    const size_t taps = order->row_taps * order->column_taps;
    const size_t cluster_bytes = order->step_slabs * layout->slab_bytes;
    for (size_t g = begin; g < end; g++, cells += layout->group_slabs * layout->slab_bytes) {
        if (layout->fine) {
            const size_t outer = g / taps;
            make_cluster(job, outer / order->outer_taps, outer % order->outer_taps,
                         g % taps / order->column_taps, g % order->column_taps, cells);
            continue;
        }
        uint8_t *to = cells;
        for (size_t r = 0; r < layout->row.clusters; r++)
            for (size_t c = 0; c < layout->column.clusters; c++, to += cluster_bytes)
                make_cluster(job, g / order->outer_taps, g % order->outer_taps, r, c, to);
    }
}
