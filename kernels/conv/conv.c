#include "kernels/conv/conv.h"

#include <math.h>

#include "kernels/conv/algorithm.h"
#include "kernels/conv/depthwise/depthwise.h"
#include "kernels/conv/sizes.h"
#include "kernels/conv/widen.h"
#include "kernels/wrap.h"

void *qk_conv_alloc(struct qk_memory memory, size_t count, size_t size)
{
    size_t bytes;
    if (!qk_mul_size(count == 0 ? 1 : count, size, &bytes))
        return NULL;
    return memory.alloc(memory.context, bytes);
}

/* ---- Which algorithm --------------------------------------------------------------------- */

/* Whether the weights would fill less than a tenth of the tiles and steps of a kernel that takes
 * whole ones, and so take ten times the time and memory that they should. */
static bool leaves_tiles_empty(const struct qk_conv *conv, const struct qk_conv_backend *backend)
{
    const struct qk_slab_order order =
        qk_slab_order_for(&conv->desc, backend, &conv->tuning->main_costs);
    const double rows = (double)(conv->desc.out_channels / conv->desc.group);
    const double tile_rows = ceil(rows / QK_IGEMM_STEP_SLABS) * QK_IGEMM_STEP_SLABS;
    const double step_terms = (double)(QK_IGEMM_STEP_SLABS * order.quad_k);
    return rows * (double)conv->depth < 0.1 * tile_rows * step_terms * (double)order.steps;
}

/* Whether a kernel by position, with rows that fill its vectors only in part and few slabs between
 * the beginning and the end of a tile, would take longer than one by rows. */
static bool leaves_rows_idle(const struct qk_conv *conv, const struct qk_conv_backend *backend)
{
    const struct qk_slab_order order = qk_slab_order_for(&conv->desc, backend, conv->costs);
    const double lanes = (double)backend->igemm->lanes;
    const double rows = (double)(conv->desc.out_channels / conv->desc.group);
    const double tile_rows = ceil(rows / lanes) * lanes;
    const double slabs = (double)(order.slabs * (order.steps / order.k_blocks));
    return rows * slabs < backend->small_m_speed * tile_rows * (slabs + backend->tile_slabs);
}

/* A kernel with `mark_wide` takes 1.6 times as long for a slab of wide weights as for another, and
 * the kernel of words, which needs no slabs of another kind, takes 1.4 times as long for any. Where
 * kinds alternate, a branch comes on top. Measured with masked features on a Xeon of 2023. */
#define WIDE_SHARE_MAX 0.2

static bool has_wide_weights(const struct qk_conv *conv, const struct qk_conv_backend *backend)
{
    return backend->igemm->mark_wide && qk_conv_wide_share(conv, backend) > WIDE_SHARE_MAX;
}

/* Whether what sgemm needs before and behind costs more than its products save: x as floats, and
 * sums from floats. */
static bool is_too_small_for_sgemm(const struct qk_conv *conv)
{
    const struct qk_conv_tuning *tuning = conv->tuning;
    const double rows = (double)(conv->desc.out_channels / conv->desc.group);
    const double depth = (double)conv->depth;
    const double saved =
        rows * depth * (1 / tuning->small_tile_costs.terms_per_ns - 1 / tuning->sgemm_terms_per_ns);
    return saved < depth / tuning->im2col_per_ns + rows / tuning->requantized_per_ns;
}

/* Sets the algorithm, and the backend where there is one. Without weights there is nothing to
 * multiply, which sgemm's algorithm does without OpenBLAS. */
