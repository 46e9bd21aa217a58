/* Lays out the quads of a unit's channels. Finds once, for all channels, which permutations turn
 * loads of x into quads. Then loads, permutes and stores. */
#include "kernels/conv/depthwise/depthwise.h"

#ifdef __x86_64__

#include <immintrin.h>
#include <string.h>

#include "kernels/conv/window.h"
#include "kernels/sizes.h"

enum { TAPS = QK_DEPTHWISE_TAPS, LANES = QK_DEPTHWISE_LANES, BYTES = QK_DEPTHWISE_BYTES };

/* ---- Load patterns ------------------------------------------------------------------------- */

/* A chunk: up to 16 quads of each row of quads of an array, and what they read of a row of x. */
struct chunk {
    size_t quad;
    uint64_t mask;       /* bytes of the quads that lie inside x */
    int64_t input_index; /* the column that tap 0 of the first quad reads; it may be outside x */
    size_t begin, end;   /* columns of x that are read */
};

/* Returns a mask of quads [begin, end) of 16, with one bit for each quad, at the byte of its tap 0.
 */
static inline uint64_t quads_between(size_t begin, size_t end)
{
    const uint64_t quads = (UINT64_C(1) << end) - (UINT64_C(1) << begin);
    return begin < end ? _pdep_u64(quads, UINT64_C(0x1111111111111111)) : 0;
}

static struct chunk see_chunk(const struct qk_depthwise_job *job, size_t array, size_t quad)
{
    const struct qk_depthwise_layout *layout = job->layout;
    const struct qk_conv_axis *axis = &job->geometry->axis[QK_AXIS_COLUMN];
    const size_t first = array * layout->taps;
    const size_t taps = qk_size_min(layout->taps, (size_t)axis->kernel - first);
    const size_t count = qk_size_min(layout->width - quad, LANES);
    struct chunk chunk = {.quad = quad};
    chunk.input_index = qk_conv_input_index(axis, job->column + quad, first);
    for (size_t t = 0; t < taps; t++) {
        struct qk_window quad_row = {.in_columns = axis->in,
                                     .row_stride = 1,
                                     .column_first =
                                         qk_conv_input_index(axis, job->column + quad, first + t),
                                     .column_stride = axis->stride,
                                     .columns = count};
        qk_window_fit(&quad_row);
        chunk.mask |= quads_between(quad_row.inside_columns.begin, quad_row.inside_columns.end)
                      << t;
    }
    const int64_t most = chunk.input_index + (int64_t)(count - 1) * axis->stride +
                         (int64_t)(taps - 1) * axis->dilation;
    chunk.begin = chunk.input_index > 0 ? (size_t)chunk.input_index : 0;
    chunk.end = (size_t)(most < axis->in ? most + 1 : axis->in);
    return chunk;
}

/* Returns the loads that make a chunk of all rows of quads. Each load makes the chunk of `together`
 * rows; a remainder of rows is left out. */
static struct qk_depthwise_load_pattern make_pattern(const struct qk_depthwise_job *job,
                                                     const struct chunk *chunk,
                                                     const struct qk_depthwise_quad_rows *quad_rows,
                                                     size_t together)
{
    const size_t pitch = job->layout->pitch;
    const size_t stride = (size_t)job->geometry->axis[QK_AXIS_COLUMN].stride;
    const __m512i plain = _mm512_loadu_si512(job->layout->order);
    __m512i order = _mm512_setzero_si512();
    uint64_t mask = 0;
    for (size_t i = 0; i < together; i++) {
        const uintptr_t shift = (uintptr_t)chunk->input_index - chunk->begin +
                                i * (quad_rows->row_step - pitch * stride);
        const uint64_t quad_row = chunk->mask << i * pitch * TAPS;
        order =
            _mm512_mask_add_epi8(order, quad_row, plain, _mm512_set1_epi8((char)(uint8_t)shift));
        mask |= quad_row;
    }
    struct qk_depthwise_load_pattern pattern = {
        .mask = mask,
        .offset = quad_rows->row + chunk->begin,
        .offset_step = together * quad_rows->row_step,
        .to = (quad_rows->quad_row * pitch + chunk->quad) * TAPS,
        .to_step = together * pitch * TAPS,
        .count = quad_rows->count / together,
    };
    _mm512_storeu_si512(pattern.order, order);
    return pattern;
}

