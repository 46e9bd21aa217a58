#include <string.h>

#include "kernels/conv/method.h"

#include "kernels/conv/sizes.h"

/* One row of transposed weights, and the most rows of a panel that are not transposed in place. */
enum { TRANSPOSED_BYTES = 64, TRANSPOSED_ROWS = 8 };

/* Of any backend. */
enum { PANEL_ROWS = 32 };

/* How weights are stored, which are bytes, or words. */
struct recode {
    bool words;
    uint8_t flip;               /* makes bytes signed, and words unsigned */
    const int32_t *zero_points; /* of words, flipped alike: one for each row */
};

/* The terms of one cell in all rows, `row_bytes` apart. */
static inline void pack_cell(const struct qk_igemm *gemm, struct recode recode, const uint8_t *from,
                             size_t rows, size_t row_bytes, struct qk_slab_terms terms,
                             uint8_t *cell)
{
    for (size_t row = 0; row < rows; row++, from += row_bytes, cell += gemm->row_stride) {
        uint32_t value = 0;
        for (size_t k = 0; k < terms.count; k++) {
            const uint32_t byte = from[k * terms.stride] ^ recode.flip;
            value |= recode.words
                         ? (uint32_t)(uint16_t)(byte - (uint32_t)recode.zero_points[row]) << 16 * k
                         : byte << 8 * k;
        }
        memcpy(cell, &value, sizeof(value));
    }
}

/* Rows of weights to a panel of zeros. */
static void pack_rows(const struct qk_conv *conv, const struct qk_slab_order *order,
                      const uint8_t *w, size_t rows, struct recode recode, uint8_t *panel)
{
    const struct qk_igemm *gemm = conv->backend->gemm;
    const size_t taps = order->outer_taps * order->row_taps * order->column_taps;
    for (size_t k_block = 0; k_block < order->k_blocks; k_block++)
        for (size_t tap = 0; tap < taps; tap++, panel += conv->igemm.step_bytes)
            for (size_t i = 0; i < qk_slab_count(order, k_block); i++) {
                const struct qk_slab_terms terms =
                    qk_slab_terms(order, &conv->desc, k_block, tap, i);
                uint8_t *cell = panel + i * gemm->cell_stride;
                if (recode.words && terms.count == 2) /* most, where there are words */
                    pack_cell(gemm, (struct recode){true, recode.flip, recode.zero_points},
                              w + terms.first, rows, conv->depth,
                              (struct qk_slab_terms){0, terms.stride, 2}, cell);
                else if (!recode.words && terms.stride == 1 && terms.count == 4)
                    pack_cell(gemm, (struct recode){false, recode.flip, NULL}, w + terms.first,
                              rows, conv->depth, (struct qk_slab_terms){0, 1, 4}, cell);
                else
                    pack_cell(gemm, recode, w + terms.first, rows, conv->depth, terms, cell);
            }
}

/* Rows of transposed weights, 64 bytes each, to the cells of one step; those behind its slabs are
 * 0. */
static void place_step(const struct qk_igemm *gemm, const uint8_t *from, size_t rows, size_t slabs,
                       uint8_t *step)
{
    for (size_t i = 0; i < slabs; i++)
        for (size_t row = 0; row < rows; row++)
            memcpy(step + i * gemm->cell_stride + row * gemm->row_stride,
                   from + row * TRANSPOSED_BYTES + i * QK_IGEMM_CELL_BYTES, QK_IGEMM_CELL_BYTES);
}

/* The same as pack_rows for bytes, faster: `job` says where from, where the panel's rows lie as
 * they are transposed. What is read lies in one piece, row by row. */
static void pack_in_place(const struct qk_conv *conv, const struct qk_slab_order *order,
                          struct qk_transpose job, uint8_t *panel)
{
    const size_t channels = conv->desc.group_channels;
    job.to = panel;
    job.to_tap_stride = conv->igemm.step_bytes;
    job.channels = order->step_slabs * order->cell_k;
    job.k_blocks = channels / job.channels;
    conv->backend->slabs->transpose(&job);
    job.from += job.k_blocks * job.channels * job.taps;
    job.to += job.k_blocks * job.taps * job.to_tap_stride;
    job.channels = channels % job.channels;
    job.k_blocks = 1;
    if (job.channels > 0)
        conv->backend->slabs->transpose(&job);
}

