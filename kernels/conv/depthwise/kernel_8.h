/* The loops of depthwise convolutions on vectors of 8 lanes (kernels/conv/depthwise/depthwise.h).
 * Quads are made in vectors of 8. Products may take two such vectors at once, as 16 lanes. Only for
 * kernel_ymm.h and kernel_neon.h, which define these names before they include this file:
 *
 * - PLACE[t]: the byte of a quad that tap t gets; store_quads may then move it;
 * - HALF(buffer_bytes): the weights of a quad may be several 32-bit words. This is the distance, in
 *   bytes, from the quads that one word is multiplied by to the quads that the next word is
 *   multiplied by; 0 if they are the same quads;
 * - bytes_16 and load_16; bytes_32, load_32 and splat_32; twice_16 and join_16, which make bytes_32
 *   of bytes_16; permute_32, which permutes each half by an order, in which 0x80 gives 0, and xors
 *   the result;
 * - SUM_LANES, how many lanes a vector of sums has: 8 or 16; load_quads, which loads a quad for
 *   each lane;
 * - lane_taps, the same word of weights for each lane, and splat_taps;
 * - lane_sums and splat_sum; requantize_4, which makes bytes of four vectors of sums;
 * - store_quads, which stores 8 quads in a channel buffer whose halves are `half` bytes apart;
 * - store_weights, which permutes dense weights into the weights of 4 quads, each of one or more
 *   words;
 * - add_products, which adds products to a vector of sums; base_of, which returns the address of
 *   quads in a form that suits their loads. */
#pragma once

#ifdef HALF

#include <string.h>

#include "kernels/sizes.h"

enum {
    TAPS = QK_DEPTHWISE_TAPS,
    LOAD = QK_DEPTHWISE_LOAD_8,
    QUADS = LOAD / TAPS, /* quads of a load */
    LANES = 2 * QUADS,   /* a vector has one load for each half */
    BYTES = 2 * LOAD,
    VECTORS = 4, /* vectors of sums of an N tile */
    SUM_BYTES = SUM_LANES * TAPS
};

/* ---- Load patterns ------------------------------------------------------------------------- */

/* Works out one half of a vector of quads: which bytes of x one load has to put where. The half
 * begins with quad number `quad` of its row, and its load begins at the element that quad number
 * `first` reads. Returns the column of x at which the load begins. The load is permuted by `order`,
 * in which 0x80 gives 0, and xored with `flip`, which turns x into operands, and 0 into fill. Bytes
 * behind the last quad of the row become fill. */
static size_t see_half(const struct qk_depthwise_job *job, size_t array, size_t first, size_t quad,
                       uint8_t order[LOAD], uint8_t flip[LOAD])
{
    const struct qk_conv_axis *axis = &job->geometry->axis[QK_AXIS_COLUMN];
    const size_t first_tap = array * job->layout->taps;
    const size_t taps = qk_size_min(job->layout->taps, (size_t)axis->kernel - first_tap);
    const size_t width = job->layout->width;
    const size_t quads = quad < width ? qk_size_min(width - quad, QUADS) : 0;
    const int64_t input_index = qk_conv_input_index(axis, job->column + first, first_tap);
    const int64_t begin = input_index > 0 && input_index < axis->in ? input_index : 0;
    memset(order, 0x80, LOAD);
    memset(flip, job->fill ^ job->flip, LOAD);
    for (size_t i = 0; i < quads; i++)
        for (size_t t = 0; t < taps; t++) {
            const int64_t at = qk_conv_input_index(axis, job->column + quad + i, first_tap + t);
            if (at < 0 || at >= axis->in)
                continue;
            order[i * TAPS + PLACE[t]] = (uint8_t)(at - begin);
            flip[i * TAPS + PLACE[t]] = job->flip;
        }
    return (size_t)begin;
}

/* A qk_depthwise_add_vector that adds one load pattern. */
static size_t add_vector(const struct qk_depthwise_job *job, size_t array, size_t quad,
                         const struct qk_depthwise_quad_rows *quad_rows,
                         struct qk_depthwise_load_pattern *patterns)
{
    const struct qk_depthwise_layout *layout = job->layout;
    const struct qk_conv_axis *axis = &job->geometry->axis[QK_AXIS_COLUMN];
    /* True if one load has all bytes of 8 quads. */
    const bool one =
        (LANES - 1) * axis->stride + (int64_t)(layout->taps - 1) * axis->dilation < LOAD;
    const size_t behind = quad + QUADS;
    uint8_t *order = patterns->order, *flip = order + BYTES;
    const size_t low = see_half(job, array, quad, quad, order, flip);
    const size_t high =
        see_half(job, array, one ? quad : behind, behind, order + LOAD, flip + LOAD);
    patterns->offset = quad_rows->row + low;
    patterns->offset_step = quad_rows->row_step;
    patterns->apart = high - low;
    patterns->to = (quad_rows->quad_row * layout->pitch + quad) * TAPS;
    patterns->to_step = layout->pitch * TAPS;
    patterns->count = quad_rows->count;
    return 1;
}

