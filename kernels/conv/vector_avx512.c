#include "kernels/conv/vector.h"

#ifdef __x86_64__

#include <immintrin.h>

#include "kernels/conv/requantize_avx512.h"
#include "kernels/conv/sizes.h"
#include "kernels/gemm/igemm.h"

/* The lowest `count` of 64 bits. */
static inline uint64_t low_bits(size_t count)
{
    return count >= 64 ? UINT64_MAX : (UINT64_C(1) << count) - 1;
}

/* ---- Stage ------------------------------------------------------------------------------- */

/* The elements of a line's 64 bytes from `at` on that are in [begin, end). */
static inline __mmask64 line_mask(struct qk_stage_range inside, size_t at)
{
    const uint64_t mask = inside.end > at ? low_bits(inside.end - at) : 0;
    return inside.begin > at ? mask & ~low_bits(inside.begin - at) : mask;
}

/* Every second byte of 128. */
static inline __m512i even_bytes(__m512i low, __m512i high)
{
    const __m512i order = _mm512_set_epi64(7, 5, 3, 1, 6, 4, 2, 0);
    const __m512i byte = _mm512_set1_epi16(0xff);
    return _mm512_permutexvar_epi64(
        order, _mm512_packus_epi16(_mm512_and_si512(low, byte), _mm512_and_si512(high, byte)));
}

static void stage_fill(uint8_t *to, size_t count, __m512i fill)
{
    for (size_t at = 0; at < count; at += 64)
        _mm512_storeu_si512(to + at, fill);
}

/* Rows that are inside, of which `line` is where column 0 of the first looks. Each of these writes
 * up to 63 bytes behind a row, before the next row is written. */
struct stage_rows {
    uintptr_t line;
    uintptr_t line_step;
    size_t count;
    struct qk_stage_range inside;
    __m512i fill, flip;
    uint8_t *to;
};

/* Masked loads do not touch what lies outside, where there may be no memory. */
static inline __m512i load_line(const struct stage_rows *rows, size_t at, __mmask64 mask)
{
    const void *from = (const void *)(rows->line + at);
    return _mm512_xor_si512(_mm512_mask_loadu_epi8(rows->fill, mask, from), rows->flip);
}

/* Columns one apart. */
static void stage_lines(const struct qk_stage *job, struct stage_rows rows)
{
    const __mmask64 first = line_mask(rows.inside, 0);
    const size_t columns = job->columns;
    const size_t pitch = job->pitch;
    for (size_t i = 0; i < rows.count; i++) {
        _mm512_storeu_si512(rows.to, load_line(&rows, 0, first));
        for (size_t at = 64; at < columns; at += 64)
            _mm512_storeu_si512(rows.to + at, load_line(&rows, at, line_mask(rows.inside, at)));
        rows.to += pitch;
        rows.line += rows.line_step;
    }
}

/* 64 elements from `at` on, of which those in the masks, two vectors of the line, are inside. */
static inline __m512i load_halves(const struct stage_rows *rows, size_t at,
                                  const __mmask64 masks[2])
{
    return even_bytes(load_line(rows, 2 * at, masks[0]), load_line(rows, 2 * at + 64, masks[1]));
}

/* Columns two apart. Most lines have one vector of them. */
static void stage_halves(const struct qk_stage *job, struct stage_rows rows)
{
    const struct qk_stage_range wide = {2 * rows.inside.begin,
                                        rows.inside.end ? 2 * rows.inside.end - 1 : 0};
    const __mmask64 first[2] = {line_mask(wide, 0), line_mask(wide, 64)};
    const size_t columns = job->columns;
    const size_t pitch = job->pitch;
    for (size_t i = 0; i < rows.count; i++) {
        _mm512_storeu_si512(rows.to, load_halves(&rows, 0, first));
        for (size_t at = 64; at < columns; at += 64) {
            const __mmask64 masks[2] = {line_mask(wide, 2 * at), line_mask(wide, 2 * at + 64)};
            _mm512_storeu_si512(rows.to + at, load_halves(&rows, at, masks));
        }
        rows.to += pitch;
        rows.line += rows.line_step;
    }
}

