#include "kernels/conv/vector.h"

#ifdef __x86_64__

#include <immintrin.h>
#include <string.h>

#include "kernels/conv/requantize.h"
#include "kernels/gemm/igemm.h"

/* ---- Stage ------------------------------------------------------------------------------- */

/* Every second byte: `count` of them, and no byte behind the last is read. */
static void copy_even(const uint8_t *from, size_t count, uint8_t *to)
{
    const __m128i byte = _mm_set1_epi16(0xff);
    size_t i = 0;
    for (; count - i > 16; i += 16) {
        const __m128i low = _mm_loadu_si128((const void *)(from + 2 * i));
        const __m128i high = _mm_loadu_si128((const void *)(from + 2 * i + 16));
        _mm_storeu_si128((void *)(to + i),
                         _mm_packus_epi16(_mm_and_si128(low, byte), _mm_and_si128(high, byte)));
    }
    for (; i < count; i++)
        to[i] = from[2 * i];
}

static void stage_row(const struct qk_stage *job, const uint8_t *line, uint8_t *to)
{
    const size_t begin = job->inside_columns.begin;
    const size_t end = job->inside_columns.end;
    memset(to, job->fill, begin);
    if (job->column_stride == 1 && begin < end)
        memcpy(to + begin, line, end - begin);
    else if (job->column_stride == 2 && begin < end)
        copy_even(line, end - begin, to + begin);
    else
        for (size_t c = begin; c < end; c++)
            to[c] = line[(int64_t)(c - begin) * job->column_stride];
    memset(to + end, job->fill, job->columns - end);
}

static void stage(const struct qk_stage *job, const uint8_t *plane, uint8_t *to)
{
    const struct qk_stage_range rows = job->inside_rows;
    const struct qk_stage_range columns = job->inside_columns;
    for (size_t i = 0; i < job->rows; i++, to += job->pitch) {
        if (!plane || i < rows.begin || i >= rows.end || columns.begin >= columns.end) {
            memset(to, job->fill, job->columns);
            continue;
        }
        const int64_t row = job->row_first + (int64_t)i * job->row_stride;
        const int64_t column = job->column_first + (int64_t)columns.begin * job->column_stride;
        stage_row(job, plane + row * job->in_columns + column, to);
    }
}

/* ---- Interleave -------------------------------------------------------------------------- */

static inline __m256i load_words(const uint8_t *from, __m128i flip, __m256i zero_point)
{
    const __m128i bytes = _mm_xor_si128(_mm_loadu_si128((const void *)from), flip);
    return _mm256_sub_epi16(_mm256_cvtepu8_epi16(bytes), zero_point);
}

/* The last few, whose sources may end where they do. */
static void interleave_one(const struct qk_interleave *job, size_t i, uint8_t flip,
                           int32_t zero_point)
{
    const int16_t words[2] = {(int16_t)((job->from[0][i] ^ flip) - zero_point),
                              (int16_t)((job->from[1][i] ^ flip) - zero_point)};
    memcpy(job->cells + i * QK_IGEMM_CELL_BYTES, words, sizeof(words));
}

/* An INT8 is its byte with the top bit flipped, less 128. */
static void interleave(const struct qk_interleave *job)
{
    const uint8_t flip = job->x_type == QK_INT8 ? 0x80 : 0;
    const int32_t zero_point = job->x_zero_point + flip;
    const __m128i flips = _mm_set1_epi8((char)flip);
    const __m256i zero_points = _mm256_set1_epi16((int16_t)zero_point);
    size_t i = 0;
    for (; job->count - i >= 16; i += 16) {
        const __m256i a = load_words(job->from[0] + i, flips, zero_points);
        const __m256i b = load_words(job->from[1] + i, flips, zero_points);
        const __m256i low = _mm256_unpacklo_epi16(a, b); /* positions 0..3 and 8..11 */
        const __m256i high = _mm256_unpackhi_epi16(a, b);
        uint8_t *to = job->cells + i * QK_IGEMM_CELL_BYTES;
        _mm256_storeu_si256((void *)to, _mm256_permute2x128_si256(low, high, 0x20));
        _mm256_storeu_si256((void *)(to + 32), _mm256_permute2x128_si256(low, high, 0x31));
    }
    for (; i < job->count; i++)
        interleave_one(job, i, flip, zero_point);
}

/* ---- Requantize -------------------------------------------------------------------------- */

/* 8 sums to integers whose saturation to bytes, after the zero point, is y. Only values above
 * `high` need a clamp: below the range, and for NaN, the conversion gives the least integer. The
 * order of min's operands keeps NaN. */
static inline __m256i scale(const int32_t *sums, __m256i bias, __m256 multiplier, __m256 high)
{
    const __m256i sum = _mm256_add_epi32(_mm256_loadu_si256((const void *)sums), bias);
    const __m256 value = _mm256_mul_ps(_mm256_cvtepi32_ps(sum), multiplier);
    return _mm256_cvtps_epi32(_mm256_min_ps(high, value));
}

/* 32 positions of a row. Packing works within 16-byte lanes; the permutation undoes that. */
static inline __m256i requantize_32(const struct qk_requantize_tile *tile, size_t row,
                                    const int32_t *sums)
{
    const __m256i bias = _mm256_set1_epi32(tile->bias[row]);
    const __m256 multiplier = _mm256_set1_ps(tile->multiplier[row]);
    const __m256 high = _mm256_set1_ps(tile->requantize->high);
    const __m256i zero_point = _mm256_set1_epi16((int16_t)tile->requantize->zero_point);
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    __m256i words[2];
    for (size_t i = 0; i < 2; i++) {
        const __m256i a = scale(sums + 16 * i, bias, multiplier, high);
        const __m256i b = scale(sums + 16 * i + 8, bias, multiplier, high);
        words[i] = _mm256_adds_epi16(_mm256_packs_epi32(a, b), zero_point);
    }
    return _mm256_permutevar8x32_epi32(tile->y_signed ? _mm256_packs_epi16(words[0], words[1])
                                                      : _mm256_packus_epi16(words[0], words[1]),
                                       order);
}

/* The bytes that `keep` has, without gaps: run by run. */
static void store_kept(const uint8_t bytes[QK_IGEMM_NR], uint64_t keep, uint8_t *y)
{
    for (size_t at = 0; keep != 0;) {
        const size_t skipped = (size_t)__builtin_ctzll(keep);
        const uint64_t run = ~(keep >> skipped);
        const size_t count = run == 0 ? QK_IGEMM_NR : (size_t)__builtin_ctzll(run);
        at += skipped;
        memcpy(y, bytes + at, count);
        y += count;
        at += count;
        keep = at < QK_IGEMM_NR ? keep >> skipped >> (count % QK_IGEMM_NR) : 0;
    }
}

static void requantize(const struct qk_requantize_tile *tile)
{
    uint8_t bytes[QK_IGEMM_NR];
    for (size_t row = 0; row < tile->rows; row++) {
        const int32_t *sums = tile->sums + row * QK_IGEMM_NR;
        for (size_t i = 0; i < QK_IGEMM_NR; i += 32)
            _mm256_storeu_si256((void *)(bytes + i), requantize_32(tile, row, sums + i));
        store_kept(bytes, tile->keep, tile->y + row * tile->y_stride);
    }
}

const struct qk_conv_vector qk_conv_vector_avx2 = {stage, interleave, requantize, NULL};

#endif
