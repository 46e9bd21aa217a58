#include "tests/support/kernels/conv_case.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/guarded.h"
#include "tests/support/kernels/qk_test.h"

/* ---- Random cases ------------------------------------------------------------------------ */

static int64_t between(uint64_t *state, int64_t least, int64_t most)
{
    return least + (int64_t)qk_test_random_below(state, (size_t)(most - least + 1));
}

static bool one_in(uint64_t *state, size_t n)
{
    return qk_test_random_below(state, n) == 0;
}

static int32_t random_zero_point(uint64_t *state, bool is_signed)
{
    static const int32_t ends[] = {0, 128, 255};
    int32_t value = one_in(state, 2) ? ends[between(state, 0, 2)] : (int32_t)between(state, 0, 255);
    return value - (is_signed ? 128 : 0);
}

static void random_axis(struct naive_conv *naive, int i, int64_t most, uint64_t *state)
{
    naive->kernel[i] = between(state, 1, 1 + most / 3);
    naive->dilation[i] = one_in(state, 3) ? between(state, 1, 4) : 1;
    naive->stride[i] = one_in(state, 2) ? between(state, 1, 6) : 1;
    naive->pad_begin[i] = one_in(state, 2) ? between(state, 0, 7) : 0;
    naive->pad_end[i] = one_in(state, 2) ? between(state, 0, 7) : 0;
    naive->in[i] = between(state, one_in(state, 30) ? 0 : 1, most);
}

static void random_channels(struct naive_conv *naive, uint64_t *state)
{
    naive->images = between(state, one_in(state, 20) ? 0 : 1, 3);
    naive->group = one_in(state, 2) ? between(state, 1, 5) : 1;
    int64_t channels = between(state, one_in(state, 40) ? 0 : 1, 6);
    int64_t out_channels = between(state, one_in(state, 40) ? 0 : 1, 6);
    if (one_in(state, 4))
        channels = 1; /* depthwise if there are groups */
    else if (one_in(state, 5))
        channels = between(state, 7, 150); /* more than a step holds */
    if (one_in(state, 5))
        out_channels = between(state, 7, 80); /* more than a panel holds */
    naive->channels = channels * naive->group;
    naive->out_channels = out_channels * naive->group;
}

void conv_case_random(struct conv_case *test, uint32_t spatial_rank, uint64_t seed)
{
    static const int64_t most_in[] = {0, 70, 20, 8};
    struct naive_conv *naive = &test->naive;
    uint64_t state = seed * 2 + 1;
    for (int i = 0; i < 8; i++)
        qk_test_random(&state); /* so that neighbouring seeds give different numbers */
    *test = (struct conv_case){.spatial_rank = spatial_rank};
    random_channels(naive, &state);
    naive->auto_pad = one_in(&state, 3) ? (enum naive_auto_pad)between(&state, 0, 3) : NAIVE_NOTSET;
    for (int i = 0; i < 3; i++) {
        naive->in[i] = naive->kernel[i] = naive->stride[i] = naive->dilation[i] = 1;
        if (i >= 3 - (int)spatial_rank)
            random_axis(naive, i, most_in[spatial_rank], &state);
    }
    naive->x_signed = seed & 1;
    naive->w_signed = seed & 2;
    naive->y_signed = seed & 4;
    naive->x_zero_point = random_zero_point(&state, naive->x_signed);
    naive->y_zero_point = random_zero_point(&state, naive->y_signed);
    naive->x_scale = (float)between(&state, 1, 1000) / 1000;
    naive->y_scale = (float)between(&state, 1, 1000) * (one_in(&state, 2) ? 0.1f : 1);
    test->w_scale_all = (float)between(&state, one_in(&state, 9) ? -1000 : 1, 1000) / 100;
    test->w_scale_per_channel = one_in(&state, 2);
    test->w_zero_point_per_channel = one_in(&state, 2);
    test->with_bias = one_in(&state, 2);
    test->bare = one_in(&state, 2);
    test->vectors = one_in(&state, 2);
    test->x_fill = one_in(&state, 8) ? (enum conv_fill)between(&state, 0, 2) : CONV_FILL_RANDOM;
    test->w_fill = one_in(&state, 8) ? (enum conv_fill)between(&state, 0, 2) : CONV_FILL_RANDOM;
    test->seed = qk_test_random(&state) | 1;
    static const enum conv_fill fills[] = {CONV_FILL_RANDOM, CONV_FILL_SMALL, CONV_FILL_MIXED};
    test->w_fill = fills[qk_test_random_below(&state, 3)];
}

