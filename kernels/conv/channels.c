#include "kernels/conv/channels.h"

#include "kernels/conv/widen.h"
#include "kernels/element/load.h"
#include "kernels/wrap.h"

int32_t qk_conv_x_offset(enum qk_type x_type, int32_t x_zero_point, bool x_signed)
{
    const int32_t moved = qk_conv_x_flip(x_type, x_signed);
    return x_zero_point + (x_type == QK_INT8 ? moved : -moved);
}

int32_t qk_conv_x_zero_point(const struct qk_conv *conv, const void *const *inputs)
{
    if (conv->x_zero_point_input == 0)
        return conv->x_zero_point;
    return (int32_t)qk_load_integer(conv->x_type, inputs[conv->x_zero_point_input], 0);
}

QK_WRAPS const int32_t *qk_conv_bias(const struct qk_conv *conv, int32_t x_offset, size_t channel,
                                     size_t count, int32_t *room)
{
    if (conv->x_zero_point_input == 0)
        return conv->bias + channel;
    for (size_t i = 0; i < count; i++)
        room[i] = (int32_t)(0 - (uint32_t)x_offset * (uint32_t)conv->bias[channel + i]);
    return room;
}

int32_t qk_conv_weight_sum(const struct qk_conv *conv, size_t channel)
{
    const uint8_t *w = conv->constants.w + channel * conv->depth;
    struct qk_widen widen = qk_widen_from(conv->constants.w_type, qk_w_zero_point(conv, channel));
    return (int32_t)qk_widen_sum(widen, w, conv->depth);
}

static float multiplier_of(const struct qk_conv_constants *from, size_t channel)
{
    const float product =
        from->x_scale * qk_load_f32(from->w_scale, from->w_scale_count == 1 ? 0 : channel);
    return product / from->y_scale;
}

QK_WRAPS void qk_conv_pack_channels(const struct qk_conv *conv, int32_t x_offset, size_t begin,
                                    size_t end)
{
    const struct qk_conv_constants *from = &conv->constants;
    const uint32_t offset = (uint32_t)x_offset;
    for (size_t m = begin; m < end; m++) {
        const uint32_t bias = from->bias ? (uint32_t)qk_load_i32(from->bias, m) : 0;
        if (conv->x_zero_point_input == 0)
            conv->bias[m] = (int32_t)(bias - offset * (uint32_t)conv->bias[m]);
        conv->multiplier[m] = from->w_scale ? multiplier_of(from, m) : 0;
    }
}
