#include "kernels/conv/requantize.h"

#include "kernels/element/round.h"

/* Inner loops of a constant length are what every compiler makes vector code of at -O2. */
#define CHUNK 16

struct qk_requantize qk_requantize_for(enum qk_type type, int32_t zero_point)
{
    const struct qk_type_info *info = qk_type_info(type);
    return (struct qk_requantize){
        .low = (float)(info->min - zero_point),
        .high = (float)(info->max - zero_point),
        .zero_point = zero_point,
    };
}

static inline int32_t add_wrapping(int32_t a, int32_t b)
{
    return (int32_t)((uint32_t)a + (uint32_t)b);
}

/* The low byte is y for both types: the clamp has left a value in the type's range. */
static inline uint8_t requantize_one(struct qk_requantize requantize, int32_t sum, float multiplier)
{
    float value = (float)sum * multiplier;
    value = value > requantize.low ? value : requantize.low; /* NaN compares false: low */
    value = value < requantize.high ? value : requantize.high;
    return (uint8_t)(qk_round_even_small(value) + requantize.zero_point);
}

/* Inlined into both callers, of which one has a constant count. */
__attribute__((always_inline)) static inline void
requantize_span(struct qk_requantize requantize, const struct qk_requantize_row *row, size_t begin,
                size_t count)
{
    const float multiplier = row->multiplier;
    const int32_t bias = row->bias;
    const float *from = row->sums + begin;
    uint8_t *y = row->y + begin;
    int32_t sums[CHUNK];

    for (size_t i = 0; i < count; i++)
        sums[i] = add_wrapping((int32_t)from[i], bias);
    if (row->carried)
        for (size_t i = 0; i < count; i++)
            sums[i] = add_wrapping(sums[i], row->carried[begin + i]);
    for (size_t i = 0; i < count; i++)
        y[i] = requantize_one(requantize, sums[i], multiplier);
}

void qk_requantize_row(const struct qk_requantize *requantize, const struct qk_requantize_row *row)
{
    size_t begin = 0;
    for (; row->count - begin >= CHUNK; begin += CHUNK)
        requantize_span(*requantize, row, begin, CHUNK);
    requantize_span(*requantize, row, begin, row->count - begin);
}

void qk_requantize_carry(const float *restrict sums, size_t count, int32_t *restrict carried)
{
    size_t i = 0;
    for (; count - i >= CHUNK; i += CHUNK)
        for (size_t j = 0; j < CHUNK; j++)
            carried[i + j] = add_wrapping(carried[i + j], (int32_t)sums[i + j]);
    for (; i < count; i++)
        carried[i] = add_wrapping(carried[i], (int32_t)sums[i]);
}
