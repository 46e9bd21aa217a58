/* Depthwise convolutions with VPDPBUSD on vectors of 16 lanes. It adds four products to a sum. This
 * file goes through a unit's channels and multiplies their channel buffers by the weights, four
 * vectors of lanes at a time. quads_avx512vbmi.c makes the quads. Small planes are computed by
 * small_avx512vbmi.c, and wide kernels by rows_avx512vbmi.c. */
#include "kernels/conv/depthwise/depthwise.h"

#ifdef __x86_64__

#include <stdlib.h>
#include <string.h>

#include "kernels/conv/requantize_avx512.h"
#include "kernels/gemm/dpbusd.h"
#include "kernels/sizes.h"

/* An N tile is up to VECTORS vectors of lanes, whose sums are computed together. */
enum { VECTORS = 4, LANES = QK_DEPTHWISE_LANES, BYTES = QK_DEPTHWISE_BYTES };

/* What all output channels of a unit have in common. */
struct lanes {
    const uint32_t *offsets;
    size_t quads;
    size_t count; /* how many lanes */
    /* For partial_rows: how many rows of lanes there are. Their quads are quad_row_bytes apart in a
     * channel buffer, and their positions y_step bytes in y. */
    size_t lane_rows;
    size_t quad_row_bytes, y_step;
    size_t n_tile_bytes; /* bytes of y, which are positions, in an N tile of 64 lanes */
    size_t last_bytes;   /* bytes of y in the last N tile, if it is shorter; otherwise 0 */
    __m512i order;       /* puts packed bytes in order, without the gaps between rows */
    struct qk_requantize_512 to;
};

/* The parameters of one output channel. */
struct output {
    const uint8_t *buffer;
    const uint8_t *weights, *ones;
    const int32_t *bias, *w_zero_point;
    float multiplier;
    uint8_t *y;
};

/* How output channels are computed. The functions that take a form are inlined with constants. */
struct form {
    bool three;        /* an output channel has three quads, as with the common 3x3 kernel */
    bool centred;      /* weights have a zero point */
    bool partial_rows; /* the lanes of each row are computed by themselves */
};

static inline __m512i broadcast_quad(const uint8_t *quad)
{
    int32_t word;
    memcpy(&word, quad, sizeof(word));
    return _mm512_set1_epi32(word);
}

/* Adds the products of one quad of weights and the vectors of quads from `quads` on. */
__attribute__((always_inline)) static inline void
add_quad(const uint8_t *quads, const uint8_t *quad, const size_t vectors, __m512i sums[VECTORS])
{
    const __m512i weights = broadcast_quad(quad);
#pragma GCC unroll 4
    for (size_t v = 0; v < vectors; v++) {
        __m512i x = _mm512_loadu_si512(quads + v * BYTES);
        sums[v] = qk_dpbusd(sums[v], x, weights);
    }
}

__attribute__((always_inline)) static inline void
add_quads(const struct lanes *lanes, const uint8_t *buffer, const uint8_t *weights,
          const size_t vectors, const struct form form, __m512i sums[VECTORS])
{
    const uint32_t *offset = lanes->offsets;
    if (form.three) {
#pragma GCC unroll 3
        for (size_t c = 0; c < 3; c++)
            add_quad(buffer + offset[c], weights + c * QK_DEPTHWISE_TAPS, vectors, sums);
        return;
    }
    /* Two vectors of sums instead of one, because a product has to wait for the product before it
     * that adds to the same sum. */
    __m512i others[VECTORS];
#pragma GCC unroll 4
    for (size_t v = 0; v < vectors; v++)
        others[v] = _mm512_setzero_si512();
    const uint32_t *end = offset + lanes->quads;
    for (; end - offset >= 2; offset += 2, weights += 2 * QK_DEPTHWISE_TAPS) {
        add_quad(buffer + offset[0], weights, vectors, sums);
        add_quad(buffer + offset[1], weights + QK_DEPTHWISE_TAPS, vectors, others);
    }
    if (offset != end)
        add_quad(buffer + *offset, weights, vectors, sums);
#pragma GCC unroll 4
    for (size_t v = 0; v < vectors; v++)
        sums[v] = _mm512_add_epi32(sums[v], others[v]);
}

