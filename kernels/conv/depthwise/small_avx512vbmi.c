/* Planes so small that one vector holds all of a channel. Quads are permutations of that vector. A
 * quad can therefore have any four taps, not only neighbours, and nothing is laid out. The
 * permutations (orders) are the same for all channels. */
#include "kernels/conv/depthwise/depthwise.h"

#ifdef __x86_64__

#include <string.h>

#include "kernels/conv/requantize_avx512.h"
#include "kernels/gemm/dpbusd.h"
#include "kernels/sizes.h"

enum { VECTORS = 4, TAPS = QK_DEPTHWISE_TAPS, LANES = QK_DEPTHWISE_LANES };

/* Two bytes of the vector, behind those of x, hold fill for padding and 0 for taps that do not
 * exist. */
enum { FILL = 62, ZERO = 63, CHANNEL_BYTES = FILL };

/* How far the last tap of an axis may be from its first, and how many taps there may be. */
enum { SPAN_MOST = 63, TAPS_MOST = 64 };

bool qk_depthwise_is_small(const struct qk_depthwise_job *job)
{
    const struct qk_conv_axis *row = &job->geometry->axis[QK_AXIS_ROW];
    const struct qk_conv_axis *column = &job->geometry->axis[QK_AXIS_COLUMN];
    const size_t orders = qk_divide_up(job->depth, TAPS) * VECTORS * QK_DEPTHWISE_BYTES;
    return job->geometry->channel_size <= CHANNEL_BYTES && job->depth <= TAPS_MOST &&
           (job->rows == 1 || (int64_t)job->columns == column->out) &&
           (row->kernel - 1) * row->dilation <= SPAN_MOST &&
           (column->kernel - 1) * column->dilation <= SPAN_MOST &&
           orders <= job->layout->batch * job->layout->buffer_bytes;
}

/* ---- Orders ------------------------------------------------------------------------------ */

/* The row and column of x that the first tap of each of 64 positions reads, clamped to the range of
 * a signed byte. Position i is in byte i / 16 * 4 + i % 16 / 4 * 16 + i % 4: from there, unpacking
 * moves its quads in order. */
struct input_indexes {
    __m512i row, column;
};

static inline int8_t clamp(int64_t input_index)
{
    return (int8_t)(input_index < INT8_MIN   ? INT8_MIN
                    : input_index > INT8_MAX ? INT8_MAX
                                             : input_index);
}

static struct input_indexes find_input_indexes(const struct qk_depthwise_job *job, size_t first,
                                               size_t count)
{
    const struct qk_conv_axis *axis = job->geometry->axis;
    int8_t rows[QK_DEPTHWISE_BYTES] = {0}, columns[QK_DEPTHWISE_BYTES] = {0};
    size_t row = first / job->columns, column = first % job->columns;
    for (size_t i = 0; i < count; i++) {
        const size_t at = i / 16 * 4 + i % 16 / 4 * 16 + i % 4;
        rows[at] = clamp(qk_conv_input_index(&axis[QK_AXIS_ROW], job->row + row, 0));
        columns[at] = clamp(qk_conv_input_index(&axis[QK_AXIS_COLUMN], job->column + column, 0));
        if (++column == job->columns) {
            column = 0;
            row++;
        }
    }
    return (struct input_indexes){_mm512_loadu_si512(rows), _mm512_loadu_si512(columns)};
}

/* Returns, for each position, which byte of the vector tap `tap` reads. */
static __m512i see_tap(const struct qk_depthwise_job *job,
                       const struct input_indexes *input_indexes, size_t tap)
{
    const struct qk_conv_axis *row = &job->geometry->axis[QK_AXIS_ROW];
    const struct qk_conv_axis *column = &job->geometry->axis[QK_AXIS_COLUMN];
    const size_t width = (size_t)column->kernel, height = (size_t)row->kernel;
    const char down = (char)((int64_t)(tap / width % height) * row->dilation);
    const char right = (char)((int64_t)(tap % width) * column->dilation);
    size_t plane;
    if (tap >= job->depth)
        return _mm512_set1_epi8(ZERO);
    if (!qk_conv_find_plane(job->geometry, job->outer, tap / width / height, &plane))
        return _mm512_set1_epi8(FILL);
    uint8_t row_starts[QK_DEPTHWISE_BYTES];
    for (size_t i = 0; i < QK_DEPTHWISE_BYTES; i++)
        row_starts[i] = (uint8_t)(plane + i * (size_t)column->in);
    const __m512i i = _mm512_adds_epi8(input_indexes->row, _mm512_set1_epi8(down));
    const __m512i j = _mm512_adds_epi8(input_indexes->column, _mm512_set1_epi8(right));
    const __mmask64 inside = _mm512_cmplt_epu8_mask(i, _mm512_set1_epi8((char)row->in)) &
                             _mm512_cmplt_epu8_mask(j, _mm512_set1_epi8((char)column->in));
    const __m512i row_start = _mm512_permutexvar_epi8(i, _mm512_loadu_si512(row_starts));
    return _mm512_mask_add_epi8(_mm512_set1_epi8(FILL), inside, row_start, j);
}

