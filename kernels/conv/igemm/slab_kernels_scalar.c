/* Slab kernels in plain C. They are the definition: all other slab kernels give the same bytes. */
#include "kernels/conv/igemm/slab_kernels.h"

#include <string.h>

#include "kernels/conv/requantize.h"
#include "kernels/gemm/igemm.h"

/* ---- Fill -------------------------------------------------------------------------------- */

/* Returns the byte of x, or of padding, that source k of quad (row, column) of a slab reads. */
static uint8_t see(const struct qk_slab_fill *job, size_t slab, size_t k, size_t row, size_t column)
{
    const struct qk_window *window = job->windows[k];
    const int64_t i = window->row_first + (int64_t)row * window->row_stride;
    const int64_t j = window->column_first + (int64_t)column * window->column_stride;
    const bool inside = job->planes[k] && row >= window->inside_rows.begin &&
                        row < window->inside_rows.end && column >= window->inside_columns.begin &&
                        column < window->inside_columns.end;
    if (!inside)
        return (uint8_t)job->x_zero_point;
    return job->planes[k][slab * job->plane_step + (size_t)(i * window->in_columns + j)];
}

/* Writes one term of a quad: a byte, or a word that is x less its zero point. */
static void write_term(const struct qk_slab_fill *job, size_t quad_k, size_t k, uint8_t byte,
                       uint8_t *quad)
{
    const uint8_t flipped = byte ^ job->flip;
    const int16_t word = (int16_t)(flipped - (job->x_zero_point + job->flip));
    if (quad_k == 4)
        quad[k] = flipped;
    else
        memcpy(quad + k * sizeof(word), &word, sizeof(word));
}

void qk_slab_fill_scalar(size_t quad_k, const struct qk_slab_fill *job)
{
    const struct qk_window *window = job->windows[0];
    for (size_t slab = 0; slab < job->slabs; slab++)
        for (size_t row = 0; row < window->rows; row++) {
            uint8_t *quad =
                job->quads + slab * job->slab_bytes + row * window->pitch * QK_IGEMM_QUAD_BYTES;
            for (size_t column = 0; column < window->columns; column++, quad += QK_IGEMM_QUAD_BYTES)
                for (size_t k = 0; k < quad_k; k++)
                    write_term(job, quad_k, k, see(job, slab, k, row, column), quad);
        }
}

static void fill_u8x4(const struct qk_slab_fill *job)
{
    qk_slab_fill_scalar(4, job);
}

/* ---- Requantize -------------------------------------------------------------------------- */

void qk_requantize_tile_scalar(const struct qk_epilogue_tile *tile)
{
    for (size_t row = 0; row < tile->rows; row++) {
        const int32_t *sums = tile->sums + row * (tile->row_count > 0 ? 1 : QK_IGEMM_NR);
        const size_t step = tile->row_count > 0 ? tile->row_count : 1;
        const uint32_t zero_point = tile->w_zero_point ? (uint32_t)tile->w_zero_point[row] : 0;
        for (size_t i = 0; i < tile->segment_count; i++) {
            uint8_t *y = tile->y + row * tile->y_stride + tile->segments[i].offset;
            for (uint64_t keep = tile->segments[i].keep; keep != 0; keep &= keep - 1) {
                const size_t position = (size_t)__builtin_ctzll(keep);
                uint32_t sum = (uint32_t)sums[position * step] + (uint32_t)tile->bias[row];
                if (zero_point != 0)
                    sum -= zero_point * (uint32_t)tile->column_sums[position];
                *y++ = qk_requantize_one(tile->epilogue->requantize, (int32_t)sum,
                                         tile->multiplier[row]);
            }
        }
    }
}

/* ---- Transpose --------------------------------------------------------------------------- */

/* Transposes one K block of a row and returns the sum of its weights. */
static uint32_t transpose_block(const struct qk_transpose *job, const uint8_t *from, uint8_t *to)
{
    uint32_t sum = 0;
    for (size_t tap = 0; tap < job->taps; tap++, to += job->to_tap_stride) {
        for (size_t i = 0; i < job->quads; i++)
            memset(to + qk_transpose_quad_at(job, i), 0, QK_IGEMM_QUAD_BYTES);
        for (size_t channel = 0; channel < job->channels; channel++) {
            const uint8_t byte = from[channel * job->taps + tap] ^ job->flip;
            const int32_t weight = (int8_t)byte;
            to[qk_transpose_quad_at(job, channel / 4) + channel % 4] = byte;
            sum += (uint32_t)weight;
        }
    }
    return sum;
}

void qk_transpose_scalar(const struct qk_transpose *job)
{
    for (size_t row = 0; row < job->rows; row++) {
        const uint8_t *from = job->from + row * job->from_row_stride;
        uint8_t *to = job->to + row * job->to_row_stride;
        uint32_t sum = (uint32_t)job->sums[row];
        for (size_t i = 0; i < job->k_blocks; i++) {
            sum += transpose_block(job, from, to);
            from += job->channels * job->taps;
            to += job->taps * job->to_tap_stride;
        }
        job->sums[row] = (int32_t)sum;
    }
}

const struct qk_slab_kernels qk_slab_kernels_u8x4__scalar = {
    .fill = fill_u8x4,
    .epilogues = {[QK_EPILOGUE_BYTES] = qk_requantize_tile_scalar,
                  [QK_EPILOGUE_INT32] = qk_any_epilogue__scalar},
    .any_epilogue = qk_any_epilogue__scalar,
    .transpose = qk_transpose_scalar,
};