/* Computes an N tile: lanes [first, first + 16 * vectors). Inlined with constants, so that the
 * compiler keeps sums in registers. */
__attribute__((always_inline)) static inline void
run_n_tile(const struct lanes *lanes, const struct output *output, size_t first,
           const size_t vectors, const struct form form, uint8_t *y, uint64_t mask)
{
    const uint8_t *buffer = output->buffer + first / LANES * BYTES;
    __m512i sums[VECTORS];
#pragma GCC unroll 4
    for (size_t v = 0; v < vectors; v++)
        sums[v] = _mm512_set1_epi32(*output->bias);
    add_quads(lanes, buffer, output->weights, vectors, form, sums);
    if (form.centred) {
        const __m512i zero_point = _mm512_set1_epi32(*output->w_zero_point);
        __m512i of_x[VECTORS];
#pragma GCC unroll 4
        for (size_t v = 0; v < vectors; v++)
            of_x[v] = _mm512_setzero_si512();
        add_quads(lanes, buffer, output->ones, vectors, form, of_x);
#pragma GCC unroll 4
        for (size_t v = 0; v < vectors; v++)
            sums[v] = _mm512_sub_epi32(sums[v], _mm512_mullo_epi32(of_x[v], zero_point));
    }
    const __m512i bytes = qk_requantize_pack(&lanes->to, sums, vectors, output->multiplier);
    _mm512_mask_storeu_epi8(y, mask, _mm512_permutexvar_epi8(lanes->order, bytes));
}

__attribute__((always_inline)) static inline void
run_output(const struct lanes *lanes, const struct output *output, const struct form form)
{
    const uint64_t mask = UINT64_MAX >> (BYTES - lanes->n_tile_bytes);
    const uint64_t last = (UINT64_C(1) << lanes->last_bytes) - 1;
    uint8_t *y = output->y;
    size_t first = 0;
    for (; lanes->count - first >= VECTORS * LANES;
         first += VECTORS * LANES, y += lanes->n_tile_bytes)
        run_n_tile(lanes, output, first, VECTORS, form, y, mask);
    const size_t left = lanes->count - first;
    if (left > 3 * LANES)
        run_n_tile(lanes, output, first, 4, form, y, last);
    else if (left > 2 * LANES)
        run_n_tile(lanes, output, first, 3, form, y, last);
    else if (left > LANES)
        run_n_tile(lanes, output, first, 2, form, y, last);
    else if (left > 0)
        run_n_tile(lanes, output, first, 1, form, y, last);
}

__attribute__((always_inline)) static inline void
run_partial_rows(const struct lanes *lanes, const struct output *output, const struct form form)
{
    struct output lane_row = *output;
    for (size_t i = 0; i < lanes->lane_rows; i++) {
        run_output(lanes, &lane_row, form);
        lane_row.buffer += lanes->quad_row_bytes;
        lane_row.y += lanes->y_step;
    }
}

static struct lanes find_lanes(const struct qk_depthwise_job *job)
{
    const size_t pitch = job->layout->pitch;
    const bool partial_rows = job->layout->partial_rows;
    const size_t positions = partial_rows ? job->columns : job->rows * job->columns;
    const bool gaps = !partial_rows && job->layout->rows > 1 && pitch != job->columns;
    const size_t n_tile_bytes = gaps ? BYTES / pitch * job->columns : BYTES;
    return (struct lanes){
        .offsets = job->offsets,
        .quads = job->quads,
        .count = gaps ? job->rows * pitch : positions,
        .lane_rows = job->rows,
        .quad_row_bytes = pitch * QK_DEPTHWISE_TAPS,
        .y_step = (size_t)job->geometry->axis[QK_AXIS_COLUMN].out,
        .n_tile_bytes = n_tile_bytes,
        .last_bytes = positions % n_tile_bytes,
        .order =
            gaps ? qk_requantize_order(job->columns, pitch) : qk_requantize_order(BYTES, BYTES),
        .to = qk_requantize_512_from(&job->epilogue->requantize),
    };
}

