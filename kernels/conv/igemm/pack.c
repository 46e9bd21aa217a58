/* Packs weights into the panels that the backend's kernel reads (kernels/gemm/igemm.h). */
#include <string.h>

#include "kernels/conv/algorithm.h"
#include "kernels/conv/channels.h"
#include "kernels/conv/igemm/pack.h"

#include "kernels/sizes.h"
#include "kernels/wrap.h"

/* Rough guesses: the cycles that packing a weight takes, quad by quad or transposed, and the cycles
 * that a panel takes besides. */
#define QUAD_WEIGHT_CYCLES 3.2
#define TRANSPOSED_WEIGHT_CYCLES 0.25
#define PANEL_CYCLES 400.0

/* How weights are changed while they are packed: to signed bytes, or to words that are the weight
 * less its zero point. */
struct recode {
    bool words;
    uint8_t flip;               /* xored with each byte, to make it signed, or unsigned for words */
    const int32_t *zero_points; /* for words: the flipped zero point of each row */
};

/* Packs one quad of all rows of a panel. The rows are `row_bytes` apart in w. */
QK_WRAPS static inline void pack_quad(const struct qk_igemm *igemm, struct recode recode,
                                      const uint8_t *from, size_t rows, size_t row_bytes,
                                      struct qk_slab_terms terms, uint8_t *quad)
{
    for (size_t row = 0; row < rows; row++, from += row_bytes, quad += igemm->row_stride) {
        uint32_t value = 0;
        for (size_t k = 0; k < terms.count; k++) {
            const uint32_t byte = from[k * terms.stride] ^ recode.flip;
            value |= recode.words
                         ? (uint32_t)(uint16_t)(byte - (uint32_t)recode.zero_points[row]) << 16 * k
                         : byte << 8 * k;
        }
        memcpy(quad, &value, sizeof(value));
    }
}

/* Packs rows of weights, quad by quad. The panel must hold zeros. */
static void pack_rows(const struct qk_conv *conv, const struct qk_slab_order *order,
                      const uint8_t *w, size_t rows, struct recode recode, uint8_t *panel)
{
    const struct qk_igemm *igemm = conv->backend->igemm;
    const size_t taps = order->outer_taps * order->row_taps * order->column_taps;
    for (size_t k_block = 0; k_block < order->k_blocks; k_block++)
        for (size_t tap = 0; tap < taps; tap++, panel += conv->igemm.step_bytes)
            for (size_t i = 0; i < qk_slab_count(order, k_block); i++) {
                const struct qk_slab_terms terms =
                    qk_slab_terms(order, &conv->desc, k_block, tap, i);
                uint8_t *quad = panel + qk_igemm_weight_at(igemm, 0, i);
                if (recode.words &&
                    terms.count == 2) /* most quads of words; constants make this fast */
                    pack_quad(igemm, (struct recode){true, recode.flip, recode.zero_points},
                              w + terms.first, rows, conv->depth,
                              (struct qk_slab_terms){0, terms.stride, 2}, quad);
                else if (!recode.words && terms.stride == 1 && terms.count == 4)
                    pack_quad(igemm, (struct recode){false, recode.flip, NULL}, w + terms.first,
                              rows, conv->depth, (struct qk_slab_terms){0, 1, 4}, quad);
                else if (!recode.words && terms.count == 4)
                    pack_quad(igemm, (struct recode){false, recode.flip, NULL}, w + terms.first,
                              rows, conv->depth, (struct qk_slab_terms){0, terms.stride, 4}, quad);
                else
                    pack_quad(igemm, recode, w + terms.first, rows, conv->depth, terms, quad);
            }
}

/* Packs like pack_rows, but faster, and only bytes whose quads hold channels. Weights are
 * transposed into the panel, and each row of w is read once, from its beginning to its end. */
static void pack_transposed(const struct qk_conv *conv, const struct qk_slab_order *order,
                            struct qk_transpose job, uint8_t *panel)
{
    const size_t channels = conv->desc.group_channels;
    job.to = panel;
    job.to_tap_stride = conv->igemm.step_bytes;
    job.channels = order->step_slabs * order->quad_k;
    job.k_blocks = channels / job.channels;
    conv->backend->slabs->transpose(&job);
    job.from += job.k_blocks * job.channels * job.taps;
    job.to += job.k_blocks * job.taps * job.to_tap_stride;
    job.channels = channels % job.channels;
    job.k_blocks = 1;
    if (job.channels > 0)
        conv->backend->slabs->transpose(&job);
}

