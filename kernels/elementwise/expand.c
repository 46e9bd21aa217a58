#include "kernels/elementwise/expand.h"

#include <string.h>

static void expand(qk_repeat_fn repeat, const uint32_t *from, size_t stride,
                   const struct qk_row_segment *segment, uint32_t *to)
{
    if (stride == 0)
        repeat(to, segment->count, from, 0, SIZE_MAX, 0);
    else if (segment->block > 1)
        repeat(to, segment->count, from, stride, segment->block, segment->block_done);
    else if (stride == 1)
        memcpy(to, from, segment->count * sizeof(*to));
    else
        for (size_t i = 0; i < segment->count; i++)
            to[i] = from[i * stride];
}

void qk_expand_parameters(qk_repeat_fn repeat, const struct qk_parameters *parameters,
                          const struct qk_row_segment *segment, const struct qk_expanded *to,
                          size_t at)
{
    expand(repeat, parameters->scales + segment->scale, segment->scale_stride, segment,
           to->scales + at);
    if (parameters->zeros)
        expand(repeat, parameters->zeros + segment->zero_point, segment->zero_point_stride, segment,
               to->zeros + at);
    if (parameters->offsets)
        expand(repeat, parameters->offsets + segment->scale, segment->scale_stride, segment,
               to->offsets + at);
}

void qk_gather_elements(const void *x, size_t bytes, const struct qk_row_segment *segment, void *to)
{
    const char *from = (const char *)x + segment->x * bytes;
    const size_t step = segment->x_stride * bytes;
    char *at = to;
    if (segment->x_stride == 1)
        memcpy(at, from, segment->count * bytes);
    else if (bytes == 1)
        for (size_t i = 0; i < segment->count; i++)
            at[i] = from[i * step];
    else if (bytes == 2)
        for (size_t i = 0; i < segment->count; i++)
            memcpy(at + 2 * i, from + i * step, 2);
    else
        for (size_t i = 0; i < segment->count; i++)
            memcpy(at + 4 * i, from + i * step, 4);
}
