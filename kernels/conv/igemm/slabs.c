#include "kernels/conv/igemm/slabs.h"

#include "kernels/sizes.h"
#include "kernels/wrap.h"

#include <string.h>

/* ---- The order of K ---------------------------------------------------------------------- */

/* Returns how many stride phases the taps of an axis form if taps share slabs. */
static double count_phases(const struct qk_conv_desc *desc, int axis)
{
    const int64_t cycle = qk_stride_cycle(desc->stride[axis], desc->dilation[axis]);
    return (double)(cycle < desc->kernel[axis] ? cycle : desc->kernel[axis]);
}

/* Returns true if quads of columns cost less than quads of channels, counted for one tap of the
 * outer axes. Both the products and the making of slabs count. A product of a whole step, or of a
 * quad that is partly zeros, takes as long as a full one. A slab is made once and serves all output
 * channels of the group. */
static bool prefer_columns(const struct qk_conv_desc *desc, const struct qk_conv_backend *backend,
                           const struct qk_conv_costs *costs, size_t column_slabs,
                           size_t channel_slabs)
{
    const size_t unit = backend->igemm->whole_steps ? QK_IGEMM_STEP_SLABS : 1;
    /* 1 to 4 rows cost the same, because most of the time goes into reading x. */
    const double rows = (double)qk_size_max(desc->out_channels / desc->group, 4);
    const double taps = (double)desc->kernel[QK_AXIS_ROW];
    const double products = rows * taps * costs->product_cycles;
    const double slabs = count_phases(desc, QK_AXIS_ROW) * costs->slab_cycles;
    const double columns =
        products * (double)qk_divide_up(column_slabs, unit) + slabs * (double)column_slabs;
    const double channels = products * (double)qk_divide_up(channel_slabs, unit) *
                                (double)desc->kernel[QK_AXIS_COLUMN] +
                            slabs * count_phases(desc, QK_AXIS_COLUMN) * (double)channel_slabs;
    return columns < channels;
}

struct qk_slab_order qk_slab_order_for(const struct qk_conv_desc *desc,
                                       const struct qk_conv_backend *backend,
                                       const struct qk_conv_costs *costs)
{
    const size_t quad_k = backend->igemm->quad_k;
    const size_t width = (size_t)desc->kernel[QK_AXIS_COLUMN];
    const size_t channel_slabs = qk_divide_up(desc->group_channels, quad_k);
    const size_t column_quads = qk_divide_up(width, quad_k);
    const size_t column_slabs = desc->group_channels * column_quads;
    struct qk_slab_order order = {
        .columns_in_quads =
            width > 1 && prefer_columns(desc, backend, costs, column_slabs, channel_slabs),
        .quad_k = quad_k,
        .column_quads = column_quads,
        .outer_taps = 1,
        .row_taps = (size_t)desc->kernel[QK_AXIS_ROW],
    };
    order.slabs = order.columns_in_quads ? column_slabs : channel_slabs;
    order.column_taps = order.columns_in_quads ? 1 : width;
    for (int i = 0; i < QK_AXIS_ROW; i++)
        order.outer_taps *= (size_t)desc->kernel[i];
    order.step_slabs = qk_size_min(order.slabs, QK_IGEMM_STEP_SLABS);
    order.k_blocks = qk_divide_up(order.slabs, order.step_slabs);
    order.steps = order.k_blocks * order.outer_taps * order.row_taps * order.column_taps;
    return order;
}

void qk_slab_order_move(struct qk_slab_order *order, const struct qk_conv_geometry *geometry)
{
    order->outer_taps = 1;
    for (int i = 0; i < QK_AXIS_ROW; i++)
        order->outer_taps *= (size_t)geometry->axis[i].kernel;
    order->row_taps = (size_t)geometry->axis[QK_AXIS_ROW].kernel;
    if (!order->columns_in_quads)
        order->column_taps = (size_t)geometry->axis[QK_AXIS_COLUMN].kernel;
}

void qk_slab_steps(const struct qk_slab_order *order, const struct qk_slab_layout *layout,
                   struct qk_igemm_step *steps)
{
    const struct qk_stride_phases *row = &layout->row;
    const struct qk_stride_phases *column = &layout->column;
    const size_t taps = order->row_taps * order->column_taps;
    for (size_t s = 0; s < order->steps; s++) {
        const size_t r = s % taps / order->column_taps;
        const size_t c = s % order->column_taps;
        const size_t set = s / layout->set_steps % layout->part_sets;
        const size_t phase =
            layout->fine ? 0 : r % row->phases * column->phases + c % column->phases;
        const size_t slab = set * layout->set_slabs + phase * order->step_slabs;
        const size_t quad =
            r / row->phases * row->shift * layout->pitch + c / column->phases * column->shift;
        steps[s] = (struct qk_igemm_step){
            .offset = (uint32_t)(slab * layout->slab_bytes + quad * QK_IGEMM_QUAD_BYTES),
            .slabs = (uint32_t)qk_slab_count(order, s / (order->outer_taps * taps)),
        };
    }
}