/* Returns true if weights can be packed by transposing: they are packed as bytes, quads hold
 * channels, and there are not too many taps. */
static bool may_transpose(const struct qk_conv *conv, const struct qk_slab_order *order)
{
    return conv->backend->slabs->transpose && !order->columns_in_quads &&
           conv->depth / conv->desc.group_channels <= QK_TRANSPOSE_TAPS;
}

/* Packs one panel: the weights of `rows` output channels from `channel` on. Sets `sums` to sum(w -
 * w_zp) of each of these channels, or to 0 if weights are packed as words. */
QK_WRAPS static void pack_panel(const struct qk_conv *conv, const struct qk_slab_order *order,
                                size_t channel, size_t rows, uint8_t *panel, int32_t *sums)
{
    const struct qk_igemm *igemm = conv->backend->igemm;
    const uint8_t *w = conv->constants.w + channel * conv->depth;
    const bool is_signed = conv->constants.w_type == QK_INT8;
    if (may_transpose(conv, order)) {
        const int32_t centre = is_signed ? 0 : 128;
        const struct qk_transpose job = {
            .from = w,
            .rows = rows,
            .from_row_stride = conv->depth,
            .taps = conv->depth / conv->desc.group_channels,
            .flip = (uint8_t)centre,
            .to_row_stride = igemm->row_stride,
            .to_quad_stride = igemm->quad_stride,
            .quads = igemm->quad_stride == QK_IGEMM_QUAD_BYTES
                         ? QK_IGEMM_STEP_SLABS
                         : order->step_slabs + (igemm->pairs ? order->step_slabs % 2 : 0),
            .pairs = igemm->pairs,
            .sums = sums,
        };
        memset(sums, 0, rows * sizeof(*sums));
        pack_transposed(conv, order, job, panel);
        for (size_t row = 0; row < rows; row++)
            sums[row] = (int32_t)((uint32_t)sums[row] -
                                  (uint32_t)conv->depth *
                                      (uint32_t)(qk_w_zero_point(conv, channel + row) - centre));
        return;
    }
    const bool words = igemm->quad_k == 2;
    const int32_t flipped = words == is_signed ? 128 : 0;
    int32_t zero_points[QK_IGEMM_MR_MAX];
    for (size_t row = 0; row < rows; row++) {
        zero_points[row] = qk_w_zero_point(conv, channel + row) + flipped;
        /* Words of x hold x - x_zp, so no correction by the sum of weights is needed. */
        sums[row] = words ? 0 : qk_conv_weight_sum(conv, channel + row);
    }
    memset(panel, 0, conv->igemm.panel_bytes);
    pack_rows(conv, order, w, rows, (struct recode){words, flipped ? 0x80 : 0, zero_points}, panel);
}

/* Calls `mark_wide` for each step of a packed panel, if the kernel has it. */
static void mark_wide_slabs(const struct qk_conv *conv, const struct qk_slab_order *order,
                            size_t rows, uint8_t *panel)
{
    const struct qk_igemm *igemm = conv->backend->igemm;
    const size_t taps = order->outer_taps * order->row_taps * order->column_taps;
    const size_t step_bytes = conv->igemm.step_bytes;
    uint8_t *first = panel + order->steps * step_bytes;
    uint8_t *second = first + qk_igemm_wide_bytes(igemm, order->steps);
    struct qk_igemm_wide wide = {0};
    for (size_t s = 0; igemm->mark_wide && s < order->steps; s++) {
        const size_t bytes =
            igemm->mark_wide(panel + s * step_bytes, qk_slab_count(order, s / taps), rows,
                             second + wide.offset, &wide.marks);
        memcpy(first + s * sizeof(wide), &wide, sizeof(wide));
        wide.offset += (uint32_t)bytes;
    }
}

/* Sets *bytes to the size of the second array of wide weights that any panel needs: all panels have
 * the same size. Returns false if it is too large for struct qk_igemm_wide. */
