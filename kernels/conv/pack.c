#include "kernels/conv/conv.h"

#include "kernels/conv/requantize.h"
#include "kernels/conv/widen.h"
#include "kernels/element/load.h"

/* What x is centred with, so that |x| <= 128. */
static int32_t centre_of(enum qk_type type)
{
    return type == QK_UINT8 ? 128 : 0;
}

/* w_scale and w_zero_point: one for all channels, or one each. */
static size_t channel_index(const struct qk_tensor *tensor, size_t channel)
{
    return tensor->count == 1 ? 0 : channel;
}

static int32_t w_zero_point(const struct qk_conv_constants *constants, size_t channel)
{
    const struct qk_tensor *tensor = constants->w_zero_point;
    return (int32_t)qk_load_integer(tensor->type, tensor->data, channel_index(tensor, channel));
}

/* The most terms of |x| <= 128 times |w - w_zp| that stay exact, evened out over the blocks. Looks
 * at the zero points that there are: channels without weights are not in memory, and their number
 * is whatever a shape says. */
static size_t choose_block(const struct qk_conv_constants *constants, size_t depth)
{
    const struct qk_type_info *info = qk_type_info(constants->w->type);
    int64_t largest = 128;
    for (size_t i = 0; i < constants->w_zero_point->count; i++) {
        int64_t zero_point = w_zero_point(constants, i);
        int64_t above = info->max - zero_point;
        int64_t below = zero_point - info->min;
        largest = above > largest ? above : largest;
        largest = below > largest ? below : largest;
    }
    size_t most = QK_GEMM_EXACT_K * 128 / (size_t)largest;
    size_t blocks = depth == 0 ? 1 : (depth - 1) / most + 1;
    return depth == 0 ? 1 : (depth - 1) / blocks + 1;
}

static void pack_weights(const struct qk_conv *conv, const struct qk_conv_constants *constants,
                         float *weights)
{
    const uint8_t *w = constants->w->data;
    const size_t rows = conv->desc.out_channels / conv->desc.group;
    for (size_t group = 0; group < conv->desc.group; group++) {
        for (size_t begin = 0; begin < conv->depth; begin += conv->block) {
            size_t left = conv->depth - begin;
            size_t count = left < conv->block ? left : conv->block;
            for (size_t m = group * rows; m < (group + 1) * rows; m++) {
                struct qk_widen widen =
                    qk_widen_from(constants->w->type, w_zero_point(constants, m));
                qk_widen_row(widen, w + m * conv->depth + begin, count, weights);
                weights += count;
            }
        }
    }
}

/* Sum of w - w_zp over one channel, modulo 2^32. */
static uint32_t weight_sum(const struct qk_conv *conv, const struct qk_conv_constants *constants,
                           size_t channel)
{
    const uint8_t *w = (const uint8_t *)constants->w->data + channel * conv->depth;
    struct qk_widen widen = qk_widen_from(constants->w->type, w_zero_point(constants, channel));
    return qk_widen_sum(widen, w, conv->depth);
}

/* x - x_zp is centred x less x_fill: the sum over x_fill goes into the bias. */
static void pack_bias(const struct qk_conv *conv, const struct qk_conv_constants *constants,
                      int32_t *bias)
{
    const struct qk_tensor *given = constants->bias;
    for (size_t m = 0; m < conv->desc.out_channels; m++) {
        uint32_t value = given->type == QK_NONE ? 0 : (uint32_t)qk_load_i32(given->data, m);
        if (conv->x_fill != 0 && conv->depth != 0)
            value -= (uint32_t)conv->x_fill * weight_sum(conv, constants, m);
        bias[m] = (int32_t)value;
    }
}

static void pack_multiplier(const struct qk_conv *conv, const struct qk_conv_constants *constants,
                            float *multiplier)
{
    const struct qk_tensor *w_scale = constants->w_scale;
    for (size_t m = 0; m < conv->desc.out_channels; m++) {
        float product = constants->x_scale * qk_load_f32(w_scale->data, channel_index(w_scale, m));
        multiplier[m] = product / constants->y_scale;
    }
}

/* Room for `count` elements of 4 bytes; NULL: there is none. */
static void *alloc_words(struct qk_memory memory, size_t count)
{
    size_t bytes;
    if (!qk_mul_size(count == 0 ? 1 : count, 4, &bytes))
        return NULL;
    return memory.alloc(memory.context, bytes);
}

enum qk_status qk_conv_create(const struct qk_conv_desc *desc,
                              const struct qk_conv_constants *constants, struct qk_memory memory,
                              struct qk_conv *conv, struct qk_error *error)
{
    size_t depth = desc->group_channels;
    for (int i = 0; i < QK_CONV_SPATIAL_MAX; i++)
        if (!qk_mul_size(depth, (size_t)desc->kernel[i], &depth))
            return qk_fail(error, QK_INVALID, "w: its shape does not fit in 64 bits");
    *conv = (struct qk_conv){
        .desc = *desc,
        .requantize = qk_requantize_for(constants->y_type, constants->y_zero_point),
        .x_type = constants->x_type,
        .y_type = constants->y_type,
        .x_centre = centre_of(constants->x_type),
        .x_fill = constants->x_zero_point - centre_of(constants->x_type),
        .depth = depth,
        .block = choose_block(constants, depth),
    };
    float *weights = alloc_words(memory, constants->w->count);
    int32_t *bias = alloc_words(memory, desc->out_channels);
    float *multiplier = alloc_words(memory, desc->out_channels);
    if (!weights || !bias || !multiplier)
        return qk_fail(error, QK_NO_MEMORY, "no memory to pack %zu weights", constants->w->count);
    if (constants->w->count != 0)
        pack_weights(conv, constants, weights);
    pack_bias(conv, constants, bias);
    pack_multiplier(conv, constants, multiplier);
    conv->weights = weights;
    conv->bias = bias;
    conv->multiplier = multiplier;
    return QK_OK;
}
