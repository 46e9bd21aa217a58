/* The calls of a convolution (kernels/conv/conv.h): prepares, packs and plans it, with the
 * algorithm that choose.c chooses. */
#include "kernels/conv/conv.h"

#include "kernels/conv/algorithm.h"
#include "kernels/conv/backend.h"
#include "kernels/sizes.h"

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
    double item_cycles; /* how many cycles packing one item takes */
    if (!conv->algorithm->prepare(conv, memory, &item_cycles))
        return false;
    cut_packing(conv, item_cycles);
    return true;
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
        .x_zero_point_input = constants->x_zero_point_input,
        .depth = depth,
        .tuning = tuning,
    };
    qk_conv_choose(conv, constants->w_count);
    conv->bias = qk_conv_alloc(memory, desc->out_channels, sizeof(*conv->bias));
    conv->multiplier = qk_conv_alloc(memory, desc->out_channels, sizeof(*conv->multiplier));
    if (!conv->bias || !conv->multiplier || !prepare_weights(conv, memory))
        return qk_fail(error, QK_NO_MEMORY, "no memory to pack %zu weights", constants->w_count);
    return QK_OK;
}

/* ---- Pack -------------------------------------------------------------------------------- */

void qk_conv_pack(const struct qk_conv *conv, size_t begin, size_t end)
{
    const size_t first = begin * conv->packing.unit_items;
    const size_t last = qk_size_min(end * conv->packing.unit_items, conv->packing.items);
    conv->algorithm->pack(conv, first, last);
}

/* ---- Plan -------------------------------------------------------------------------------- */

/* Sets y's dims to N, M, and the number of positions on each of the caller's axes. With
 * channels_last, M is the last. */
static void set_output_dims(const struct qk_conv *conv, const struct qk_conv_geometry *geometry,
                            struct qk_tensor *output)
{
    const struct qk_conv_desc *desc = &conv->desc;
    output->data = NULL;
    output->rank = desc->spatial_rank + 2;
    output->dims[0] = geometry->images;
    output->dims[desc->channels_last ? desc->spatial_rank + 1 : 1] = desc->out_channels;
    for (uint32_t i = 0; i < desc->spatial_rank; i++)
        output->dims[(desc->channels_last ? 1 : 2) + i] =
            (size_t)geometry->axis[QK_CONV_SPATIAL_MAX - desc->spatial_rank + i].out;
}

/* Returns how many products make `sums` elements of y, those with padding included. Returns
 * UINT64_MAX if there are more. */
static uint64_t count_multiplications(const struct qk_conv_desc *desc, uint64_t sums)
{
    uint64_t count = sums;
    if (__builtin_mul_overflow(count, desc->group_channels, &count))
        return UINT64_MAX;
    for (int i = 0; i < QK_CONV_SPATIAL_MAX; i++)
        if (__builtin_mul_overflow(count, (uint64_t)desc->kernel[i], &count))
            return UINT64_MAX;
    return count;
}

enum qk_status qk_conv_plan(const struct qk_conv *conv, const struct qk_epilogue *epilogue,
                            const struct qk_openblas *openblas,
                            const struct qk_im2col_kernels *im2col,
                            const struct qk_move_kernels *move, const struct qk_tensor *x,
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
    plan->multiplications = count_multiplications(&conv->desc, y->count);
    const struct qk_conv_plan_args args = {conv, epilogue, &geometry, openblas, im2col, move};
    return conv->algorithm->plan(&args, memory, plan)
               ? QK_OK
               : qk_fail(error, QK_NO_MEMORY, "no memory for the plan");
}