/* Columns any distance apart. */
static void stage_elements(const struct qk_stage *job, struct stage_rows rows)
{
    for (size_t i = 0; i < rows.count; i++) {
        stage_fill(rows.to, job->columns, _mm512_xor_si512(rows.fill, rows.flip));
        for (size_t c = rows.inside.begin; c < rows.inside.end; c++)
            rows.to[c] =
                *(const uint8_t *)(rows.line + c * (uintptr_t)job->column_stride) ^ job->flip;
        rows.to += job->pitch;
        rows.line += rows.line_step;
    }
}

static void stage(const struct qk_stage *job, const uint8_t *plane, uint8_t *to)
{
    const __m512i fill = _mm512_set1_epi8((char)(job->fill ^ job->flip));
    const struct qk_stage_range inside = job->inside_rows;
    const size_t bytes = (job->rows - 1) * job->pitch + job->columns;
    if (!plane || inside.begin >= inside.end) {
        stage_fill(to, bytes, fill);
        return;
    }
    const int64_t row = job->row_first + (int64_t)inside.begin * job->row_stride;
    const struct stage_rows rows = {
        .line = (uintptr_t)plane + (uintptr_t)(row * job->in_columns + job->column_first),
        .line_step = (uintptr_t)job->row_stride * (uintptr_t)job->in_columns, /* used or not */
        .count = inside.end - inside.begin,
        .inside = job->inside_columns,
        .fill = _mm512_set1_epi8((char)job->fill),
        .flip = _mm512_set1_epi8((char)job->flip),
        .to = to + inside.begin * job->pitch,
    };
    stage_fill(to, inside.begin * job->pitch, fill);
    if (job->column_stride == 1)
        stage_lines(job, rows);
    else if (job->column_stride == 2)
        stage_halves(job, rows);
    else
        stage_elements(job, rows);
    const size_t behind = (inside.end - 1) * job->pitch + job->columns;
    stage_fill(to + behind, bytes - behind, fill);
}

/* ---- Interleave -------------------------------------------------------------------------- */

static void interleave(const struct qk_interleave *job)
{
    /* Byte 4 i + j of the result is byte i of 16-byte lane j. */
    const __m512i by_byte =
        _mm512_set_epi32(0x3f2f1f0f, 0x3e2e1e0e, 0x3d2d1d0d, 0x3c2c1c0c, 0x3b2b1b0b, 0x3a2a1a0a,
                         0x39291909, 0x38281808, 0x37271707, 0x36261606, 0x35251505, 0x34241404,
                         0x33231303, 0x32221202, 0x31211101, 0x30201000);
    const __m512i flip = _mm512_set1_epi8(job->x_type == QK_INT8 ? (char)0x80 : 0);
    for (size_t i = 0; i < job->count; i += 16) {
        const __mmask16 mask = (__mmask16)low_bits(qk_size_min(job->count - i, 16));
        __m512i lanes = _mm512_castsi128_si512(_mm_maskz_loadu_epi8(mask, job->from[0] + i));
        lanes = _mm512_inserti32x4(lanes, _mm_maskz_loadu_epi8(mask, job->from[1] + i), 1);
        lanes = _mm512_inserti32x4(lanes, _mm_maskz_loadu_epi8(mask, job->from[2] + i), 2);
        lanes = _mm512_inserti32x4(lanes, _mm_maskz_loadu_epi8(mask, job->from[3] + i), 3);
        lanes = _mm512_xor_si512(_mm512_permutexvar_epi8(by_byte, lanes), flip);
        _mm512_storeu_si512(job->cells + i * QK_IGEMM_CELL_BYTES, lanes);
    }
}

/* ---- Requantize -------------------------------------------------------------------------- */

