/* Computes quantized convolutions by their definition: the oracle of the tests of kernels/conv,
 * with which it shares no code. It is slow, and meant to be obviously right. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum naive_auto_pad { NAIVE_NOTSET, NAIVE_VALID, NAIVE_SAME_UPPER, NAIVE_SAME_LOWER };

/* There are always three spatial axes. Unused axes have size 1 and kernel 1. */
struct naive_conv {
    int64_t images, channels, out_channels, group;
    int64_t in[3], kernel[3], stride[3], dilation[3];
    int64_t pad_begin[3], pad_end[3]; /* set by naive_conv_shape unless auto_pad is NOTSET */
    enum naive_auto_pad auto_pad;
    int64_t out[3]; /* set by naive_conv_shape */

    bool x_signed, w_signed, y_signed;
    const uint8_t *x, *w; /* an INT8 is stored as its byte */
    int32_t x_zero_point, y_zero_point;
    const int32_t *w_zero_point; /* [out_channels] */
    float x_scale, y_scale;
    const float *w_scale; /* [out_channels] */
    const int32_t *bias;  /* [out_channels], or NULL */
};

/* Computes `out`. Returns false if no window fits an axis. */
bool naive_conv_shape(struct naive_conv *conv);

/* Computes y, which has images * out_channels * out[0] * out[1] * out[2] bytes. */
void naive_conv_run(const struct naive_conv *conv, uint8_t *y);

/* Computes as many sums, modulo 2^32, instead of y. */
void naive_conv_sums(const struct naive_conv *conv, int32_t *sums);
