/* Chooses the algorithm and the backend of one convolution, among the backends that
 * kernels/choice.c has chosen for the machine. */
#include "kernels/conv/algorithm.h"

#include <math.h>

#include "kernels/conv/depthwise/interleaved.h"
#include "kernels/conv/igemm/pack.h"
#include "kernels/conv/winograd/plan.h"

/* Returns true if the weights would fill less than a tenth of the tiles and steps of a kernel that
 * takes only whole ones. The convolution would then take ten times the time and memory that it
 * should. */
static bool leaves_tiles_empty(const struct qk_conv *conv, const struct qk_conv_backend *backend)
{
    const struct qk_slab_order order =
        qk_slab_order_for(&conv->desc, backend, &conv->tuning->main_costs);
    const double rows = (double)(conv->desc.out_channels / conv->desc.group);
    const double tile_rows = ceil(rows / QK_IGEMM_STEP_SLABS) * QK_IGEMM_STEP_SLABS;
    const double step_terms = (double)(QK_IGEMM_STEP_SLABS * order.quad_k);
    return rows * (double)conv->depth < 0.1 * tile_rows * step_terms * (double)order.steps;
}

static bool has_taps(const struct qk_conv *conv)
{
    return conv->depth > conv->desc.group_channels;
}

/* Returns the speed of small_m's products, as a share of the backend's. The planes of x are not
 * known yet. They are probably large if quads hold columns, as in a network's first layer, or if
 * the layer adds no channels: networks mostly add channels where planes become small. */
static double small_m_speed(const struct qk_conv *conv, const struct qk_conv_backend *backend,
                            const struct qk_slab_order *order)
{
    if (order->columns_in_quads)
        return backend->small_m_speed_of_large;
    if (has_taps(conv))
        return backend->small_m_speed_of_taps;
    return conv->desc.out_channels <= conv->desc.group_channels * conv->desc.group
               ? backend->small_m_speed_of_large
               : backend->small_m_speed;
}

/* Returns true if a kernel by position would take longer than a kernel by rows, because the rows
 * fill its vectors only in part, or because there are few slabs between the beginning and the end
 * of a tile. A tile of fewer rows takes as long to begin and end as a full one. */
static bool leaves_rows_idle(const struct qk_conv *conv, const struct qk_conv_backend *backend)
{
    const struct qk_slab_order order = qk_slab_order_for(&conv->desc, backend, conv->costs);
    const double lanes = (double)backend->igemm->lanes;
    const double mr = (double)backend->igemm->mr;
    const double rows = (double)(conv->desc.out_channels / conv->desc.group);
    const double slabs = (double)(order.slabs * (order.steps / order.k_blocks));
    return rows * slabs <
           small_m_speed(conv, backend, &order) *
               (ceil(rows / lanes) * lanes * slabs + ceil(rows / mr) * mr * backend->tile_slabs);
}

static bool has_wide_weights(const struct qk_conv *conv, const struct qk_conv_backend *backend)
{
    return backend->igemm->mark_wide &&
           qk_conv_wide_share(conv, backend) > backend->wide_share_most;
}

/* Returns true if a sum has so few terms that the backend's `words` are faster. Slabs of words take
 * longer to make, but serve all taps, so taps allow more terms. */
static bool has_few_terms(const struct qk_conv *conv, const struct qk_conv_backend *backend)
{
    return conv->depth <= (has_taps(conv) ? backend->few_terms_of_taps : backend->few_terms);
}

/* Returns true if the conversions around sgemm (x to floats before it, sums from floats after it)
 * cost more than its products save. */
static bool is_too_small_for_sgemm(const struct qk_conv *conv)
{
    const struct qk_conv_tuning *tuning = conv->tuning;
    const double rows = (double)(conv->desc.out_channels / conv->desc.group);
    const double depth = (double)conv->depth;
    const double saved =
        rows * depth * (1 / tuning->small_tile_costs.terms_per_ns - 1 / tuning->sgemm_terms_per_ns);
    return saved < depth / tuning->im2col_per_ns + rows / tuning->requantized_per_ns;
}

/* Decides in this order; each step may overrule the steps before it:
 * 1. sgemm, if there is no backend or no weight;
 * 2. depthwise, if its kernel has this convolution: nothing else is asked then;
 * 3. the backend `small_tile` or `main`, by how full the tiles would be; without `main`, sgemm
 *    takes the place of `main`, by its costs;
 * 4. the `small_m` of that backend, for few rows or slabs, wide weights or Winograd's algorithm;
 * 5. the `words` of that backend, for few terms or wide weights;
 * 6. the algorithm: sgemm without a backend, else winograd if it suits, else igemm. */
void qk_conv_choose(struct qk_conv *conv, size_t weights)
{
    const struct qk_conv_tuning *tuning = conv->tuning;
    /* Without weights nothing is multiplied, and the sgemm algorithm never calls OpenBLAS. */
    conv->algorithm = &qk_conv_algorithm_sgemm;
    if (!tuning->small_tile || weights == 0)
        return;
    conv->algorithm = &qk_conv_algorithm_depthwise;
    conv->backend = tuning->depthwise; /* set first: qk_conv_is_depthwise reads it */
    if (qk_conv_is_depthwise(conv) &&
        (!conv->desc.channels_last || qk_depthwise_crops_are_small(&conv->desc)) &&
        conv->backend->depthwise->run[conv->desc.epilogue])
        return;
    const bool small_tile = !tuning->main ? is_too_small_for_sgemm(conv)
                                          : tuning->main != tuning->small_tile &&
                                                leaves_tiles_empty(conv, tuning->main);
    conv->backend = small_tile ? tuning->small_tile : tuning->main;
    conv->costs = small_tile ? &tuning->small_tile_costs : &tuning->main_costs;
    /* Winograd's algorithm may take weights out of the panels of small_m only. */
    if (conv->backend && conv->backend->small_m &&
        (leaves_rows_idle(conv, conv->backend) || has_wide_weights(conv, conv->backend) ||
         (!conv->backend->igemm->unpack && qk_winograd_suits(conv, conv->backend->small_m))))
        conv->backend = conv->backend->small_m;
    if (conv->backend && conv->backend->words &&
        (has_few_terms(conv, conv->backend) || has_wide_weights(conv, conv->backend))) {
        conv->backend = conv->backend->words;
        conv->costs = &tuning->words_costs;
    }
    conv->algorithm = !conv->backend                           ? &qk_conv_algorithm_sgemm
                      : qk_winograd_suits(conv, conv->backend) ? &qk_conv_algorithm_winograd
                                                               : &qk_conv_algorithm_igemm;
}