/* ---- Making them ------------------------------------------------------------------------- */

/* Returns by how many columns (or rows) of the window the last tap of a phase reads further on than
 * the phase's first tap. Phases with fewer taps have a smaller span. */
static size_t phase_span(const struct qk_stride_phases *axis, size_t taps, size_t first_tap)
{
    return first_tap < taps ? (taps - 1 - first_tap) / axis->phases * axis->shift : 0;
}

/* Returns the window of x that the taps of a phase read: that of its first tap, extended by the
 * columns and rows that only the other taps read. */
static struct qk_window phase_window(const struct qk_slab_job *job, size_t row_tap,
                                     size_t column_tap)
{
    const struct qk_conv_axis *row = &job->geometry->axis[QK_AXIS_ROW];
    const struct qk_conv_axis *column = &job->geometry->axis[QK_AXIS_COLUMN];
    struct qk_window window = {
        .in_rows = row->in,
        .in_columns = column->in,
        .row_first = qk_conv_input_index(row, job->row, row_tap),
        .column_first = qk_conv_input_index(column, job->column, column_tap),
        .row_stride = row->stride,
        .column_stride = column->stride,
        .rows = job->rows + phase_span(&job->layout->row, job->order->row_taps, row_tap),
        .columns =
            job->columns + phase_span(&job->layout->column, job->order->column_taps, column_tap),
        .pitch = job->layout->pitch,
    };
    qk_window_fit(&window);
    return window;
}

/* Returns the window of another channel, where channels are last. */
static struct qk_window channel_window(const struct qk_window *window, size_t channel)
{
    struct qk_window moved = *window;
    moved.column_first += (int64_t)channel;
    return moved;
}

/* Makes slabs from slab `first` on whose quads hold channels. `x` is the plane of channel 0, or
 * NULL if the tap reads nothing but padding. Channels beyond the group's last one meet weights of
 * 0, so any plane serves for them. Only the group's last slab has such channels, and it must be
 * made in a call of its own.
 *
 * If channels are last, all channels have the same plane, but windows that begin at other columns.
 * Slab kernels copy such quads of 4 channels as words of x. */
static void fill_channels(const struct qk_slab_job *job, const struct qk_window *window,
                          const uint8_t *x, size_t first, size_t slabs, uint8_t *quads)
{
    const size_t quad_k = job->order->quad_k;
    struct qk_slab_fill fill = {
        .x = job->all_x,
        .x_bytes = job->x_bytes,
        .slabs = slabs,
        .slab_bytes = job->layout->slab_bytes,
        .plane_step = x ? quad_k * job->geometry->channel_stride : 0,
        .flip = job->flip,
        .x_zero_point = job->x_zero_point,
        .quads = quads,
    };
    struct qk_window windows[4];
    for (size_t k = 0; k < quad_k; k++) {
        const size_t in_group = first * quad_k + k;
        const size_t channel = job->channel + (in_group < job->group_channels ? in_group : 0);
        windows[k] = job->channels_last ? channel_window(window, channel) : *window;
        fill.planes[k] = x && !job->channels_last ? x + channel * job->geometry->channel_size : x;
        fill.windows[k] = &windows[k];
    }
    job->backend->slabs->fill(&fill);
}

/* Makes the slabs of one K block whose quads hold channels: first, at once, the slabs that have all
 * their channels, then the last slab if it has fewer. */
static void make_of_channels(const struct qk_slab_job *job, const struct qk_window *window,
                             const uint8_t *x, size_t first, size_t slabs, uint8_t *quads)
{
    const size_t full = qk_size_min(job->group_channels / job->order->quad_k - first, slabs);
    if (full > 0)
        fill_channels(job, window, x, first, full, quads);
    if (full < slabs)
        fill_channels(job, window, x, first + full, slabs - full,
                      quads + full * job->layout->slab_bytes);
}

/* Makes slabs whose quads hold columns of taps: those of quad `i` of the K block, which counts the
 * quads of all channels, and of the same columns of the `slabs` - 1 channels after it. */
static void fill_columns(const struct qk_slab_job *job, size_t row_tap, const uint8_t *x, size_t i,
                         size_t slabs, uint8_t *quads)
{
    const struct qk_slab_order *order = job->order;
    const struct qk_conv_axis *column = &job->geometry->axis[QK_AXIS_COLUMN];
    const size_t width = (size_t)column->kernel;
    const size_t channel = job->channel + i / order->column_quads;
    const bool goes_on = column->dilation == 1 && qk_taps_may_share(column);
    struct qk_slab_fill fill = {
        .x = job->all_x,
        .x_bytes = job->x_bytes,
        .slabs = slabs,
        .slab_bytes = order->column_quads * job->layout->slab_bytes,
        .plane_step = x ? job->geometry->channel_stride : 0,
        .flip = job->flip,
        .x_zero_point = job->x_zero_point,
        .quads = quads,
    };
    struct qk_window windows[4];
    for (size_t k = 0; k < order->quad_k; k++) {
        const size_t tap = i % order->column_quads * order->quad_k + k;
        /* Columns beyond the kernel's last one meet weights of 0. If the next column of x can be
         * read, it is the cheapest to put there. */
        windows[k] = tap < width || goes_on ? phase_window(job, row_tap, tap) : windows[0];
        if (job->channels_last && (tap < width || goes_on))
            windows[k] = channel_window(&windows[k], channel);
        fill.planes[k] = x && !job->channels_last ? x + channel * job->geometry->channel_size : x;
        fill.windows[k] = &windows[k];
    }
    job->backend->slabs->fill(&fill);
}