static bool count_wide(const struct qk_conv *conv, const struct qk_slab_order *order, size_t *bytes)
{
    const struct qk_igemm *igemm = conv->backend->igemm;
    const size_t all = order->steps * conv->igemm.step_bytes;
    const size_t rows = conv->desc.out_channels / conv->desc.group;
    const uint8_t flip = conv->constants.w_type == QK_UINT8 ? 0x80 : 0;
    /* If quads hold columns, a row of columns is counted as the channels of one tap. */
    const size_t width = (size_t)conv->desc.kernel[QK_AXIS_COLUMN];
    const size_t channels = order->columns_in_quads ? width : conv->desc.group_channels;
    const size_t taps = order->columns_in_quads ? 1 : conv->depth / channels;
    *bytes = 0;
    for (size_t first = 0; igemm->mark_wide && first < conv->desc.out_channels;) {
        const size_t left = rows - first % rows;
        const size_t count = qk_size_min(left, igemm->mr);
        size_t found = 0;
        for (size_t at = first * conv->depth; at < (first + count) * conv->depth;
             at += channels * taps)
            found += igemm->count_wide(conv->constants.w + at, channels, taps, flip);
        *bytes = qk_size_max(*bytes, qk_size_min(found * igemm->wide_bytes, all));
        first += count;
    }
    *bytes = qk_divide_up(*bytes, 64) * 64;
    return *bytes <= UINT32_MAX;
}

/* Returns true if any of `rows` rows has a wide pair in this quad. `w` points at the first row. */
static bool is_wide_slab(const struct qk_conv *conv, const uint8_t *w, size_t rows,
                         struct qk_slab_terms terms)
{
    const int32_t centre = conv->constants.w_type == QK_INT8 ? 0 : 128;
    bool wide = false;
    for (size_t row = 0; row < rows && !wide; row++) {
        int32_t quad[QK_IGEMM_QUAD_BYTES] = {0};
        for (size_t k = 0; k < terms.count; k++) {
            const uint8_t byte = w[row * conv->depth + terms.first + k * terms.stride];
            quad[k] = centre == 0 ? (int8_t)byte : byte - centre;
        }
        wide = qk_igemm_excess(quad[0], quad[1]) != 0 || qk_igemm_excess(quad[2], quad[3]) != 0;
    }
    return wide;
}

double qk_conv_wide_share(const struct qk_conv *conv, const struct qk_conv_backend *backend)
{
    enum { SAMPLES = 64 }; /* the share is right within about 0.06, and takes a few microseconds */
    const struct qk_slab_order order = qk_slab_order_for(&conv->desc, backend, conv->costs);
    const size_t taps = order.outer_taps * order.row_taps * order.column_taps;
    const size_t wide_rows = backend->igemm->wide_rows;
    const size_t group_rows = conv->desc.out_channels / conv->desc.group;
    const size_t parts = qk_divide_up(group_rows, wide_rows);
    size_t wide = 0;
    for (size_t i = 0; i < SAMPLES; i++) {
        /* Strides that are prime numbers spread the samples over rows, taps and slabs. */
        const size_t first = i * 7 % parts * wide_rows;
        const size_t step = i * 13 % order.steps;
        const size_t k_block = step / taps;
        const size_t slab = i * 5 % qk_slab_count(&order, k_block);
        const size_t row = first + i * 3 % conv->desc.group * group_rows;
        wide += is_wide_slab(conv, conv->constants.w + row * conv->depth,
                             qk_size_min(group_rows - first, wide_rows),
                             qk_slab_terms(&order, &conv->desc, k_block, step % taps, slab));
    }
    return (double)wide / SAMPLES;
}

/* Packs a panel whose first row has a 1 for each term, so that its products are the sums of x's
 * columns. Weights of missing terms stay 0. */
static void pack_ones(const struct qk_conv *conv, const struct qk_slab_order *order, uint8_t *panel)
{
    const size_t taps = order->outer_taps * order->row_taps * order->column_taps;
    memset(panel, 0, conv->igemm.panel_bytes);
    for (size_t s = 0; s < order->steps; s++, panel += conv->igemm.step_bytes)
        for (size_t i = 0; i < qk_slab_count(order, s / taps); i++)
            memset(panel + qk_igemm_weight_at(conv->backend->igemm, 0, i), 1,
                   qk_slab_terms(order, &conv->desc, s / taps, s % taps, i).count);
}

/* Returns how much smaller zero points become when weights are packed as signed bytes. */
static int32_t zero_point_centre(const struct qk_conv *conv)
{
    return conv->constants.w_type == QK_UINT8 ? 128 : 0;
}

/* Returns true if sums of x's columns are needed: any zero point of the packed weights is not 0,
 * and the weights are not packed as words, which are stored less their zero points. */
