#include "tests/support/kernels/naive_conv.h"

#include <math.h>

bool naive_conv_shape(struct naive_conv *conv)
{
    for (int i = 0; i < 3; i++) {
        int64_t window = conv->dilation[i] * (conv->kernel[i] - 1) + 1;
        if (conv->auto_pad != NAIVE_NOTSET)
            conv->pad_begin[i] = conv->pad_end[i] = 0;
        if (conv->auto_pad == NAIVE_SAME_UPPER || conv->auto_pad == NAIVE_SAME_LOWER) {
            /* One window begins at each stride in x. Pad until the last window fits. */
            int64_t windows = 0;
            while (windows * conv->stride[i] < conv->in[i])
                windows++;
            if (windows == 0)
                return false;
            bool behind = conv->auto_pad == NAIVE_SAME_UPPER;
            while (conv->pad_begin[i] + conv->in[i] + conv->pad_end[i] <
                   (windows - 1) * conv->stride[i] + window) {
                if (behind)
                    conv->pad_end[i]++;
                else
                    conv->pad_begin[i]++;
                behind = !behind;
            }
        }
        int64_t padded = conv->pad_begin[i] + conv->in[i] + conv->pad_end[i];
        conv->out[i] = 0;
        while (conv->out[i] * conv->stride[i] + window <= padded)
            conv->out[i]++;
        if (conv->out[i] == 0)
            return false;
    }
    return true;
}

static int32_t element(const uint8_t *bytes, bool is_signed, int64_t index)
{
    return is_signed ? (int8_t)bytes[index] : bytes[index];
}

static uint8_t requantize(const struct naive_conv *conv, int32_t sum, float w_scale)
{
    const float low = (float)((conv->y_signed ? -128 : 0) - conv->y_zero_point);
    const float high = (float)((conv->y_signed ? 127 : 255) - conv->y_zero_point);
    const float input_scale = conv->x_scale * w_scale;
    const float multiplier = input_scale / conv->y_scale;
    float value = (float)sum * multiplier;
    if (isnan(value) || value < low)
        value = low;
    if (value > high)
        value = high;
    return (uint8_t)((int32_t)nearbyintf(value) + conv->y_zero_point);
}

/* Returns the sum for one output element, modulo 2^32. */
static int32_t sum_window(const struct naive_conv *conv, int64_t n, int64_t m, const int64_t o[3])
{
    const int64_t *in = conv->in;
    const int64_t *kernel = conv->kernel;
    const int64_t channels = conv->channels / conv->group;
    const int64_t first = m / (conv->out_channels / conv->group) * channels;
    uint32_t sum = conv->bias ? (uint32_t)conv->bias[m] : 0;
    for (int64_t c = 0; c < channels; c++)
        for (int64_t k0 = 0; k0 < kernel[0]; k0++)
            for (int64_t k1 = 0; k1 < kernel[1]; k1++)
                for (int64_t k2 = 0; k2 < kernel[2]; k2++) {
                    int64_t i0 =
                        o[0] * conv->stride[0] + k0 * conv->dilation[0] - conv->pad_begin[0];
                    int64_t i1 =
                        o[1] * conv->stride[1] + k1 * conv->dilation[1] - conv->pad_begin[1];
                    int64_t i2 =
                        o[2] * conv->stride[2] + k2 * conv->dilation[2] - conv->pad_begin[2];
                    if (i0 < 0 || i0 >= in[0] || i1 < 0 || i1 >= in[1] || i2 < 0 || i2 >= in[2])
                        continue;
                    int64_t x_index = n * conv->channels + first + c;
                    x_index = ((x_index * in[0] + i0) * in[1] + i1) * in[2] + i2;
                    int64_t w_index = m * channels + c;
                    w_index = ((w_index * kernel[0] + k0) * kernel[1] + k1) * kernel[2] + k2;
                    int32_t x = element(conv->x, conv->x_signed, x_index) - conv->x_zero_point;
                    int32_t w = element(conv->w, conv->w_signed, w_index) - conv->w_zero_point[m];
                    sum += (uint32_t)(x * w);
                }
    return (int32_t)sum;
}

void naive_conv_sums(const struct naive_conv *conv, int32_t *sums)
{
    for (int64_t n = 0; n < conv->images; n++)
        for (int64_t m = 0; m < conv->out_channels; m++)
            for (int64_t o0 = 0; o0 < conv->out[0]; o0++)
                for (int64_t o1 = 0; o1 < conv->out[1]; o1++)
                    for (int64_t o2 = 0; o2 < conv->out[2]; o2++)
                        *sums++ = sum_window(conv, n, m, (int64_t[3]){o0, o1, o2});
}

void naive_conv_run(const struct naive_conv *conv, uint8_t *y)
{
    for (int64_t n = 0; n < conv->images; n++)
        for (int64_t m = 0; m < conv->out_channels; m++)
            for (int64_t o0 = 0; o0 < conv->out[0]; o0++)
                for (int64_t o1 = 0; o1 < conv->out[1]; o1++)
                    for (int64_t o2 = 0; o2 < conv->out[2]; o2++) {
                        int32_t sum = sum_window(conv, n, m, (int64_t[3]){o0, o1, o2});
                        *y++ = requantize(conv, sum, conv->w_scale[m]);
                    }
}