/* ---- Contents ---------------------------------------------------------------------------- */

/* Allocates exactly `bytes`, without alignment, so that an access beyond the end is seen. */
static void *exact(size_t bytes)
{
    return guarded_alloc(bytes, 1);
}

static uint8_t *random_bytes(size_t count, bool is_signed, enum conv_fill fill, uint64_t *state)
{
    uint8_t *bytes = exact(count);
    if (fill == CONV_FILL_MIN || fill == CONV_FILL_MAX)
        return memset(bytes, (fill == CONV_FILL_MAX ? 255 : 0) ^ (is_signed ? 128 : 0), count);
    for (size_t i = 0; i < count; i++) {
        bytes[i] = (uint8_t)(qk_test_random(state) >> 56);
        if (fill == CONV_FILL_SMALL || (fill == CONV_FILL_MIXED && !one_in(state, 256)))
            bytes[i] = (uint8_t)((64 + bytes[i] / 2) ^ (is_signed ? 128 : 0));
    }
    return bytes;
}

static void make_channels(struct conv_case *test, uint64_t *state)
{
    struct naive_conv *naive = &test->naive;
    size_t count = (size_t)naive->out_channels;
    test->w_scale = guarded_alloc((count + 1) * sizeof(float), sizeof(float));
    test->w_zero_point = guarded_alloc((count + 1) * sizeof(int32_t), sizeof(int32_t));
    test->w_zero_point_bytes = exact(count + 1);
    test->bias = guarded_alloc(count * sizeof(int32_t), sizeof(int32_t));
    for (size_t i = 0; i <= count; i++) {
        bool own_scale = i > 0 && test->w_scale_per_channel;
        bool own_zero_point = i == 0 || test->w_zero_point_per_channel;
        test->w_scale[i] =
            own_scale ? test->w_scale_all * (float)between(state, 1, 99) / 50 : test->w_scale_all;
        if (test->w_zero_point_all)
            test->w_zero_point[i] = *test->w_zero_point_all;
        else
            test->w_zero_point[i] =
                own_zero_point ? random_zero_point(state, naive->w_signed) : test->w_zero_point[0];
        test->w_zero_point_bytes[i] = (uint8_t)test->w_zero_point[i];
    }
    for (size_t i = 0; i < count; i++) {
        uint32_t bits = (uint32_t)(qk_test_random(state) >> 32);
        test->bias[i] = one_in(state, 3) ? (int32_t)bits : (int32_t)bits >> 16;
    }
    naive->w_scale = test->w_scale;
    naive->w_zero_point = test->w_zero_point;
    naive->bias = test->with_bias && test->form != CONV_FORM_INTEGER ? test->bias : NULL;
}

/* ---- The call ---------------------------------------------------------------------------- */

static void give_scalar(struct conv_case *test, const char *name, enum qk_type type,
                        const void *data)
{
    qk_test_call_input(&test->call, name, type, data, test->vectors ? 1 : 0, (size_t[]){1});
}

static void give_tensor(struct conv_case *test, const char *name, bool is_signed,
                        const uint8_t *data, int64_t dim0, int64_t dim1, const int64_t dims[3])
{
    const bool last = data != NULL && data == test->x_last;
    size_t all[5] = {(size_t)dim0};
    all[last ? test->spatial_rank + 1 : 1] = (size_t)dim1;
    for (uint32_t i = 0; i < test->spatial_rank; i++)
        all[(last ? 1 : 2) + i] = (size_t)dims[3 - test->spatial_rank + i];
    qk_test_call_input(&test->call, name, is_signed ? QK_INT8 : QK_UINT8, data,
                       test->spatial_rank + 2, all);
}

