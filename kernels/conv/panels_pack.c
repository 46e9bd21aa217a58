#include <string.h>

#include "kernels/conv/pack.h"

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

/* The weights of one output channel, to its row of a panel. */
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
                         struct qk_memory memory)
{
    const struct qk_igemm *gemm = conv->backend->gemm;
    const struct qk_slab_order order =
        qk_slab_order_for(&conv->desc, gemm->cell_k, gemm->whole_steps);
    const size_t rows = conv->desc.out_channels / conv->desc.group;
    struct qk_conv_panels *panels = &conv->panels;
    const uint8_t *w = constants->w->data;
    *panels = (struct qk_conv_panels){.count = (rows - 1) / gemm->mr + 1};
    panels->step_bytes = qk_igemm_step_bytes(gemm, order.step_slabs);
    size_t bytes;
    if (!qk_mul_size(panels->step_bytes, order.steps, &panels->bytes) ||
        !qk_mul_size(panels->bytes, panels->count * conv->desc.group, &bytes))
        return false;
    uint8_t *weights = qk_conv_alloc(memory, bytes, 1);
    if (!weights)
        return false;
    memset(weights, 0, bytes);
    for (size_t m = 0; m < conv->desc.out_channels; m++) {
        const size_t row = m % rows;
        const struct recode recode = {gemm->cell_k == 2, constants->w->type == QK_INT8,
                                      qk_w_zero_point(constants, m)};
        uint8_t *panel = weights + (m / rows * panels->count + row / gemm->mr) * panels->bytes;
        pack_row(conv, &order, w + m * conv->depth, recode,
                 panel + row % gemm->mr * gemm->row_stride);
    }
    panels->weights = weights;
    return gemm->cell_k == 2 || pack_zero_points(conv, constants, &order, memory);
}