static void make_orders(const struct qk_depthwise_job *job, size_t first, size_t count)
{
    const struct input_indexes input_indexes = find_input_indexes(job, first, count);
    uint8_t *to = job->work.buffers;
    for (size_t tap = 0; tap < job->depth; tap += TAPS, to += VECTORS * QK_DEPTHWISE_BYTES) {
        __m512i taps[TAPS];
        for (size_t t = 0; t < TAPS; t++)
            taps[t] = see_tap(job, &input_indexes, tap + t);
        for (size_t half = 0; half < 2; half++) {
            const __m512i low = half ? _mm512_unpackhi_epi8(taps[0], taps[1])
                                     : _mm512_unpacklo_epi8(taps[0], taps[1]);
            const __m512i high = half ? _mm512_unpackhi_epi8(taps[2], taps[3])
                                      : _mm512_unpacklo_epi8(taps[2], taps[3]);
            uint8_t *vector = to + half * 2 * QK_DEPTHWISE_BYTES;
            _mm512_store_si512(vector, _mm512_unpacklo_epi16(low, high));
            _mm512_store_si512(vector + QK_DEPTHWISE_BYTES, _mm512_unpackhi_epi16(low, high));
        }
    }
}

/* ---- Products ---------------------------------------------------------------------------- */

static inline __m512i broadcast_word(const void *from)
{
    int32_t word;
    memcpy(&word, from, sizeof(word));
    return _mm512_set1_epi32(word);
}

/* Returns what the bytes of the vector are xored with: `flip` for x as it is stored. The bytes
 * behind x are loaded as 0; they become fill and 0. */
static __m512i find_flips(const struct qk_depthwise_job *job)
{
    uint8_t bytes[QK_DEPTHWISE_BYTES] = {0};
    memset(bytes, job->flip, job->geometry->channel_size);
    bytes[FILL] = job->fill ^ job->flip;
    return _mm512_loadu_si512(bytes);
}

/* Computes positions [first, first + count) of all channels. Inlined with constants. A load of a
 * channel's last weights reads some of the next channel's, which are multiplied by zeros. */
__attribute__((always_inline)) static inline void run_positions(const struct qk_depthwise_job *job,
                                                                size_t first, size_t count,
                                                                const size_t vectors,
                                                                const bool centred)
{
    const struct qk_requantize_512 to = qk_requantize_512_from(&job->epilogue->requantize);
    const __m512i order = qk_requantize_order(LANES, LANES), flips = find_flips(job);
    const size_t size = job->geometry->channel_size, depth = job->depth;
    const size_t multiplicity = job->multiplicity, y_stride = job->y_stride;
    const __mmask64 there = (UINT64_C(1) << size) - 1;
    const __mmask64 stored = UINT64_MAX >> (QK_DEPTHWISE_BYTES - count);
    const uint8_t *x = job->x, *orders = job->work.buffers, *weights = job->weights;
    const int32_t *bias = job->bias, *zero_point = job->w_zero_point;
    const float *multiplier = job->multiplier;
    uint8_t *y = job->y + first;
    for (size_t channels = job->channels; channels > 0; channels--, x += size) {
        const __m512i all = _mm512_xor_si512(_mm512_maskz_loadu_epi8(there, x), flips);
        for (size_t i = 0; i < multiplicity; i++, weights += depth, y += y_stride) {
            __m512i sums[VECTORS], of_x[VECTORS];
#pragma GCC unroll 4
            for (size_t v = 0; v < vectors; v++) {
                sums[v] = broadcast_word(bias);
                of_x[v] = _mm512_setzero_si512();
            }
            const uint8_t *quads = orders;
            for (size_t tap = 0; tap < depth; tap += TAPS, quads += VECTORS * QK_DEPTHWISE_BYTES) {
                const __m512i w = broadcast_word(weights + tap);
#pragma GCC unroll 4
                for (size_t v = 0; v < vectors; v++) {
                    const __m512i seen = _mm512_permutexvar_epi8(
                        _mm512_load_si512(quads + v * QK_DEPTHWISE_BYTES), all);
                    sums[v] = qk_dpbusd(sums[v], seen, w);
                    if (centred)
                        of_x[v] = qk_dpbusd(of_x[v], seen, _mm512_set1_epi8(1));
                }
            }
#pragma GCC unroll 4
            for (size_t v = 0; centred && v < vectors; v++)
                sums[v] = _mm512_sub_epi32(sums[v],
                                           _mm512_mullo_epi32(of_x[v], broadcast_word(zero_point)));
            const __m512i bytes = qk_requantize_pack(&to, sums, vectors, *multiplier);
            _mm512_mask_storeu_epi8(y, stored, _mm512_permutexvar_epi8(order, bytes));
            bias++;
            zero_point++;
            multiplier++;
        }
    }
}

__attribute__((always_inline)) static inline void
run_vectors(const struct qk_depthwise_job *job, size_t first, size_t count, const bool centred)
{
    if (count > 3 * LANES)
        run_positions(job, first, count, 4, centred);
    else if (count > 2 * LANES)
        run_positions(job, first, count, 3, centred);
    else if (count > LANES)
        run_positions(job, first, count, 2, centred);
    else
        run_positions(job, first, count, 1, centred);
}

void qk_depthwise_run_small(const struct qk_depthwise_job *job)
{
    const size_t positions = job->rows * job->columns;
    for (size_t first = 0; first < positions; first += VECTORS * LANES) {
        const size_t count = qk_size_min(positions - first, VECTORS * LANES);
        make_orders(job, first, count);
        if (job->any_zero_point)
            run_vectors(job, first, count, true);
        else
            run_vectors(job, first, count, false);
    }
}

#endif