static void give_list(struct conv_case *test, const char *name, const int64_t *list, size_t count,
                      int64_t usual)
{
    bool differs = !test->bare;
    for (size_t i = 0; i < count; i++)
        differs = differs || list[i] != usual;
    if (differs)
        qk_test_call_ints(&test->call, name, list, count);
}

static void give_attributes(struct conv_case *test)
{
    static const char *const auto_pads[] = {"NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"};
    const struct naive_conv *naive = &test->naive;
    const size_t rank = test->spatial_rank;
    for (size_t i = 0; i < rank; i++) {
        size_t axis = 3 - rank + i;
        test->kernel_shape[i] = naive->kernel[axis];
        test->strides[i] = naive->stride[axis];
        test->dilations[i] = naive->dilation[axis];
        test->pads[i] = naive->pad_begin[axis];
        test->pads[rank + i] = naive->pad_end[axis];
    }
    give_list(test, "strides", test->strides, rank, 1);
    give_list(test, "dilations", test->dilations, rank, 1);
    if (!test->bare)
        qk_test_call_ints(&test->call, "kernel_shape", test->kernel_shape, rank);
    if (naive->auto_pad == NAIVE_NOTSET)
        give_list(test, "pads", test->pads, 2 * rank, 0);
    if (naive->auto_pad != NAIVE_NOTSET || !test->bare)
        qk_test_call_string(&test->call, "auto_pad", auto_pads[naive->auto_pad]);
    if (naive->group != 1 || !test->bare)
        qk_test_call_int(&test->call, "group", naive->group);
}

static void give_inputs(struct conv_case *test)
{
    const struct naive_conv *naive = &test->naive;
    const size_t channels[] = {(size_t)naive->out_channels};
    enum qk_type x_type = naive->x_signed ? QK_INT8 : QK_UINT8;
    enum qk_type w_type = naive->w_signed ? QK_INT8 : QK_UINT8;
    test->x_zero_point = (uint8_t)naive->x_zero_point;
    test->y_zero_point = (uint8_t)naive->y_zero_point;
    give_tensor(test, "x", naive->x_signed, test->x_last ? test->x_last : test->x, naive->images,
                naive->channels, naive->in);
    give_tensor(test, "w", naive->w_signed, test->w, naive->out_channels,
                naive->channels / naive->group, naive->kernel);
    give_scalar(test, "x_zero_point", x_type, &test->x_zero_point);
    give_scalar(test, "w_zero_point", w_type, test->w_zero_point_bytes);
    if (test->w_zero_point_per_channel)
        qk_test_call_input(&test->call, "w_zero_point", w_type, test->w_zero_point_bytes, 1,
                           channels);
    if (test->form == CONV_FORM_INTEGER)
        return;
    give_scalar(test, "x_scale", QK_FP32, &naive->x_scale);
    give_scalar(test, "w_scale", QK_FP32, test->w_scale);
    give_scalar(test, "y_scale", QK_FP32, &naive->y_scale);
    give_scalar(test, "y_zero_point", naive->y_signed ? QK_INT8 : QK_UINT8, &test->y_zero_point);
    if (test->w_scale_per_channel)
        qk_test_call_input(&test->call, "w_scale", QK_FP32, test->w_scale, 1, channels);
    if (test->with_bias)
        qk_test_call_input(&test->call, "B", QK_INT32, test->bias, 1, channels);
}

/* Moves the channels of `images` images behind their positions. */
static void move_channels(const uint8_t *from, size_t images, size_t channels, size_t positions,
                          uint8_t *to)
{
    for (size_t n = 0; n < images; n++, from += channels * positions)
        for (size_t p = 0; p < positions; p++)
            for (size_t c = 0; c < channels; c++)
                *to++ = from[c * positions + p];
}

