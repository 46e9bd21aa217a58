#include "kernels/conv/method.h"
#include "kernels/conv/widen.h"

/* What is subtracted from x, so that |x| <= 128. */
static int32_t centre_of(enum qk_type type)
{
    return type == QK_UINT8 ? 128 : 0;
}

/* The length of a K block: as many terms of |x| <= 128 times |w - w_zp| as floats add exactly,
 * evened out over the K blocks. It looks at the zero points that are in memory, not at the number
 * of channels: without weights that is whatever a shape says. */
static size_t choose_k_block(const struct qk_conv_constants *constants, size_t depth)
{
    const struct qk_type_info *info = qk_type_info(constants->w->type);
    int64_t largest = 128;
    for (size_t i = 0; i < constants->w_zero_point->count; i++) {
        int64_t zero_point = qk_w_zero_point(constants, i);
        int64_t above = info->max - zero_point;
        int64_t below = zero_point - info->min;
        largest = above > largest ? above : largest;
        largest = below > largest ? below : largest;
    }
    size_t most = QK_GEMM_EXACT_K * 128 / (size_t)largest;
    size_t k_blocks = depth == 0 ? 1 : (depth - 1) / most + 1;
    return depth == 0 ? 1 : (depth - 1) / k_blocks + 1;
}

static void pack_weights(const struct qk_conv *conv, const struct qk_conv_constants *constants,
                         size_t k_block, float *weights)
{
    const uint8_t *w = constants->w->data;
    const size_t rows = conv->desc.out_channels / conv->desc.group;
    for (size_t group = 0; group < conv->desc.group; group++) {
        for (size_t begin = 0; begin < conv->depth; begin += k_block) {
            size_t left = conv->depth - begin;
            size_t count = left < k_block ? left : k_block;
            for (size_t m = group * rows; m < (group + 1) * rows; m++) {
                struct qk_widen widen =
                    qk_widen_from(constants->w->type, qk_w_zero_point(constants, m));
                qk_widen_row(widen, w + m * conv->depth + begin, count, weights);
                weights += count;
            }
        }
    }
}

bool qk_conv_pack_sgemm(struct qk_conv *conv, const struct qk_conv_constants *constants,
                        struct qk_memory memory, int32_t *sums)
{
    const size_t k_block = choose_k_block(constants, conv->depth);
    float *weights = qk_conv_alloc(memory, constants->w->count, sizeof(*weights));
    if (!weights)
        return false;
    if (constants->w->count != 0)
        pack_weights(conv, constants, k_block, weights);
    for (size_t m = 0; m < conv->desc.out_channels; m++)
        sums[m] = constants->w->count == 0 ? 0 : qk_conv_weight_sum(conv, constants, m);
    conv->sgemm = (struct qk_conv_sgemm){
        .x_centre = centre_of(conv->x_type),
        .x_fill = conv->x_zero_point - centre_of(conv->x_type),
        .k_block = k_block,
        .weights = weights,
    };
    return true;
}
