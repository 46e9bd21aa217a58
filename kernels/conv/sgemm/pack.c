/* Packs weights as floats, less their zero points, for convolutions by sgemm. */
#include "kernels/conv/sgemm/pack.h"

#include "kernels/conv/alloc.h"
#include "kernels/conv/backend.h"
#include "kernels/conv/channels.h"
#include "kernels/conv/widen.h"

/* Rough guesses: the cycles that packing one weight takes, and the cycles that everything else of
 * an output channel takes. */
#define WEIGHT_CYCLES 0.8
#define CHANNEL_CYCLES 8.0

/* Returns the number that is subtracted from x, so that |x| <= 128. */
static int32_t centre_of(enum qk_type type)
{
    return type == QK_UINT8 ? 128 : 0;
}

/* Returns the length of a K block. Floats add up the terms of a K block exactly, even if each |x|
 * is 128 and each |w - w_zp| is the largest possible. K is cut into as few K blocks as possible, of
 * about the same length. The loop goes over the zero points that are in memory, not over the output
 * channels: if there are no weights, a shape may claim any number of channels. */
static size_t choose_k_block(const struct qk_conv *conv)
{
    const struct qk_type_info *info = qk_type_info(conv->constants.w_type);
    const size_t depth = conv->depth;
    int64_t largest = 128;
    for (size_t i = 0; i < conv->constants.w_zero_point_count; i++) {
        int64_t zero_point = qk_w_zero_point(conv, i);
        int64_t above = info->max - zero_point;
        int64_t below = zero_point - info->min;
        largest = above > largest ? above : largest;
        largest = below > largest ? below : largest;
    }
    size_t most = QK_SGEMM_EXACT_K * 128 / (size_t)largest;
    size_t k_blocks = depth == 0 ? 1 : (depth - 1) / most + 1;
    return depth == 0 ? 1 : (depth - 1) / k_blocks + 1;
}

bool qk_conv_prepare_sgemm(struct qk_conv *conv, struct qk_memory memory, double *item_cycles)
{
    conv->sgemm = (struct qk_conv_sgemm){
        .x_centre = centre_of(conv->x_type),
        .x_fill = conv->x_zero_point - centre_of(conv->x_type),
        .k_block = choose_k_block(conv),
        .weights = qk_conv_alloc(memory, conv->constants.w_count, sizeof(float)),
    };
    conv->packing.items = conv->desc.out_channels;
    *item_cycles =
        CHANNEL_CYCLES + (conv->constants.w_count == 0 ? 0 : WEIGHT_CYCLES * (double)conv->depth);
    return conv->sgemm.weights != NULL;
}

/* Packs the weights of one output channel, which are a row in each K block of its group. */
static void pack_row(const struct qk_conv *conv, size_t m)
{
    const size_t k_block = conv->sgemm.k_block;
    const size_t rows = conv->desc.out_channels / conv->desc.group;
    const uint8_t *w = conv->constants.w + m * conv->depth;
    const struct qk_widen widen = qk_widen_from(conv->constants.w_type, qk_w_zero_point(conv, m));
    float *group = conv->sgemm.weights + m / rows * rows * conv->depth;
    for (size_t begin = 0; begin < conv->depth; begin += k_block) {
        const size_t left = conv->depth - begin;
        const size_t count = left < k_block ? left : k_block;
        qk_widen_row(widen, w + begin, count, group + rows * begin + m % rows * count);
    }
}

void qk_conv_pack_sgemm(const struct qk_conv *conv, size_t begin, size_t end)
{
    const bool empty = conv->constants.w_count == 0;
    for (size_t m = begin; m < end; m++) {
        if (!empty)
            pack_row(conv, m);
        conv->bias[m] = empty ? 0 : qk_conv_weight_sum(conv, m);
    }
    qk_conv_pack_channels(conv, conv->sgemm.x_fill, begin, end);
}