static bool needs_ones(const struct qk_conv *conv)
{
    bool any = false;
    for (size_t i = 0; i < conv->constants.w_zero_point_count; i++)
        any = any || qk_w_zero_point(conv, i) != zero_point_centre(conv);
    return any && conv->backend->igemm->quad_k != 2;
}

static double guess_panel_cycles(const struct qk_conv *conv, const struct qk_slab_order *order,
                                 size_t rows)
{
    const struct qk_igemm *igemm = conv->backend->igemm;
    const double weights = (double)qk_size_min(rows, igemm->mr) * (double)conv->depth;
    if (!may_transpose(conv, order))
        return PANEL_CYCLES + QUAD_WEIGHT_CYCLES * weights;
    return PANEL_CYCLES + TRANSPOSED_WEIGHT_CYCLES * weights;
}

bool qk_conv_prepare_igemm(struct qk_conv *conv, struct qk_memory memory, double *item_cycles)
{
    const struct qk_igemm *igemm = conv->backend->igemm;
    const struct qk_slab_order order = qk_slab_order_for(&conv->desc, conv->backend, conv->costs);
    const size_t rows = conv->desc.out_channels / conv->desc.group;
    struct qk_conv_igemm *packed = &conv->igemm;
    packed->panel_count = (rows - 1) / igemm->mr + 1;
    packed->step_bytes = qk_igemm_step_bytes(igemm, order.step_slabs, rows);
    size_t bytes, wide;
    /* What qk_igemm_wide_bytes returns cannot overflow if the steps do not, because a step is
     * larger than struct qk_igemm_wide. */
    if (!qk_mul_size(packed->step_bytes, order.steps, &packed->panel_bytes) ||
        !count_wide(conv, &order, &wide) ||
        __builtin_add_overflow(packed->panel_bytes, qk_igemm_wide_bytes(igemm, order.steps) + wide,
                               &packed->panel_bytes) ||
        !qk_mul_size(packed->panel_bytes, packed->panel_count * conv->desc.group, &bytes) ||
        __builtin_add_overflow(bytes, QK_IGEMM_SLACK, &bytes))
        return false;
    packed->weights = qk_conv_alloc(memory, bytes, 1);
    conv->packing.items = packed->panel_count * conv->desc.group;
    *item_cycles = guess_panel_cycles(conv, &order, rows);
    if (!needs_ones(conv))
        return packed->weights;
    packed->ones = qk_conv_alloc(memory, packed->panel_bytes + QK_IGEMM_SLACK, 1);
    packed->w_zero_point =
        qk_conv_alloc(memory, conv->desc.out_channels, sizeof(*packed->w_zero_point));
    return packed->weights && packed->ones && packed->w_zero_point;
}

int32_t qk_conv_igemm_x_offset(const struct qk_conv *conv, int32_t x_zero_point)
{
    const struct qk_igemm *igemm = conv->backend->igemm;
    return igemm->quad_k == 2 ? 0 : qk_conv_x_offset(conv->x_type, x_zero_point, igemm->x_signed);
}

void qk_conv_pack_igemm(const struct qk_conv *conv, size_t begin, size_t end)
{
    const struct qk_conv_igemm *packed = &conv->igemm;
    const struct qk_slab_order order = qk_slab_order_for(&conv->desc, conv->backend, conv->costs);
    const size_t rows = conv->desc.out_channels / conv->desc.group;
    const struct qk_igemm *igemm = conv->backend->igemm;
    const size_t mr = igemm->mr;
    const int32_t x_offset = qk_conv_igemm_x_offset(conv, conv->x_zero_point);
    if (packed->ones && begin == 0)            /* the unit of the first panel packs this */
        pack_ones(conv, &order, packed->ones); /* weights of 1 are never wide */
    for (size_t i = begin; i < end; i++) {
        const size_t row = i % packed->panel_count * mr;
        const size_t first = i / packed->panel_count * rows + row;
        const size_t last = first + qk_size_min(rows - row, mr);
        uint8_t *panel = packed->weights + i * packed->panel_bytes;
        pack_panel(conv, &order, first, last - first, panel, conv->bias + first);
        mark_wide_slabs(conv, &order, last - first, panel);
        for (size_t m = first; packed->w_zero_point && m < last; m++)
            packed->w_zero_point[m] = qk_w_zero_point(conv, m) - zero_point_centre(conv);
        qk_conv_pack_channels(conv, x_offset, first, last);
    }
}