static void choose_algorithm(struct qk_conv *conv, size_t weights)
{
    const struct qk_conv_tuning *tuning = conv->tuning;
    conv->algorithm = QK_CONV_SGEMM;
    if (!tuning->small_tile || weights == 0)
        return;
    conv->algorithm = QK_CONV_DEPTHWISE;
    conv->backend = tuning->depthwise;
    if (qk_conv_is_depthwise(conv))
        return;
    const bool small_tile = !tuning->main ? is_too_small_for_sgemm(conv)
                                          : tuning->main != tuning->small_tile &&
                                                leaves_tiles_empty(conv, tuning->main);
    conv->backend = small_tile ? tuning->small_tile : tuning->main;
    conv->costs = small_tile ? &tuning->small_tile_costs : &tuning->main_costs;
    if (conv->backend && conv->backend->small_m &&
        (leaves_rows_idle(conv, conv->backend) || has_wide_weights(conv, conv->backend)))
        conv->backend = conv->backend->small_m;
    conv->algorithm = conv->backend ? QK_CONV_IGEMM : QK_CONV_SGEMM;
}

/* ---- Prepare ----------------------------------------------------------------------------- */

static void cut_packing(struct qk_conv *conv, double item_cycles)
{
    struct qk_conv_packing *packing = &conv->packing;
    const double item_ns = item_cycles / conv->tuning->cycles_per_ns;
    const double fit = conv->tuning->pack_unit_ns / item_ns;
    const size_t most = qk_size_max(packing->items, 1);
    packing->unit_items = fit >= (double)most ? most : qk_size_max((size_t)fit, 1);
    packing->unit_count = qk_divide_up(packing->items, packing->unit_items);
    packing->unit_cost_ns = (uint64_t)(item_ns * (double)packing->unit_items) + 1;
}

static bool prepare_weights(struct qk_conv *conv, struct qk_memory memory)
{
    double item_cycles; /* that packing one takes */
    bool prepared;
    if (conv->algorithm == QK_CONV_SGEMM)
        prepared = qk_conv_prepare_sgemm(conv, memory, &item_cycles);
    else if (conv->algorithm == QK_CONV_DEPTHWISE)
        prepared = qk_conv_prepare_depthwise(conv, memory, &item_cycles);
    else
        prepared = qk_conv_prepare_igemm(conv, memory, &item_cycles);
    if (prepared)
        cut_packing(conv, item_cycles);
    return prepared;
}

enum qk_status qk_conv_prepare(const struct qk_conv_desc *desc,
                               const struct qk_conv_constants *constants,
                               const struct qk_conv_tuning *tuning, struct qk_memory memory,
                               struct qk_conv *conv, struct qk_error *error)
{
    size_t depth = desc->group_channels;
    for (int i = 0; i < QK_CONV_SPATIAL_MAX; i++)
        if (!qk_mul_size(depth, (size_t)desc->kernel[i], &depth))
            return qk_fail(error, QK_INVALID,
                           "w: expected a size that fits in 64 bits, got a larger one");
    *conv = (struct qk_conv){
        .desc = *desc,
        .constants = *constants,
        .x_type = constants->x_type,
        .x_zero_point = constants->x_zero_point,
        .depth = depth,
        .tuning = tuning,
    };
    choose_algorithm(conv, constants->w_count);
    conv->bias = qk_conv_alloc(memory, desc->out_channels, sizeof(*conv->bias));
    conv->multiplier = qk_conv_alloc(memory, desc->out_channels, sizeof(*conv->multiplier));
    if (!conv->bias || !conv->multiplier || !prepare_weights(conv, memory))
        return qk_fail(error, QK_NO_MEMORY, "no memory to pack %zu weights", constants->w_count);
    return QK_OK;
}

/* ---- Pack -------------------------------------------------------------------------------- */

int32_t qk_conv_weight_sum(const struct qk_conv *conv, size_t channel)
{
    const uint8_t *w = conv->constants.w + channel * conv->depth;
    struct qk_widen widen = qk_widen_from(conv->constants.w_type, qk_w_zero_point(conv, channel));
    return (int32_t)qk_widen_sum(widen, w, conv->depth);
}