/* Lays out the dense weights of `count` output channels, from channel m on, as quads. */
static inline void make_weights(const struct qk_depthwise_job *job, size_t m, size_t count)
{
    const size_t bytes = qk_divide_up(job->quads, LANES) * BYTES;
    const struct qk_depthwise_weight_order *weight_order = job->weight_orders;
    for (size_t at = 0; at < bytes; at += BYTES, weight_order++) {
        const __m512i order = _mm512_loadu_si512(weight_order->order);
        const uint64_t mask = weight_order->mask;
        const uint8_t *dense = job->weights + m * job->depth + weight_order->from;
        uint8_t *to = job->work.weights + at;
        for (size_t i = 0; i < count; i++, dense += job->depth, to += bytes)
            _mm512_store_si512(
                to, _mm512_maskz_permutexvar_epi8(mask, order, _mm512_loadu_si512(dense)));
    }
}

static void make_ones(const struct qk_depthwise_job *job)
{
    uint8_t *to = job->work.ones;
    const struct qk_depthwise_weight_order *weight_order = job->weight_orders;
    for (size_t i = 0; i < job->quads; i += LANES, weight_order++, to += BYTES)
        _mm512_store_si512(to, _mm512_maskz_set1_epi8(weight_order->mask, 1));
}

__attribute__((always_inline)) static inline void run_form(const struct qk_depthwise_job *job,
                                                           const struct form form)
{
    const struct lanes lanes = find_lanes(job);
    const size_t weights_bytes = qk_divide_up(job->quads, LANES) * BYTES;
    const size_t buffer_bytes = job->layout->buffer_bytes;
    const size_t multiplicity = job->multiplicity;
    const size_t outputs = job->channels * multiplicity;
    const size_t batch = job->layout->batch;
    const size_t patterns = qk_depthwise_prepare_buffers(job);
    struct output output = {
        .ones = job->work.ones,
        .bias = job->bias,
        .w_zero_point = job->w_zero_point,
        .y = job->y,
    };
    size_t m = 0;
    for (size_t begin = 0; begin < job->channels; begin += batch) {
        const size_t end = qk_size_min(begin + batch, job->channels);
        qk_depthwise_make_quads(job, patterns, begin, end);
        output.buffer = job->work.buffers;
        for (size_t left = multiplicity; m < end * multiplicity; m++) {
            if (m % QK_DEPTHWISE_OUTPUTS == 0) {
                make_weights(job, m, qk_size_min(outputs - m, QK_DEPTHWISE_OUTPUTS));
                output.weights = job->work.weights;
            }
            output.multiplier = job->multiplier[m];
            if (form.partial_rows)
                run_partial_rows(&lanes, &output, form);
            else
                run_output(&lanes, &output, form);
            output.weights += weights_bytes;
            output.bias++;
            output.w_zero_point++;
            output.y += job->y_stride;
            if (--left == 0) {
                output.buffer += buffer_bytes;
                left = multiplicity;
            }
        }
    }
}

__attribute__((always_inline)) static inline void run_buffers(const struct qk_depthwise_job *job,
                                                              const bool partial_rows)
{
    if (job->any_zero_point)
        run_form(job, (struct form){false, true, partial_rows});
    else if (job->quads == 3)
        run_form(job, (struct form){true, false, partial_rows});
    else
        run_form(job, (struct form){false, false, partial_rows});
}

static void run_quads(const struct qk_depthwise_job *job)
{
    if (job->any_zero_point)
        make_ones(job);
    if (job->layout->partial_rows)
        run_buffers(job, true);
    else
        run_buffers(job, false);
}

static void run_unit(const struct qk_depthwise_job *job)
{
    if (qk_depthwise_is_small(job))
        qk_depthwise_run_small(job);
    else if (!qk_depthwise_run_rows(job))
        run_quads(job);
}

/* Adds up the weights of eight output channels at a time, one in each 64-bit lane. */
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
        _mm256_mask_storeu_epi32(sums + m, there, _mm512_cvtepi64_epi32(sum));
    }
}

const struct qk_depthwise qk_depthwise_u8s8_1x64__avx512vbmi = {
    .kernel = "conv_depthwise_vnni",
    .load_bytes = BYTES,
    .cycles = 1,
    .run = {[QK_EPILOGUE_BYTES] = run_unit},
    .sum = sum_weights,
};

#endif