/* ---- Quads ------------------------------------------------------------------------------- */

/* Loads 16 bytes of x. With near_end, bytes behind the end of x are not read; they become 0. */
static inline bytes_16 load_x(const uint8_t *from, const uint8_t *x_end, const bool near_end)
{
    uint8_t bytes[LOAD] = {0};
    if (!near_end || x_end - from >= LOAD)
        return load_16(from);
    memcpy(bytes, from, (size_t)(x_end - from));
    return load_16(bytes);
}

/* Makes the quads of a load pattern for channels [begin, end). `one`: both halves of a vector come
 * from the same load. `near_end`: some loads would end behind x. */
__attribute__((always_inline)) static inline void
make_quad_rows(const struct qk_depthwise_job *job, const struct qk_depthwise_load_pattern *pattern,
               size_t begin, size_t end, const bool one, const bool near_end)
{
    const size_t channel_size = job->geometry->channel_size;
    const size_t buffer_bytes = job->layout->buffer_bytes;
    const uint8_t *x = job->x + begin * channel_size + pattern->offset, *x_end = job->x_end;
    uint8_t *buffer = job->work.buffers + pattern->to;
    const bytes_32 order = load_32(pattern->order);
    const bytes_32 flip = load_32(pattern->order + BYTES);
    const size_t apart = pattern->apart;
    const size_t from_step = pattern->offset_step, to_step = pattern->to_step;
    const size_t count = pattern->count;
    for (size_t c = begin; c < end; c++, x += channel_size, buffer += buffer_bytes) {
        const uint8_t *from = x;
        uint8_t *to = buffer;
        for (size_t left = count; left > 0; left--, from += from_step, to += to_step) {
            const bytes_16 low = load_x(from, x_end, near_end);
            const bytes_32 bytes =
                one ? twice_16(low) : join_16(low, load_x(from + apart, x_end, near_end));
            store_quads(to, buffer_bytes / 2, permute_32(bytes, order, flip));
        }
    }
}

/* Makes the quads of channels [begin, end) in the channel buffers, from the first buffer on. */
static void make_quads(const struct qk_depthwise_job *job, size_t count, size_t begin, size_t end)
{
    const uint8_t *x_end = job->x + end * job->geometry->channel_size;
    const bool near_end = job->x_end - x_end < LOAD;
    for (const struct qk_depthwise_load_pattern *pattern = job->work.patterns; count > 0;
         count--, pattern++)
        if (near_end)
            make_quad_rows(job, pattern, begin, end, false, true);
        else if (pattern->apart == 0)
            make_quad_rows(job, pattern, begin, end, true, false);
        else
            make_quad_rows(job, pattern, begin, end, false, false);
}

static void fill_buffers(const struct qk_depthwise_job *job)
{
    const size_t buffer_bytes = job->layout->buffer_bytes;
    const size_t count = qk_size_min(job->layout->batch, job->channels);
    const bytes_32 fill = splat_32(job->fill ^ job->flip);
    for (uint8_t *buffer = job->work.buffers; buffer < job->work.buffers + count * buffer_bytes;
         buffer += buffer_bytes)
        for (size_t at = 0; at < buffer_bytes / 2; at += BYTES)
            store_quads(buffer + at, buffer_bytes / 2, fill);
}

/* ---- Products ---------------------------------------------------------------------------- */

/* An output channel: its weights, the quads that they are multiplied by, and its parameters. Passed
 * by value, so that the compiler can see that storing y does not change the members. */
struct output {
    const uint32_t *offsets;
    size_t quads;
    size_t half; /* bytes from the quads of one word of weights to those of the next */
    struct qk_requantize requantize;
    const uint8_t *buffer, *weights;
    size_t begin, end; /* the quads that may read x; all others read only fill */
    bool fill_is_0;
    int32_t bias;
    float multiplier;
};