/* How much more than x - x_zp the operand is that stands for x. */
static int32_t x_left(const struct qk_conv *conv)
{
    if (conv->algorithm == QK_CONV_SGEMM)
        return conv->sgemm.x_fill;
    if (conv->algorithm == QK_CONV_IGEMM && conv->backend->igemm->quad_k == 2)
        return 0; /* words hold x - x_zp */
    const bool x_signed = conv->algorithm == QK_CONV_IGEMM ? conv->backend->igemm->x_signed
                                                           : conv->backend->depthwise->x_signed;
    const int32_t moved = qk_conv_x_flip(conv->x_type, x_signed);
    return conv->x_zero_point + (conv->x_type == QK_INT8 ? moved : -moved);
}

/* Folds into the bias what the products have too much: x is multiplied as it is stored, or flipped
 * to unsigned or signed, or centred, and each of these is x - x_zp + x_left. */
QK_WRAPS void qk_conv_pack_channels(const struct qk_conv *conv, size_t begin, size_t end)
{
    const struct qk_conv_constants *from = &conv->constants;
    const uint32_t left = (uint32_t)x_left(conv);
    for (size_t m = begin; m < end; m++) {
        const uint32_t bias = from->bias ? (uint32_t)qk_load_i32(from->bias, m) : 0;
        const float product =
            from->x_scale * qk_load_f32(from->w_scale, from->w_scale_count == 1 ? 0 : m);
        conv->bias[m] = (int32_t)(bias - left * (uint32_t)conv->bias[m]);
        conv->multiplier[m] = product / from->y_scale;
    }
}

void qk_conv_pack(const struct qk_conv *conv, size_t begin, size_t end)
{
    const size_t first = begin * conv->packing.unit_items;
    const size_t last = qk_size_min(end * conv->packing.unit_items, conv->packing.items);
    if (conv->algorithm == QK_CONV_SGEMM)
        qk_conv_pack_sgemm(conv, first, last);
    else if (conv->algorithm == QK_CONV_DEPTHWISE)
        qk_conv_pack_depthwise(conv, first, last);
    else
        qk_conv_pack_igemm(conv, first, last);
}

/* ---- Plan -------------------------------------------------------------------------------- */

/* Sets y's dims: N, M, and the positions of each axis that the caller has. */
static void set_output_dims(const struct qk_conv *conv, const struct qk_conv_geometry *geometry,
                            struct qk_tensor *output)
{
    const struct qk_conv_desc *desc = &conv->desc;
    output->data = NULL;
    output->rank = desc->spatial_rank + 2;
    output->dims[0] = geometry->images;
    output->dims[1] = desc->out_channels;
    for (uint32_t i = 0; i < desc->spatial_rank; i++)
        output->dims[2 + i] =
            (size_t)geometry->axis[QK_CONV_SPATIAL_MAX - desc->spatial_rank + i].out;
}

enum qk_status qk_conv_plan(const struct qk_conv *conv, const struct qk_epilogue *epilogue,
                            const struct qk_openblas *openblas,
                            const struct qk_im2col_kernels *im2col, const struct qk_tensor *x,
                            struct qk_memory memory, struct qk_plan *plan, struct qk_error *error)
{
    struct qk_conv_geometry geometry;
    struct qk_tensor *y = &plan->outputs[0];
    enum qk_status status = qk_conv_geometry_init(&geometry, &conv->desc, x, error);
    if (status != QK_OK)
        return status;
    y->type = epilogue->y_type;
    set_output_dims(conv, &geometry, y);
    if (!qk_tensor_set_count(y) || !qk_type_bytes(y->type, y->count, &plan->output_bytes[0]))
        return qk_fail(error, QK_INVALID,
                       "y: expected a size that fits in 64 bits, got a larger one");
    bool planned;
    if (conv->algorithm == QK_CONV_SGEMM)
        planned = qk_conv_plan_sgemm(conv, epilogue, openblas, im2col, &geometry, memory, plan);
    else if (conv->algorithm == QK_CONV_DEPTHWISE)
        planned = qk_conv_plan_depthwise(conv, epilogue, &geometry, memory, plan);
    else
        planned = qk_conv_plan_igemm(conv, epilogue, &geometry, memory, plan);
    return planned ? QK_OK : qk_fail(error, QK_NO_MEMORY, "no memory for the plan");
}
