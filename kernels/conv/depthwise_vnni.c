#include "kernels/conv/depthwise.h"

#ifdef __x86_64__

#include <string.h>

#include "kernels/conv/requantize_avx512.h"
#include "kernels/conv/sizes.h"

/* Vectors of lanes at a time. */
enum { VECTORS = 4, LANES = QK_DEPTHWISE_LANES, BYTES = QK_DEPTHWISE_BYTES };

/* One output channel of a unit. It is copied where it is used, for it holds no memory that a store
 * could change: a compiler keeps it in registers. */
struct channel {
    const uint8_t *slot;
    const uint32_t *offsets;
    const uint8_t *weights, *ones;
    size_t cells;
    int32_t bias, w_zero_point;
    float multiplier;
    struct qk_requantize_512 to;
    uint8_t *y;
};

static inline __m512i broadcast_cell(const uint8_t *cell)
{
    int32_t word;
    memcpy(&word, cell, sizeof(word));
    return _mm512_set1_epi32(word);
}

/* sums += products of a cell with those at `cells`. */
__attribute__((always_inline)) static inline void
add_cell(const uint8_t *cells, const uint8_t *cell, const size_t vectors, __m512i sums[VECTORS])
{
    const __m512i weights = broadcast_cell(cell);
#pragma GCC unroll 4
    for (size_t v = 0; v < vectors; v++)
        sums[v] = _mm512_dpbusd_epi32(sums[v], _mm512_loadu_si512(cells + v * BYTES), weights);
}

/* `three`: there are three cells. */
__attribute__((always_inline)) static inline void sum(const struct channel *channel,
                                                      const uint8_t *slot, const uint8_t *weights,
                                                      int32_t start, const size_t vectors,
                                                      const bool three, __m512i sums[VECTORS])
{
#pragma GCC unroll 4
    for (size_t v = 0; v < vectors; v++)
        sums[v] = _mm512_set1_epi32(start);
    if (three) {
#pragma GCC unroll 3
        for (size_t c = 0; c < 3; c++)
            add_cell(slot + channel->offsets[c], weights + c * QK_DEPTHWISE_TAPS, vectors, sums);
        return;
    }
    const uint32_t *offset = channel->offsets;
    const uint32_t *end = offset + channel->cells;
    do {
        add_cell(slot + *offset++, weights, vectors, sums);
        weights += QK_DEPTHWISE_TAPS;
    } while (offset != end);
}

/* Positions [first, first + 16 * vectors), of which those in `mask` are there. Inlined with
 * constants, so that sums lie in registers. */
__attribute__((always_inline)) static inline void run_block(const struct channel *channel,
                                                            size_t first, const size_t vectors,
                                                            const bool three, const bool centred,
                                                            uint64_t mask)
{
    const uint8_t *slot = channel->slot + first * QK_DEPTHWISE_TAPS;
    __m512i sums[VECTORS];
    sum(channel, slot, channel->weights, channel->bias, vectors, three, sums);
    if (centred) {
        const __m512i zero_point = _mm512_set1_epi32(channel->w_zero_point);
        __m512i of_x[VECTORS];
        sum(channel, slot, channel->ones, 0, vectors, three, of_x);
#pragma GCC unroll 4
        for (size_t v = 0; v < vectors; v++)
            sums[v] = _mm512_sub_epi32(sums[v], _mm512_mullo_epi32(of_x[v], zero_point));
    }
    const __m512i y = qk_requantize_some(&channel->to, sums, vectors, channel->multiplier);
    _mm512_mask_storeu_epi8(channel->y + first, mask, y);
}

__attribute__((always_inline)) static inline void
run_channel(const struct channel *given, size_t positions, const bool three, const bool centred)
{
    const struct channel channel = *given;
    size_t first = 0;
    for (; positions - first >= VECTORS * LANES; first += VECTORS * LANES)
        run_block(&channel, first, VECTORS, three, centred, UINT64_MAX);
    const size_t left = positions - first;
    const uint64_t mask = (UINT64_C(1) << left) - 1;
    if (left > 3 * LANES)
        run_block(&channel, first, 4, three, centred, mask);
    else if (left > 2 * LANES)
        run_block(&channel, first, 3, three, centred, mask);
    else if (left > LANES)
        run_block(&channel, first, 2, three, centred, mask);
    else if (left > 0)
        run_block(&channel, first, 1, three, centred, mask);
}

/* Dense weights to cells. */
static inline void make_weights(const struct qk_depthwise_job *job, const uint8_t *dense,
                                uint8_t *to)
{
    const struct qk_depthwise_weights *group = job->groups;
    for (size_t i = 0; i < job->cells; i += LANES, group++, to += BYTES)
        _mm512_store_si512(
            to, _mm512_maskz_permutexvar_epi8(group->mask, _mm512_loadu_si512(group->order),
                                              _mm512_loadu_si512(dense + group->from)));
}

static void make_ones(const struct qk_depthwise_job *job)
{
    uint8_t *to = job->work.ones;
    const struct qk_depthwise_weights *group = job->groups;
    for (size_t i = 0; i < job->cells; i += LANES, group++, to += BYTES)
        _mm512_store_si512(to, _mm512_maskz_set1_epi8(group->mask, 1));
}

void qk_depthwise_vnni(const struct qk_depthwise_job *job)
{
    const size_t vectors = qk_depthwise_find_vectors(job);
    const size_t positions = job->rows * job->columns;
    const size_t batch = job->layout->batch;
    struct channel channel = {
        .offsets = job->offsets,
        .ones = job->work.ones,
        .cells = job->cells,
        .to = qk_requantize_512_from(job->requantize, job->y_signed),
        .y = job->y,
    };
    if (job->any_zero_point)
        make_ones(job);
    uint8_t *weights = job->work.weights; /* of the next output channel; they are made early, so
                                             that products do not wait for them */
    uint8_t *weights_made = weights + qk_divide_up(job->cells, LANES) * BYTES;
    make_weights(job, job->weights, weights_made);
    for (size_t begin = 0, m = 0; begin < job->channels; begin += batch) {
        const size_t end = qk_size_min(begin + batch, job->channels);
        qk_depthwise_make_cells(job, vectors, begin, end);
        for (size_t i = 0; i < (end - begin) * job->multiplicity; i++, m++) {
            make_weights(job, job->weights + (m + 1) * job->depth, weights);
            channel.weights = weights_made;
            weights_made = weights;
            weights = (uint8_t *)(uintptr_t)channel.weights;
            channel.slot = job->work.slots + i / job->multiplicity * job->layout->slot_bytes;
            channel.bias = job->bias[m];
            channel.w_zero_point = job->w_zero_point[m];
            channel.multiplier = job->multiplier[m];
            if (channel.w_zero_point != 0)
                run_channel(&channel, positions, false, true);
            else if (channel.cells == 3)
                run_channel(&channel, positions, true, false);
            else
                run_channel(&channel, positions, false, false);
            channel.y += job->y_stride;
        }
    }
}

#endif