/* And where they do not. */
static void pack_through_scratch(const struct qk_conv *conv, const struct qk_slab_order *order,
                                 struct qk_transpose job, uint8_t *panel)
{
    const size_t channels = order->step_slabs * order->cell_k;
    uint8_t scratch[QK_TRANSPOSE_TAPS * TRANSPOSED_ROWS * TRANSPOSED_BYTES];
    job.to = scratch;
    job.to_tap_stride = job.rows * TRANSPOSED_BYTES;
    job.k_blocks = 1;
    for (size_t k_block = 0; k_block < order->k_blocks; k_block++) {
        job.channels = qk_size_min(conv->desc.group_channels - k_block * channels, channels);
        conv->backend->slabs->transpose(&job);
        for (size_t tap = 0; tap < job.taps; tap++, panel += conv->igemm.step_bytes)
            place_step(conv->backend->gemm, scratch + tap * job.to_tap_stride, job.rows,
                       order->step_slabs, panel);
        job.from += job.channels * job.taps;
    }
}

static bool may_transpose(const struct qk_conv *conv, const struct qk_slab_order *order)
{
    const struct qk_igemm *gemm = conv->backend->gemm;
    return conv->backend->slabs->transpose && !order->columns_in_cells &&
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
        const struct qk_transpose job = {
            .from = w,
            .rows = rows,
            .from_row_stride = conv->depth,
            .taps = conv->depth / conv->desc.group_channels,
            .flip = (uint8_t)centre,
            .to_row_stride = TRANSPOSED_BYTES,
            .sums = sums,
        };
        memset(sums, 0, rows * sizeof(*sums));
        if (gemm->row_stride == TRANSPOSED_BYTES)
            pack_in_place(conv, order, job, panel);
        else
            pack_through_scratch(conv, order, job, panel);
        for (size_t row = 0; row < rows; row++)
            sums[row] =
                (int32_t)((uint32_t)sums[row] -
                          (uint32_t)conv->depth *
                              (uint32_t)(qk_w_zero_point(constants, channel + row) - centre));
        return;
    }
    const bool words = gemm->cell_k == 2;
    const int32_t flipped = words == is_signed ? 128 : 0;
    int32_t zero_points[PANEL_ROWS];
    for (size_t row = 0; row < rows; row++) {
        zero_points[row] = qk_w_zero_point(constants, channel + row) + flipped;
        /* Words need no sums. */
        sums[row] = words ? 0 : qk_conv_weight_sum(conv, constants, channel + row);
    }
    memset(panel, 0, conv->igemm.panel_bytes);
    pack_rows(conv, order, w, rows, (struct recode){words, flipped ? 0x80 : 0, zero_points}, panel);
}

/* A panel whose first row multiplies with 1: its sums are those of x's columns. Terms that are not
 * there stay 0. */
static void pack_ones(const struct qk_conv *conv, const struct qk_slab_order *order, uint8_t *panel)
{
    const size_t taps = order->outer_taps * order->row_taps * order->column_taps;
    for (size_t s = 0; s < order->steps; s++, panel += conv->igemm.step_bytes)
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
    uint8_t *ones = qk_conv_alloc(memory, conv->igemm.panel_bytes + QK_IGEMM_SLACK, 1);
    if (!ones)
        return false;
    memset(ones, 0, conv->igemm.panel_bytes);
    pack_ones(conv, order, ones);
    conv->igemm.w_zero_point = zero_points;
    conv->igemm.ones = ones;
    return true;
}

bool qk_conv_pack_igemm(struct qk_conv *conv, const struct qk_conv_constants *constants,
                        struct qk_memory memory, int32_t *sums)
{
    const struct qk_igemm *gemm = conv->backend->gemm;
    const struct qk_slab_order order = qk_slab_order_for(&conv->desc, conv->backend);
    const size_t rows = conv->desc.out_channels / conv->desc.group;
    struct qk_conv_igemm *packed = &conv->igemm;
    *packed = (struct qk_conv_igemm){.panel_count = (rows - 1) / gemm->mr + 1};
    packed->step_bytes = qk_igemm_step_bytes(gemm, order.step_slabs, rows);
    size_t bytes;
    if (!qk_mul_size(packed->step_bytes, order.steps, &packed->panel_bytes) ||
        !qk_mul_size(packed->panel_bytes, packed->panel_count * conv->desc.group, &bytes) ||
        __builtin_add_overflow(bytes, QK_IGEMM_SLACK, &bytes))
        return false;
    uint8_t *weights = qk_conv_alloc(memory, bytes, 1);
    if (!weights)
        return false;
    uint8_t *panel = weights;
    for (size_t group = 0; group < conv->desc.group; group++)
        for (size_t row = 0; row < rows; row += gemm->mr, panel += packed->panel_bytes)
            pack_panel(conv, constants, &order, group * rows + row,
                       qk_size_min(rows - row, gemm->mr), panel, sums + group * rows + row);
    packed->weights = weights;
    return gemm->cell_k == 2 || pack_zero_points(conv, constants, &order, memory);
}
