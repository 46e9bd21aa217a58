#include "kernels/conv/channels.h"

#include "kernels/conv/widen.h"
#include "kernels/element/load.h"
#include "kernels/wrap.h"

int32_t qk_conv_x_offset(const struct qk_conv *conv, bool x_signed)
{
    const int32_t moved = qk_conv_x_flip(conv->x_type, x_signed);
    return conv->x_zero_point + (conv->x_type == QK_INT8 ? moved : -moved);
}

int32_t qk_conv_weight_sum(const struct qk_conv *conv, size_t channel)
{
    const uint8_t *w = conv->constants.w + channel * conv->depth;
    struct qk_widen widen = qk_widen_from(conv->constants.w_type, qk_w_zero_point(conv, channel));
    return (int32_t)qk_widen_sum(widen, w, conv->depth);
}

QK_WRAPS void qk_conv_pack_channels(const struct qk_conv *conv, int32_t x_offset, size_t begin,
                                    size_t end)
{
    const struct qk_conv_constants *from = &conv->constants;
    const uint32_t offset = (uint32_t)x_offset;
    for (size_t m = begin; m < end; m++) {
        const uint32_t bias = from->bias ? (uint32_t)qk_load_i32(from->bias, m) : 0;
        const float product =
            from->x_scale * qk_load_f32(from->w_scale, from->w_scale_count == 1 ? 0 : m);
        conv->bias[m] = (int32_t)(bias - offset * (uint32_t)conv->bias[m]);
        conv->multiplier[m] = product / from->y_scale;
    }
}
