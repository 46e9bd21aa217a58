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
    __m512i x; /* where the slot says only which bytes of x its cells have: all of them */
    const uint32_t *offsets;
    const uint8_t *weights, *ones;
    size_t cells;
    int32_t bias, w_zero_point;
    float multiplier;
    struct qk_requantize_512 to;
    __m512i order; /* packed bytes to those of y */
    uint8_t *y;
};

static inline __m512i broadcast_cell(const uint8_t *cell)
{
    int32_t word;
    memcpy(&word, cell, sizeof(word));
    return _mm512_set1_epi32(word);
}

/* How channels are computed; constants where it is used. */
struct form {
    bool three;   /* there are three cells */
    bool looked;  /* the slot has orders of x */
    bool centred; /* weights have a zero point */
};

/* sums += products of a cell with those at `cells`. */
__attribute__((always_inline)) static inline void
add_cell(const struct channel *channel, const uint8_t *cells, const uint8_t *cell,
         const size_t vectors, const struct form form, __m512i sums[VECTORS])
{
    const __m512i weights = broadcast_cell(cell);
#pragma GCC unroll 4
    for (size_t v = 0; v < vectors; v++) {
        __m512i x = _mm512_loadu_si512(cells + v * BYTES);
        if (form.looked)
            x = _mm512_permutexvar_epi8(x, channel->x);
        sums[v] = _mm512_dpbusd_epi32(sums[v], x, weights);
    }
}

__attribute__((always_inline)) static inline void sum(const struct channel *channel,
                                                      const uint8_t *slot, const uint8_t *weights,
                                                      int32_t start, const size_t vectors,
                                                      const struct form form, __m512i sums[VECTORS])
{
#pragma GCC unroll 4
    for (size_t v = 0; v < vectors; v++)
        sums[v] = _mm512_set1_epi32(start);
    if (form.three) {
#pragma GCC unroll 3
        for (size_t c = 0; c < 3; c++)
            add_cell(channel, slot + channel->offsets[c], weights + c * QK_DEPTHWISE_TAPS, vectors,
                     form, sums);
        return;
    }
    /* Two sums for each, as every product waits for the one before. */
    __m512i others[VECTORS];
#pragma GCC unroll 4
    for (size_t v = 0; v < vectors; v++)
        others[v] = _mm512_setzero_si512();
    const uint32_t *offset = channel->offsets;
    const uint32_t *end = offset + channel->cells;
    for (; end - offset >= 2; offset += 2, weights += 2 * QK_DEPTHWISE_TAPS) {
        add_cell(channel, slot + offset[0], weights, vectors, form, sums);
        add_cell(channel, slot + offset[1], weights + QK_DEPTHWISE_TAPS, vectors, form, others);
    }
    if (offset != end)
        add_cell(channel, slot + *offset, weights, vectors, form, sums);
#pragma GCC unroll 4
    for (size_t v = 0; v < vectors; v++)
        sums[v] = _mm512_add_epi32(sums[v], others[v]);
}

/* Lanes [first, first + 16 * vectors). Inlined with constants, so that sums lie in registers. */
__attribute__((always_inline)) static inline void run_block(const struct channel *channel,
                                                            size_t first, const size_t vectors,
                                                            const struct form form, uint8_t *y,
                                                            uint64_t mask)
{
    const uint8_t *slot = channel->slot + first * QK_DEPTHWISE_TAPS;
    __m512i sums[VECTORS];
    sum(channel, slot, channel->weights, channel->bias, vectors, form, sums);
    if (form.centred) {
        const __m512i zero_point = _mm512_set1_epi32(channel->w_zero_point);
        __m512i of_x[VECTORS];
        sum(channel, slot, channel->ones, 0, vectors, form, of_x);
#pragma GCC unroll 4
        for (size_t v = 0; v < vectors; v++)
            sums[v] = _mm512_sub_epi32(sums[v], _mm512_mullo_epi32(of_x[v], zero_point));
    }
    const __m512i bytes = qk_requantize_pack(&channel->to, sums, vectors, channel->multiplier);
    _mm512_mask_storeu_epi8(y, mask, _mm512_permutexvar_epi8(channel->order, bytes));
}

/* Lanes, and what a block of 64 or the last, shorter one has of y. */
struct run {
    size_t lanes, block_bytes, last_bytes;
};

__attribute__((always_inline)) static inline void
run_channel(const struct channel *given, struct run run, const struct form form)
{
    const struct channel channel = *given;
    const uint64_t mask = UINT64_MAX >> (BYTES - run.block_bytes);
    uint8_t *y = channel.y;
    size_t first = 0;
    for (; run.lanes - first >= VECTORS * LANES; first += VECTORS * LANES, y += run.block_bytes)
        run_block(&channel, first, VECTORS, form, y, mask);
    const size_t left = run.lanes - first;
    const uint64_t last = (UINT64_C(1) << run.last_bytes) - 1;
    if (left > 3 * LANES)
        run_block(&channel, first, 4, form, y, last);
    else if (left > 2 * LANES)
        run_block(&channel, first, 3, form, y, last);
    else if (left > LANES)
        run_block(&channel, first, 2, form, y, last);
    else if (left > 0)
        run_block(&channel, first, 1, form, y, last);
}

/* Lanes that are positions, without the gaps between lines. Packing works within 16-byte lanes: the
 * q-th has the q-th quarter of each vector. */
static __m512i find_order(size_t width, size_t pitch)
{
    uint8_t order[BYTES];
    for (size_t i = 0; i < BYTES; i++) {
        const size_t lane = i / width * pitch + i % width;
        order[i] = (uint8_t)(lane % LANES / 4 * 16 + lane / LANES * 4 + lane % 4);
    }
    return _mm512_loadu_si512(order);
}

