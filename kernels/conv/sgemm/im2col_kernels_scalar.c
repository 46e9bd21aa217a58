#include "kernels/conv/sgemm/im2col_loops.h"
#include "kernels/element/round.h"

/* Compilers make vector code at -O2 only of inner loops whose length is a constant. */
#define CHUNK 16

/* The low byte is y for both types: the clamp has left a value in the type's range. */
static inline uint8_t requantize_one(struct qk_requantize requantize, int32_t sum, float multiplier)
{
    float value = (float)sum * multiplier;
    value = value > requantize.low ? value : requantize.low; /* NaN compares false: low */
    value = value < requantize.high ? value : requantize.high;
    return (uint8_t)(qk_round_even_small(value) + requantize.zero_point);
}

/* Requantizes `count` columns of a row. Inlined into both callers, of which one has a constant
 * count. */
__attribute__((always_inline)) static inline void
requantize_span(const struct qk_requantize_floats *job, size_t row, size_t begin, size_t count)
{
    const struct qk_requantize requantize = *job->requantize;
    const float multiplier = job->multiplier[row];
    const uint32_t bias = (uint32_t)job->bias[row];
    const size_t at = row * job->stride + begin;
    uint8_t *y = job->y + row * job->y_stride + begin;
    uint32_t sums[CHUNK];

    for (size_t i = 0; i < count; i++)
        sums[i] = (uint32_t)(int32_t)job->sums[at + i] + bias;
    if (job->carried)
        for (size_t i = 0; i < count; i++)
            sums[i] += (uint32_t)job->carried[at + i];
    for (size_t i = 0; i < count; i++)
        y[i] = requantize_one(requantize, (int32_t)sums[i], multiplier);
}

static void requantize(const struct qk_requantize_floats *job)
{
    for (size_t row = 0; row < job->rows; row++) {
        size_t begin = 0;
        for (; job->columns - begin >= CHUNK; begin += CHUNK)
            requantize_span(job, row, begin, CHUNK);
        requantize_span(job, row, begin, job->columns - begin);
    }
}

static void im2col(const struct qk_im2col *job)
{
    im2col_all(job, im2col_write_line);
}

const struct qk_im2col_kernels qk_im2col_kernels__scalar = {im2col, requantize};