/* Adds the products of one word of weights and the quads of `vectors` vectors. */
__attribute__((always_inline)) static inline void
add_word(const uint8_t *quads, int32_t taps, const size_t vectors, lane_sums sums[VECTORS])
{
    const lane_taps w = splat_taps(taps);
    const uint8_t *base = base_of(quads);
#pragma GCC unroll 4
    for (size_t v = 0; v < vectors; v++)
        sums[v] = add_products(sums[v], load_quads(base + v * SUM_BYTES), w);
}

/* Adds the products of quad c of the output channel's weights, for the lanes from `first` on. */
__attribute__((always_inline)) static inline void add_quad(const struct output *output, size_t c,
                                                           size_t first, const size_t words,
                                                           const size_t vectors,
                                                           lane_sums sums[VECTORS])
{
    const uint8_t *quads = output->buffer + output->offsets[c] + first * TAPS;
    const uint8_t *weights = output->weights + c * words * TAPS;
    int32_t taps;
    memcpy(&taps, weights, sizeof(taps));
    add_word(quads, taps, vectors, sums);
#pragma GCC unroll 2
    for (size_t p = 1; p < words; p++) {
        memcpy(&taps, weights + p * TAPS, sizeof(taps));
        if (taps != 0) /* 0 if the quad has too few taps, or if its channel has no zero point */
            add_word(quads + p * output->half, taps, vectors, sums);
    }
}

/* Returns what all sums begin with: the bias, and the products of quads that read only fill, which
 * are the same in all lanes. */
__attribute__((always_inline)) static inline lane_sums begin_sums(const struct output *output,
                                                                  const size_t words)
{
    lane_sums sums[VECTORS] = {splat_sum(output->bias)};
    for (size_t c = 0; !output->fill_is_0 && c < output->begin; c++)
        add_quad(output, c, 0, words, 1, sums);
    for (size_t c = output->end; !output->fill_is_0 && c < output->quads; c++)
        add_quad(output, c, 0, words, 1, sums);
    return sums[0];
}

/* Computes an N tile: lanes [first, first + SUM_LANES * vectors). Inlined with constants, so that
 * the compiler keeps sums in registers. */
__attribute__((always_inline)) static inline void run_n_tile(const struct output *output,
                                                             lane_sums begin, size_t first,
                                                             const size_t words,
                                                             const size_t vectors, uint8_t *y)
{
    lane_sums sums[VECTORS];
#pragma GCC unroll 4
    for (size_t v = 0; v < vectors; v++)
        sums[v] = begin;
    for (size_t c = output->begin; c < output->end; c++)
        add_quad(output, c, first, words, vectors, sums);
#pragma GCC unroll 4
    for (size_t v = vectors; v < VECTORS; v++)
        sums[v] = sums[0]; /* the compiler sees that equal sums are requantized already */
    uint8_t lanes[VECTORS * SUM_LANES];
    requantize_4(&output->requantize, sums, output->multiplier, lanes);
    memcpy(y, lanes, vectors * SUM_LANES);
}

__attribute__((always_inline)) static inline void run_vectors(const struct output *output,
                                                              lane_sums begin, size_t first,
                                                              const size_t words, size_t vectors,
                                                              uint8_t *y)
{
    if (vectors == 4)
        run_n_tile(output, begin, first, words, 4, y);
    else if (vectors == 3)
        run_n_tile(output, begin, first, words, 3, y);
    else if (vectors == 2)
        run_n_tile(output, begin, first, words, 2, y);
    else if (vectors == 1)
        run_n_tile(output, begin, first, words, 1, y);
}

/* Computes `count` positions of an output channel, each in a lane. The caller, run_form, passes all
 * positions of the unit or, with partial_rows, those of one row at a time. The last vectors end
 * with the last position, so they may compute some positions again. If there are too few positions
 * for that, the vectors also compute lanes behind the last position, which are not copied to y. */
__attribute__((always_inline)) static inline void
run_output(const struct output output, const size_t words, size_t count, uint8_t *y)
{
    const lane_sums begin = begin_sums(&output, words);
    uint8_t few[VECTORS * SUM_LANES];
    size_t first = 0;
    for (; count - first >= VECTORS * SUM_LANES; first += VECTORS * SUM_LANES)
        run_n_tile(&output, begin, first, words, VECTORS, y + first);
    const size_t vectors = qk_divide_up(count - first, SUM_LANES);
    const bool alone = vectors * SUM_LANES > count;
    first = alone ? 0 : count - vectors * SUM_LANES;
    run_vectors(&output, begin, first, words, vectors, alone ? few : y + first);
    if (alone)
        memcpy(y, few, count);
}