static void requantize(const struct qk_requantize_tile *tile)
{
    const struct qk_requantize_512 to = qk_requantize_512_from(tile->requantize, tile->y_signed);
    uint8_t *y = tile->y;
    for (size_t row = 0; row < tile->rows; row++, y += tile->y_stride) {
        const int32_t *from = tile->sums + row * QK_IGEMM_NR;
        __m512i sums[4];
        for (size_t v = 0; v < 4; v++)
            sums[v] = _mm512_add_epi32(_mm512_loadu_si512(from + 16 * v),
                                       _mm512_set1_epi32(tile->bias[row]));
        if (tile->w_zero_point && tile->w_zero_point[row] != 0) {
            const __m512i zero_point = _mm512_set1_epi32(tile->w_zero_point[row]);
            for (size_t v = 0; v < 4; v++)
                sums[v] = _mm512_sub_epi32(
                    sums[v],
                    _mm512_mullo_epi32(_mm512_loadu_si512(tile->column_sums + 16 * v), zero_point));
        }
        qk_store_kept(y, qk_requantize_64(&to, sums, tile->multiplier[row]), tile->keep);
    }
}

/* ---- Transpose --------------------------------------------------------------------------- */

/* The 64 channels' bytes of one tap lie `taps` bytes apart in as many vectors: which of them are in
 * each, and, in its low 6 bits, where. */
struct transpose_plan {
    __m512i index; /* of tap 0; tap t lies t further */
    __mmask64 loaded[QK_TRANSPOSE_TAPS];
    __mmask64 part[QK_TRANSPOSE_TAPS][QK_TRANSPOSE_TAPS]; /* [tap][vector] */
};

static void plan_transpose(const struct qk_transpose *job, struct transpose_plan *plan)
{
    const size_t taps = job->taps;
    const size_t bytes = job->channels * taps;
    uint8_t index[64];
    for (size_t i = 0; i < 64; i++)
        index[i] = (uint8_t)(i * taps);
    plan->index = _mm512_loadu_si512(index);
    for (size_t v = 0; v < taps; v++)
        plan->loaded[v] = bytes > 64 * v ? low_bits(bytes - 64 * v) : 0;
    for (size_t t = 0; t < taps; t++) {
        uint64_t before = 0;
        for (size_t v = 0; v < taps; v++) {
            const uint64_t up_to = low_bits((64 * (v + 1) - t - 1) / taps + 1);
            plan->part[t][v] = up_to & ~before;
            before = up_to;
        }
    }
}

/* One block of a row; gives its sum. What is not loaded stays 0. */
static inline int32_t transpose_row(const struct qk_transpose *job,
                                    const struct transpose_plan *plan, const uint8_t *from,
                                    uint8_t *to)
{
    const size_t taps = job->taps;
    const __m512i flip = _mm512_set1_epi8((char)job->flip);
    const __m512i one = _mm512_set1_epi8(1);
    __m512i source[QK_TRANSPOSE_TAPS];
    __m512i sum = _mm512_setzero_si512();
    __m512i index = plan->index;
    for (size_t v = 0; v < taps; v++) {
        const __m512i bytes = _mm512_maskz_loadu_epi8(plan->loaded[v], from + 64 * v);
        source[v] = _mm512_maskz_mov_epi8(plan->loaded[v], _mm512_xor_si512(bytes, flip));
        sum = _mm512_dpbusd_epi32(sum, one, source[v]);
    }
    for (size_t t = 0; t < taps; t++) {
        __m512i tap = _mm512_maskz_permutexvar_epi8(plan->part[t][0], index, source[0]);
        for (size_t v = 1; v < taps; v++)
            tap = _mm512_mask_permutexvar_epi8(tap, plan->part[t][v], index, source[v]);
        _mm512_storeu_si512(to + t * job->to_tap_stride, tap);
        index = _mm512_add_epi8(index, one);
    }
    return _mm512_reduce_add_epi32(sum);
}

static void transpose(const struct qk_transpose *job)
{
    struct transpose_plan plan;
    plan_transpose(job, &plan);
    for (size_t row = 0; row < job->rows; row++) {
        const uint8_t *from = job->from + row * job->from_row_stride;
        uint8_t *to = job->to + row * job->to_row_stride;
        uint32_t sum = (uint32_t)job->sums[row];
        for (size_t block = 0; block < job->blocks; block++) {
            sum += (uint32_t)transpose_row(job, &plan, from, to);
            from += job->channels * job->taps;
            to += job->taps * job->to_tap_stride;
        }
        job->sums[row] = (int32_t)sum;
    }
}

const struct qk_conv_vector qk_conv_vector_avx512 = {stage, interleave, requantize, transpose};

#endif