/* Each load makes as many rows of quads as a vector has lanes for and one load can read. The last
 * rows may be made twice. */
static size_t add_vector(const struct qk_depthwise_job *job, size_t array, size_t quad,
                         const struct qk_depthwise_quad_rows *quad_rows,
                         struct qk_depthwise_load_pattern *patterns)
{
    const struct chunk chunk = see_chunk(job, array, quad);
    const size_t pitch = job->layout->pitch;
    if (chunk.mask == 0)
        return 0;
    const size_t most = qk_size_min(qk_size_max(LANES / pitch, 1), quad_rows->count);
    size_t together = 1;
    while (together < most && together * quad_rows->row_step + chunk.end - chunk.begin <= BYTES)
        together++;
    patterns[0] = make_pattern(job, &chunk, quad_rows, together);
    if (quad_rows->count % together == 0)
        return 1;
    const size_t done = quad_rows->count - together;
    patterns[1] = patterns[0]; /* the last rows; some of them are made again */
    patterns[1].offset += done * quad_rows->row_step;
    patterns[1].to += done * pitch * TAPS;
    patterns[1].count = 1;
    return 2;
}

size_t qk_depthwise_prepare_buffers(const struct qk_depthwise_job *job)
{
    const struct qk_depthwise_layout *layout = job->layout;
    const __m512i fill = _mm512_set1_epi8((char)(job->fill ^ job->flip));
    const size_t buffers = qk_size_min(layout->batch, job->channels);
    for (size_t at = 0; at < buffers * layout->buffer_bytes; at += BYTES)
        _mm512_store_si512(job->work.buffers + at, fill);
    return qk_depthwise_find_patterns(job, LANES, add_vector);
}

/* ---- Quads ------------------------------------------------------------------------------- */

/* Makes the channel buffers of `channels` channels. `flipped`: the sign bits of x are flipped.
 * `near_end`: some loads would end behind x. */
__attribute__((always_inline)) static inline void
make_buffers(const struct qk_depthwise_job *job, size_t patterns, const uint8_t *x,
             uint8_t *buffers, size_t channels, const bool flipped, const bool near_end)
{
    const size_t channel_size = job->geometry->channel_size;
    const size_t buffer_bytes = job->layout->buffer_bytes;
    const uint8_t *x_end = job->x_end;
    const __m512i fill = _mm512_set1_epi8((char)(job->fill ^ job->flip));
    for (const struct qk_depthwise_load_pattern *pattern = job->work.patterns; patterns > 0;
         patterns--, pattern++) {
        const __m512i order = _mm512_loadu_si512(pattern->order);
        const uint64_t mask = pattern->mask;
        const size_t from_step = pattern->offset_step;
        const size_t to_step = pattern->to_step;
        const size_t count = pattern->count;
        const uint8_t *first = x + pattern->offset;
        uint8_t *first_to = buffers + pattern->to;
        for (size_t c = 0; c < channels; c++, first += channel_size, first_to += buffer_bytes) {
            const uint8_t *from = first;
            uint8_t *to = first_to;
            for (size_t left = count; left > 0; left--, from += from_step, to += to_step) {
                __m512i bytes;
                if (near_end && x_end - from < BYTES)
                    bytes = _mm512_maskz_loadu_epi8((UINT64_C(1) << (x_end - from)) - 1, from);
                else
                    bytes = _mm512_loadu_si512(from);
                if (flipped)
                    bytes = _mm512_xor_si512(bytes, _mm512_set1_epi8((char)0x80));
                _mm512_storeu_si512(to, _mm512_mask_permutexvar_epi8(fill, mask, order, bytes));
            }
        }
    }
}

void qk_depthwise_make_quads(const struct qk_depthwise_job *job, size_t patterns, size_t begin,
                             size_t end)
{
    const size_t channel_size = job->geometry->channel_size;
    const uint8_t *x = job->x + begin * channel_size;
    const bool near_end = job->x_end - x < (ptrdiff_t)((end - begin) * channel_size + BYTES);
    if (near_end)
        make_buffers(job, patterns, x, job->work.buffers, end - begin, job->flip != 0, true);
    else if (job->flip != 0)
        make_buffers(job, patterns, x, job->work.buffers, end - begin, true, false);
    else
        make_buffers(job, patterns, x, job->work.buffers, end - begin, false, false);
}

#endif
