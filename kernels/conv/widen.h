/* Subtracts a zero point from bytes, and converts them to floats or adds them up. These are the
 * inner loops of im2col (sgemm) and of packing weights. Private to conv/. */
#pragma once

#include "kernels/qk.h"
#include "kernels/wrap.h"

/* How to read an 8-bit element: (byte ^ flip) - offset. An INT8 is its byte with the top bit
 * flipped, less 128, so one loop serves both types. */
struct qk_widen {
    uint8_t flip;
    int32_t offset;
};

/* Returns how to read elements of `type` (QK_UINT8 or QK_INT8) less `zero_point`. */
static inline struct qk_widen qk_widen_from(enum qk_type type, int32_t zero_point)
{
    return type == QK_INT8 ? (struct qk_widen){0x80, zero_point + 128}
                           : (struct qk_widen){0, zero_point};
}

static inline int32_t qk_widen_one(struct qk_widen widen, uint8_t byte)
{
    return (byte ^ widen.flip) - widen.offset;
}

/* The length of inner loops. Every compiler vectorizes loops of a constant length at -O2. */
#define QK_WIDEN_CHUNK 16

static inline void qk_widen_chunk(struct qk_widen widen, const uint8_t *restrict from,
                                  float *restrict to)
{
    for (size_t j = 0; j < QK_WIDEN_CHUNK; j++)
        to[j] = (float)qk_widen_one(widen, from[j]);
}

/* Converts a row to floats. The last chunk ends with the row, so it may repeat elements of the
 * chunk before it. */
static inline void qk_widen_row(struct qk_widen widen, const uint8_t *restrict from, size_t count,
                                float *restrict to)
{
    if (count < QK_WIDEN_CHUNK) {
        for (size_t i = 0; i < count; i++)
            to[i] = (float)qk_widen_one(widen, from[i]);
        return;
    }
    const size_t last = count - QK_WIDEN_CHUNK;
    for (size_t i = 0; i < last; i += QK_WIDEN_CHUNK)
        qk_widen_chunk(widen, from + i, to + i);
    qk_widen_chunk(widen, from + last, to + last);
}

/* Returns the sum of a row, modulo 2^32. */
QK_WRAPS static inline uint32_t qk_widen_sum(struct qk_widen widen, const uint8_t *from,
                                             size_t count)
{
    uint32_t lanes[QK_WIDEN_CHUNK] = {0};
    uint32_t sum = 0;
    size_t i = 0;
    for (; count - i >= QK_WIDEN_CHUNK; i += QK_WIDEN_CHUNK)
        for (size_t j = 0; j < QK_WIDEN_CHUNK; j++)
            lanes[j] += (uint32_t)qk_widen_one(widen, from[i + j]);
    for (; i < count; i++)
        sum += (uint32_t)qk_widen_one(widen, from[i]);
    for (size_t j = 0; j < QK_WIDEN_CHUNK; j++)
        sum += lanes[j];
    return sum;
}