/* Leaves out the quads of an output channel that read only padding for a row of positions. */
static void leave_out_padding(const struct qk_depthwise_job *job, size_t row, struct output *output)
{
    if (job->layout->planes > 1)
        return;
    const size_t row_quads = job->layout->row_quads;
    const struct qk_tap_range taps =
        qk_depthwise_taps_inside(&job->geometry->axis[QK_AXIS_ROW], row);
    output->begin = taps.begin * row_quads;
    output->end = taps.end * row_quads;
}

/* Fills in the orders that store_weights takes, one for each 4 quads. An order says for each byte
 * of these quads which dense weight it gets, counted from the first of the weights of these quads.
 * 0x80 stands for no weight. */
static void make_orders(const struct qk_depthwise_job *job)
{
    for (size_t i = 0; i < qk_divide_up(job->quads, QUADS) * LOAD; i++) {
        const struct qk_depthwise_weight_order *weight_order =
            &job->weight_orders[i / QK_DEPTHWISE_BYTES];
        const size_t at = i % QK_DEPTHWISE_BYTES;
        const bool there = weight_order->mask >> at & 1;
        job->work.orders[i] =
            there ? (uint8_t)(weight_order->order[at] - weight_order->order[at / LOAD * LOAD])
                  : 0x80;
    }
}

/* Makes the quads of weights of output channel m. */
static void make_weights(const struct qk_depthwise_job *job, size_t words, size_t m)
{
    const uint8_t *dense = job->weights + m * job->depth, *order = job->work.orders;
    const int32_t zero_point = job->w_zero_point[m];
    const size_t count = job->quads;
    uint8_t *to = job->work.weights;
    for (size_t c = 0; c < count; c += QUADS, order += LOAD, to += words * LOAD) {
        const struct qk_depthwise_weight_order *weight_order =
            &job->weight_orders[c / QK_DEPTHWISE_LANES];
        const uint8_t *from =
            dense + weight_order->from + weight_order->order[c % QK_DEPTHWISE_LANES * TAPS];
        store_weights(to, load_16(from), load_16(order), words, zero_point);
    }
}

__attribute__((always_inline)) static inline void
run_form(const struct qk_depthwise_job *job, const size_t words, const bool partial_rows)
{
    const size_t batch = job->layout->batch;
    const size_t buffer_bytes = job->layout->buffer_bytes;
    const size_t quad_row_bytes = job->layout->pitch * TAPS;
    const size_t width = (size_t)job->geometry->axis[QK_AXIS_COLUMN].out;
    const size_t lane_rows = partial_rows ? job->rows : 1;
    const size_t lanes = partial_rows ? job->columns : job->rows * job->columns;
    const size_t patterns = qk_depthwise_find_patterns(job, LANES, add_vector);
    struct output output = {
        .offsets = job->offsets,
        .quads = job->quads,
        .end = job->quads,
        .fill_is_0 = (job->fill ^ job->flip) == 0,
        .half = HALF(buffer_bytes),
        .requantize = job->epilogue->requantize,
        .weights = job->work.weights,
    };
    uint8_t *y = job->y;
    size_t m = 0;
    fill_buffers(job);
    make_orders(job);
    for (size_t begin = 0; begin < job->channels; begin += batch) {
        const size_t end = qk_size_min(begin + batch, job->channels);
        make_quads(job, patterns, begin, end);
        for (size_t c = begin; c < end; c++)
            for (size_t i = 0; i < job->multiplicity; i++, m++, y += job->y_stride) {
                output.buffer = job->work.buffers + (c - begin) * buffer_bytes;
                output.bias = job->bias[m];
                output.multiplier = job->multiplier[m];
                make_weights(job, words, m);
                for (size_t r = 0; r < lane_rows; r++, output.buffer += quad_row_bytes) {
                    if (partial_rows)
                        leave_out_padding(job, job->row + r, &output);
                    run_output(output, words, lanes, y + r * width);
                }
            }
    }
}

/* Runs a unit. `words`: how many words the weights of a quad have. */
__attribute__((always_inline)) static inline void run_unit(const struct qk_depthwise_job *job,
                                                           const size_t words)
{
    if (job->layout->partial_rows)
        run_form(job, words, true);
    else
        run_form(job, words, false);
}

#endif