/* Makes the slabs of one K block whose quads hold columns of taps. Slabs of the same columns are
 * `column_quads` apart, and are made at once. If channels are last, each is made by itself: slab
 * kernels may read up to the end of the plane in each slab, so the plane may not begin further on.
 */
static void make_of_columns(const struct qk_slab_job *job, size_t row_tap, const uint8_t *x,
                            size_t first, size_t slabs, uint8_t *quads)
{
    const size_t apart = job->order->column_quads;
    const size_t slab_bytes = job->layout->slab_bytes;
    if (job->channels_last)
        for (size_t n = 0; n < slabs; n++)
            fill_columns(job, row_tap, x, first + n, 1, quads + n * slab_bytes);
    else
        for (size_t n = 0; n < qk_size_min(apart, slabs); n++)
            fill_columns(job, row_tap, x, first + n, qk_divide_up(slabs - n, apart),
                         quads + n * slab_bytes);
}

/* Makes quads of channels that have one element each, as after a global pooling. The 4 bytes of
 * such a quad are neighbours in x already. */
QK_WRAPS static void make_of_elements(const struct qk_slab_job *job, const uint8_t *x, size_t first,
                                      size_t slabs, uint8_t *quads)
{
    const size_t quad_k = job->order->quad_k;
    const uint32_t flip = job->flip;
    const uint32_t zero_point = (uint32_t)job->x_zero_point + flip;
    for (size_t i = 0; i < slabs; i++, quads += job->layout->slab_bytes) {
        const size_t channel = (first + i) * quad_k;
        const size_t count = qk_size_min(job->group_channels - channel, quad_k);
        const uint8_t *from = x + job->channel + channel;
        for (size_t n = 0; n < job->images; n++, from += job->image_stride) {
            uint32_t quad = 0;
            if (count == 4) { /* most quads of bytes */
                memcpy(&quad, from, sizeof(quad));
                quad ^= flip * 0x01010101;
            } else
                for (size_t k = 0; k < count; k++)
                    quad |= quad_k == 4
                                ? (from[k] ^ flip) << 8 * k
                                : (uint32_t)(uint16_t)((from[k] ^ flip) - zero_point) << 16 * k;
            memcpy(quads + n * QK_IGEMM_QUAD_BYTES, &quad, sizeof(quad));
        }
    }
}

static void make_phase(const struct qk_slab_job *job, size_t k_block, size_t outer_tap,
                       size_t row_tap, size_t column_tap, uint8_t *quads)
{
    const struct qk_slab_order *order = job->order;
    const size_t first = k_block * order->step_slabs;
    const size_t slabs = qk_slab_count(order, k_block);
    size_t plane;
    const bool inside = qk_conv_find_plane(job->geometry, job->outer, outer_tap, &plane);
    const uint8_t *x = inside ? job->x + plane : NULL;
    struct qk_window window = phase_window(job, row_tap, column_tap);
    if (!order->columns_in_quads && qk_window_flatten(&window) && x &&
        job->geometry->channel_size == 1 && !job->channels_last) {
        make_of_elements(job, x, first, slabs, quads);
        return;
    }
    for (size_t n = 0; n < job->images; n++) {
        const uint8_t *image = x ? x + n * job->image_stride : NULL;
        uint8_t *to = quads + n * job->layout->image_pitch * QK_IGEMM_QUAD_BYTES;
        if (order->columns_in_quads)
            make_of_columns(job, row_tap, image, first, slabs, to);
        else
            make_of_channels(job, &window, image, first, slabs, to);
    }
}

void qk_slabs_make(const struct qk_slab_job *job, size_t begin, size_t end, uint8_t *quads)
{
    const struct qk_slab_order *order = job->order;
    const struct qk_slab_layout *layout = job->layout;
    const size_t taps = order->row_taps * order->column_taps;
    const size_t phase_bytes = order->step_slabs * layout->slab_bytes;
    for (size_t g = begin; g < end; g++, quads += layout->set_slabs * layout->slab_bytes) {
        if (layout->fine) {
            const size_t outer = g / taps;
            make_phase(job, outer / order->outer_taps, outer % order->outer_taps,
                       g % taps / order->column_taps, g % order->column_taps, quads);
            continue;
        }
        uint8_t *to = quads;
        for (size_t r = 0; r < layout->row.phases; r++)
            for (size_t c = 0; c < layout->column.phases; c++, to += phase_bytes)
                make_phase(job, g / order->outer_taps, g % order->outer_taps, r, c, to);
    }
}