static struct run find_run(const struct qk_depthwise_job *job, struct channel *channel)
{
    const size_t pitch = job->layout->pitch;
    const size_t positions = job->rows * job->columns;
    if (job->layout->rows == 1 || pitch == job->columns) {
        channel->order = find_order(BYTES, BYTES);
        return (struct run){positions, BYTES, positions % BYTES};
    }
    const size_t block_bytes = BYTES / pitch * job->columns;
    channel->order = find_order(job->columns, pitch);
    return (struct run){job->rows * pitch, block_bytes, positions % block_bytes};
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

/* One output channel after the other; slots are there. `weights` are made early, so that products
 * do not wait for them. */
__attribute__((always_inline)) static inline void run_channels(const struct qk_depthwise_job *job,
                                                               struct channel *channel,
                                                               struct run run, size_t begin,
                                                               size_t end, const bool looked)
{
    const size_t multiplicity = job->multiplicity;
    const size_t size = job->geometry->channel_size;
    const size_t weights_bytes = qk_divide_up(job->cells, LANES) * BYTES;
    const __m512i flip = _mm512_set1_epi8((char)job->flip);
    make_weights(job, job->weights + begin * multiplicity * job->depth, job->work.weights);
    for (size_t i = 0; i < (end - begin) * multiplicity; i++) {
        const size_t m = begin * multiplicity + i;
        const uint8_t *weights = job->work.weights + i % 2 * weights_bytes;
        make_weights(job, job->weights + (m + 1) * job->depth,
                     job->work.weights + (i + 1) % 2 * weights_bytes);
        channel->weights = weights;
        channel->y = job->y + m * job->y_stride;
        channel->bias = job->bias[m];
        channel->w_zero_point = job->w_zero_point[m];
        channel->multiplier = job->multiplier[m];
        if (looked)
            channel->x = _mm512_xor_si512(_mm512_mask_loadu_epi8(_mm512_set1_epi8((char)job->fill),
                                                                 (UINT64_C(1) << size) - 1,
                                                                 job->x + m * size),
                                          flip);
        else
            channel->slot = job->work.slots + i / multiplicity * job->layout->slot_bytes;
        if (channel->w_zero_point != 0)
            run_channel(channel, run, (struct form){false, looked, true});
        else if (channel->cells == 3)
            run_channel(channel, run, (struct form){true, looked, false});
        else
            run_channel(channel, run, (struct form){false, looked, false});
    }
}

/* A channel that one vector holds needs no slot of its own: the unit has one, of the bytes'
 * numbers. */
static void run_looked(const struct qk_depthwise_job *job, struct channel *channel, struct run run)
{
    struct qk_depthwise_job numbers = *job;
    uint8_t bytes[BYTES];
    for (size_t i = 0; i < BYTES; i++)
        bytes[i] = (uint8_t)i;
    numbers.x = bytes;
    numbers.x_end = bytes + BYTES;
    numbers.fill = BYTES - 1;
    numbers.flip = 0;
    numbers.channels = 1;
    qk_depthwise_make_cells(&numbers, qk_depthwise_find_runs(&numbers), 0, 1);
    channel->slot = job->work.slots;
    run_channels(job, channel, run, 0, job->channels, true);
}

static void run_unit(const struct qk_depthwise_job *job)
{
    const size_t batch = job->layout->batch;
    struct channel channel = {
        .offsets = job->offsets,
        .ones = job->work.ones,
        .cells = job->cells,
        .to = qk_requantize_512_from(job->requantize, job->y_signed),
    };
    const struct run run = find_run(job, &channel);
    if (job->any_zero_point)
        make_ones(job);
    if (job->multiplicity == 1 && job->geometry->channel_size < BYTES) {
        run_looked(job, &channel, run);
        return;
    }
    const size_t runs = qk_depthwise_find_runs(job);
    for (size_t begin = 0; begin < job->channels; begin += batch) {
        const size_t end = qk_size_min(begin + batch, job->channels);
        qk_depthwise_make_cells(job, runs, begin, end);
        run_channels(job, &channel, run, begin, end, false);
    }
}

/* Lanes are channels. */
static void sum_weights(const uint8_t *weights, size_t channels, size_t depth, int32_t *sums)
{
    const __m512i ones = _mm512_set1_epi8(1);
    const __m512i apart = _mm512_mullo_epi64(_mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0),
                                             _mm512_set1_epi64((long long)depth));
    for (size_t m = 0; m < channels; m += 8, weights += 8 * depth) {
        const __mmask8 there = (__mmask8)((1U << qk_size_min(channels - m, 8)) - 1);
        __m512i sum = _mm512_setzero_si512();
        for (size_t i = 0; i < depth; i += 8) {
            const uint64_t taken = UINT64_MAX >> 8 * (8 - qk_size_min(depth - i, 8));
            const __m512i words = _mm512_mask_i64gather_epi64(_mm512_setzero_si512(), there, apart,
                                                              (const void *)(weights + i), 1);
            sum = _mm512_dpbusd_epi32(sum, ones,
                                      _mm512_and_si512(words, _mm512_set1_epi64((long long)taken)));
        }
        sum = _mm512_add_epi32(sum, _mm512_srli_epi64(sum, 32));
        _mm512_mask_cvtepi64_storeu_epi32(sums + m, there, sum);
    }
}

const struct qk_depthwise qk_depthwise_vnni = {
    .kernel = "conv_depthwise_vnni",
    .run = run_unit,
    .sum = sum_weights,
};

#endif
