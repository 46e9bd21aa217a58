#include "kernels/elementwise/span.h"

#include <stdint.h>

static const void *words_from(const void *words, size_t index)
{
    return words ? (const uint32_t *)words + index : NULL;
}

struct qk_span qk_span_part(const struct qk_span *span, size_t begin, size_t end)
{
    struct qk_span part = *span;
    const size_t blocks = (span->done + begin) / span->block;
    part.x_first += begin;
    part.y_first += begin;
    part.count = end - begin;
    part.done = (span->done + begin) % span->block;
    if (span->period) {
        part.p = (span->p + blocks) % span->period;
        return part;
    }
    part.scales = words_from(span->scales, blocks);
    part.zeros = words_from(span->zeros, blocks);
    part.offsets = words_from(span->offsets, blocks);
    return part;
}