static size_t volume(int64_t dim0, int64_t dim1, const int64_t dims[3])
{
    return (size_t)(dim0 * dim1 * dims[0] * dims[1] * dims[2]);
}

bool conv_case_make(struct conv_case *test)
{
    static const char *const names[] = {"onnx.QLinearConv", "com.microsoft.QLinearConv",
                                        "onnx.ConvInteger"};
    static const uint64_t versions[] = {10, 1, 10};
    struct naive_conv *naive = &test->naive;
    uint64_t state = test->seed;
    test->x_bytes = volume(naive->images, naive->channels, naive->in);
    test->w_bytes = volume(naive->out_channels, naive->channels / naive->group, naive->kernel);
    test->x = random_bytes(test->x_bytes, naive->x_signed, test->x_fill, &state);
    test->w = random_bytes(test->w_bytes, naive->w_signed, test->w_fill, &state);
    naive->x = test->x;
    naive->w = test->w;
    make_channels(test, &state);
    if (test->form == CONV_FORM_CHANNELS_LAST) {
        test->x_last = exact(test->x_bytes);
        move_channels(test->x, (size_t)naive->images, (size_t)naive->channels,
                      volume(1, 1, naive->in), test->x_last);
    }
    qk_test_call_init(&test->call, names[test->form], versions[test->form]);
    if (test->form == CONV_FORM_CHANNELS_LAST)
        qk_test_call_int(&test->call, "channels_last", 1);
    give_inputs(test);
    give_attributes(test);
    if (!naive_conv_shape(naive))
        return false;
    test->y_bytes = volume(naive->images, naive->out_channels, naive->out) *
                    (test->form == CONV_FORM_INTEGER ? sizeof(int32_t) : 1);
    return true;
}

void conv_case_expect(struct conv_case *test)
{
    const struct naive_conv *naive = &test->naive;
    if (test->form == CONV_FORM_INTEGER) {
        test->expected = guarded_alloc(test->y_bytes, sizeof(int32_t));
        naive_conv_sums(naive, (int32_t *)(void *)test->expected);
        return;
    }
    test->expected = exact(test->y_bytes);
    naive_conv_run(naive, test->expected);
    if (test->form == CONV_FORM_QLINEAR)
        return;
    uint8_t *moved = exact(test->y_bytes);
    move_channels(test->expected, (size_t)naive->images, (size_t)naive->out_channels,
                  volume(1, 1, naive->out), moved);
    guarded_free(test->expected);
    test->expected = moved;
}

void conv_case_deinit(struct conv_case *test)
{
    void *const blocks[] = {
        test->x,    test->w,       test->expected, test->w_zero_point_bytes, test->w_zero_point,
        test->bias, test->w_scale, test->x_last};
    for (size_t i = 0; i < sizeof(blocks) / sizeof(blocks[0]); i++)
        if (blocks[i])
            guarded_free(blocks[i]);
}

const char *conv_case_text(const struct conv_case *test, char text[512])
{
    const struct naive_conv *naive = &test->naive;
    int used =
        snprintf(text, 512, "form %d, %u-D, N %d C %d M %d group %d, %c8 %c8 %c8, auto_pad %d",
                 (int)test->form, test->spatial_rank, (int)naive->images, (int)naive->channels,
                 (int)naive->out_channels, (int)naive->group, naive->x_signed ? 's' : 'u',
                 naive->w_signed ? 's' : 'u', naive->y_signed ? 's' : 'u', (int)naive->auto_pad);
    for (int i = 3 - (int)test->spatial_rank; i < 3; i++)
        used +=
            snprintf(text + used, 512 - (size_t)used,
                     "; in %d out %d kernel %d stride %d dilation %d pads %d %d", (int)naive->in[i],
                     (int)naive->out[i], (int)naive->kernel[i], (int)naive->stride[i],
                     (int)naive->dilation[i], (int)naive->pad_begin[i], (int)naive->pad_end[i]);
    return text;
}
