#include "kernels/elementwise/spread.h"

#include <string.h>

static void spread(qk_repeat_fn repeat, const uint32_t *from, size_t stride,
                   const struct qk_grid_piece *piece, uint32_t *to)
{
    if (stride == 0)
        repeat(to, piece->count, from, 0, SIZE_MAX, 0);
    else if (piece->block > 1)
        repeat(to, piece->count, from, stride, piece->block, piece->block_done);
    else if (stride == 1)
        memcpy(to, from, piece->count * sizeof(*to));
    else
        for (size_t i = 0; i < piece->count; i++)
            to[i] = from[i * stride];
}

void qk_spread_parameters(qk_repeat_fn repeat, const struct qk_parameters *parameters,
                          const struct qk_grid_piece *piece, const struct qk_spread *to, size_t at)
{
    spread(repeat, parameters->scales + piece->scale, piece->scale_stride, piece, to->scales + at);
    if (parameters->zeros)
        spread(repeat, parameters->zeros + piece->zero_point, piece->zero_point_stride, piece,
               to->zeros + at);
    if (parameters->offsets)
        spread(repeat, parameters->offsets + piece->scale, piece->scale_stride, piece,
               to->offsets + at);
}

void qk_spread_elements(const void *x, size_t bytes, const struct qk_grid_piece *piece, void *to)
{
    const char *from = (const char *)x + piece->x * bytes;
    const size_t step = piece->x_stride * bytes;
    char *at = to;
    if (piece->x_stride == 1)
        memcpy(at, from, piece->count * bytes);
    else if (bytes == 1)
        for (size_t i = 0; i < piece->count; i++)
            at[i] = from[i * step];
    else if (bytes == 2)
        for (size_t i = 0; i < piece->count; i++)
            memcpy(at + 2 * i, from + i * step, 2);
    else
        for (size_t i = 0; i < piece->count; i++)
            memcpy(at + 4 * i, from + i * step, 4);
}
