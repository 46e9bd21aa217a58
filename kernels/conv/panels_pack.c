#include <string.h>

#include "kernels/conv/pack.h"

/* One row of transposed weights, and the most rows of a panel that are not transposed in place. */
enum { TRANSPOSED_BYTES = 64, TRANSPOSED_ROWS = 8 };

static size_t size_min(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* How a weight is stored: bytes as s8, or words less the zero point. */
struct recode {
    bool words;
    bool is_signed;
    int32_t zero_point; /* of words */
};

static inline void store_weight(struct recode recode, uint8_t byte, size_t k, uint8_t *cell)
{
    if (!recode.words) {
        cell[k] = recode.is_signed ? byte : byte ^ 0x80;
        return;
    }
    const int16_t word =
        (int16_t)((recode.is_signed ? (int8_t)byte : (int32_t)byte) - recode.zero_point);
    memcpy(cell + k * sizeof(word), &word, sizeof(word));
}

/* The weights of one output channel, to its row of a panel of zeros. */
static void pack_row(const struct qk_conv *conv, const struct qk_slab_order *order,
                     const uint8_t *w, struct recode recode, uint8_t *row)
{
    const size_t taps = order->outer_taps * order->row_taps * order->column_taps;
    const size_t cell_stride = conv->backend->gemm->cell_stride;
    for (size_t s = 0; s < order->steps; s++, row += conv->panels.step_bytes) {
        const size_t slabs = qk_slab_count(order, s / taps);
        for (size_t i = 0; i < slabs; i++) {
            const struct qk_slab_terms terms =
                qk_slab_terms(order, &conv->desc, s / taps, s % taps, i);
            for (size_t k = 0; k < terms.count; k++)
                store_weight(recode, w[terms.first + k * terms.stride], k, row + i * cell_stride);
        }
    }
}

/* Rows of transposed weights, 64 bytes each, to the cells of one step. */
static void place_step(const struct qk_igemm *gemm, const uint8_t *from, size_t rows, size_t slabs,
                       uint8_t *step)
{
    for (size_t i = 0; i < slabs; i++)
        for (size_t row = 0; row < rows; row++)
            memcpy(step + i * gemm->cell_stride + row * gemm->row_stride,
                   from + row * TRANSPOSED_BYTES + i * QK_IGEMM_CELL_BYTES, QK_IGEMM_CELL_BYTES);
}

/* The same as pack_row for all rows of a panel, faster. */
static void pack_transposed(const struct qk_conv *conv, const struct qk_slab_order *order,
                            const uint8_t *w, size_t rows, uint8_t flip, uint8_t *panel,
                            int32_t *sums)
{
    const struct qk_igemm *gemm = conv->backend->gemm;
    const size_t taps = conv->depth / conv->desc.group_channels;
    const size_t channels = order->step_slabs * order->cell_k;
    const bool direct = gemm->row_stride == TRANSPOSED_BYTES;
    uint8_t scratch[QK_TRANSPOSE_TAPS * TRANSPOSED_ROWS * TRANSPOSED_BYTES];
    struct qk_transpose job = {
        .rows = rows,
        .from_row_stride = conv->depth,
        .taps = taps,
        .flip = flip,
        .to = scratch,
        .sums = sums,
        .to_row_stride = TRANSPOSED_BYTES,
        .to_tap_stride = direct ? conv->panels.step_bytes : rows * TRANSPOSED_BYTES,
    };
    for (size_t block = 0; block < order->blocks; block++) {
        const size_t first = block * channels;
        job.from = w + first * taps;
        job.channels = size_min(conv->desc.group_channels - first, channels);
        if (direct)
            job.to = panel;
        conv->backend->vector->transpose(&job);
        for (size_t tap = 0; tap < taps; tap++, panel += conv->panels.step_bytes)
            if (!direct)
                place_step(gemm, scratch + tap * job.to_tap_stride, rows,
                           qk_slab_count(order, block), panel);
    }
}

static bool may_transpose(const struct qk_conv *conv, const struct qk_slab_order *order)
{
    const struct qk_igemm *gemm = conv->backend->gemm;
    return conv->backend->vector->transpose && !order->columns_in_cells &&
           conv->depth / conv->desc.group_channels <= QK_TRANSPOSE_TAPS &&
           (gemm->row_stride == TRANSPOSED_BYTES || gemm->mr <= TRANSPOSED_ROWS);
}

static void pack_panel(const struct qk_conv *conv, const struct qk_conv_constants *constants,
                       const struct qk_slab_order *order, size_t channel, size_t rows,
                       uint8_t *panel, int32_t *sums)
{
    const struct qk_igemm *gemm = conv->backend->gemm;
    const uint8_t *w = (const uint8_t *)constants->w->data + channel * conv->depth;
    const bool is_signed = constants->w->type == QK_INT8;
    if (may_transpose(conv, order)) {
        const int32_t centre = is_signed ? 0 : 128;
        memset(sums, 0, rows * sizeof(*sums));
        pack_transposed(conv, order, w, rows, (uint8_t)centre, panel, sums);
        for (size_t row = 0; row < rows; row++)
            sums[row] =
                (int32_t)((uint32_t)sums[row] -
                          (uint32_t)conv->depth *
                              (uint32_t)(qk_w_zero_point(constants, channel + row) - centre));
        return;
    }
    memset(panel, 0, conv->panels.bytes);
    for (size_t row = 0; row < rows; row++) {
        sums[row] = qk_conv_weight_sum(conv, constants, channel + row);
        pack_row(conv, order, w + row * conv->depth,
                 (struct recode){gemm->cell_k == 2, is_signed,
                                 qk_w_zero_point(constants, channel + row)},
                 panel + row * gemm->row_stride);
    }
}

/* A panel whose first row multiplies with 1: its sums are those of x's columns. Terms that are not
 * there stay 0. */
static void pack_ones(const struct qk_conv *conv, const struct qk_slab_order *order, uint8_t *panel)
{
    const size_t taps = order->outer_taps * order->row_taps * order->column_taps;
    for (size_t s = 0; s < order->steps; s++, panel += conv->panels.step_bytes)
        for (size_t i = 0; i < qk_slab_count(order, s / taps); i++)
            memset(panel + i * conv->backend->gemm->cell_stride, 1,
                   qk_slab_terms(order, &conv->desc, s / taps, s % taps, i).count);
}

/* The zero points of weights that are stored as s8; false: all are 0. */
static bool store_zero_points(const struct qk_conv *conv, const struct qk_conv_constants *constants,
                              int32_t *zero_points)
{
    const int32_t centre = constants->w->type == QK_UINT8 ? 128 : 0;
    bool any = false;
    for (size_t m = 0; m < conv->desc.out_channels; m++) {
        zero_points[m] = qk_w_zero_point(constants, m) - centre;
        any = any || zero_points[m] != 0;
    }
    return any;
}

static bool pack_zero_points(struct qk_conv *conv, const struct qk_conv_constants *constants,
                             const struct qk_slab_order *order, struct qk_memory memory)
{
    int32_t *zero_points = qk_conv_alloc(memory, conv->desc.out_channels, sizeof(*zero_points));
    if (!zero_points)
        return false;
    if (!store_zero_points(conv, constants, zero_points))
        return true;
    uint8_t *ones = qk_conv_alloc(memory, conv->panels.bytes, 1);
    if (!ones)
        return false;
    memset(ones, 0, conv->panels.bytes);
    pack_ones(conv, order, ones);
    conv->panels.w_zero_point = zero_points;
    conv->panels.ones = ones;
    return true;
}

bool qk_conv_pack_panels(struct qk_conv *conv, const struct qk_conv_constants *constants,
                         struct qk_memory memory, int32_t *sums)
{
    const struct qk_igemm *gemm = conv->backend->gemm;
    const struct qk_slab_order order =
        qk_slab_order_for(&conv->desc, gemm->cell_k, gemm->whole_steps);
    const size_t rows = conv->desc.out_channels / conv->desc.group;
    struct qk_conv_panels *panels = &conv->panels;
    *panels = (struct qk_conv_panels){.count = (rows - 1) / gemm->mr + 1};
    panels->step_bytes = qk_igemm_step_bytes(gemm, order.step_slabs);
    size_t bytes;
    if (!qk_mul_size(panels->step_bytes, order.steps, &panels->bytes) ||
        !qk_mul_size(panels->bytes, panels->count * conv->desc.group, &bytes))
        return false;
    uint8_t *weights = qk_conv_alloc(memory, bytes, 1);
    if (!weights)
        return false;
    uint8_t *panel = weights;
    for (size_t group = 0; group < conv->desc.group; group++)
        for (size_t row = 0; row < rows; row += gemm->mr, panel += panels->bytes)
            pack_panel(conv, constants, &order, group * rows + row, size_min(rows - row, gemm->mr),
                       panel, sums + group * rows + row);
    panels->weights = weights;
    return gemm->cell_k == 2 || pack_zero_points(conv, constants, &order, memory);
}
