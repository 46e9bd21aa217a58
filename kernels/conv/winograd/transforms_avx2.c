/* The transforms of Winograd's convolution (winograd.h) with AVX2. Vectors of x and of sums hold 8
 * tiles of one row of tiles. */
#include "kernels/conv/winograd/winograd.h"

#ifdef __x86_64__

#include <immintrin.h>

static inline __m256i load(const void *from)
{
    return _mm256_loadu_si256(from);
}

static inline void store(void *to, __m256i value)
{
    _mm256_storeu_si256(to, value);
}

/* ---- x ----------------------------------------------------------------------------------- */

/* Loads two neighbouring columns of 8 tiles of both channels. A quad then has the bytes of column 0
 * and 1 of the first channel, then those of the second channel. */
static inline __m256i load_columns(const uint8_t *a, const uint8_t *b, __m256i flip)
{
    const __m256i first = _mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)a));
    const __m256i second = _mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)b));
    return _mm256_xor_si256(_mm256_or_si256(first, _mm256_slli_epi32(second, 16)), flip);
}

/* Computes a row of d B for 8 tiles. */
static inline void transform_row(const uint8_t *a, const uint8_t *b, __m256i flip, __m256i to[4])
{
    const __m256i low = _mm256_set1_epi16(0xff);
    const __m256i front = load_columns(a, b, flip);
    const __m256i back = load_columns(a + 2, b + 2, flip);
    const __m256i d0 = _mm256_and_si256(front, low);
    const __m256i d1 = _mm256_srli_epi16(front, 8);
    const __m256i d2 = _mm256_and_si256(back, low);
    const __m256i d3 = _mm256_srli_epi16(back, 8);
    to[0] = _mm256_sub_epi16(d0, d2);
    to[1] = _mm256_add_epi16(d1, d2);
    to[2] = _mm256_sub_epi16(d2, d1);
    to[3] = _mm256_sub_epi16(d1, d3);
}

/* B^T 1 B is 4 at point 5 and 0 elsewhere, so the zero point counts at that point only. */
static void transform_x(const struct qk_winograd_x *job)
{
    const __m256i flip = _mm256_set1_epi8((char)job->flip);
    const __m256i zero_points = _mm256_set1_epi16((int16_t)(4 * job->x_zero_point));
    const size_t row_bytes = job->row_bytes;
    for (size_t i = 0; i < job->tile_rows; i++)
        for (size_t j = 0; j < job->tile_columns; j += QK_WINOGRAD_LANES) {
            const size_t from = 2 * i * row_bytes + 2 * j;
            uint8_t *to = job->quads + (i * job->tile_columns + j) * QK_IGEMM_QUAD_BYTES;
            __m256i d[4][4];
#pragma GCC unroll 4
            for (size_t r = 0; r < 4; r++)
                transform_row(job->x[0] + from + r * row_bytes, job->x[1] + from + r * row_bytes,
                              flip, d[r]);
#pragma GCC unroll 4
            for (size_t c = 0; c < 4; c++, to += job->point_bytes) {
                const __m256i sum = _mm256_add_epi16(d[1][c], d[2][c]);
                store(to, _mm256_sub_epi16(d[0][c], d[2][c]));
                store(to + 4 * job->point_bytes, c == 1 ? _mm256_sub_epi16(sum, zero_points) : sum);
                store(to + 8 * job->point_bytes, _mm256_sub_epi16(d[2][c], d[1][c]));
                store(to + 12 * job->point_bytes, _mm256_sub_epi16(d[1][c], d[3][c]));
            }
        }
}

/* ---- Weights ----------------------------------------------------------------------------- */

static inline __m256i load_weights(const int8_t *from)
{
    return _mm256_cvtepi8_epi16(_mm_loadu_si128((const void *)from));
}

static inline void double_3(const __m256i g[3], __m256i to[4])
{
    const __m256i ends = _mm256_add_epi16(g[0], g[2]);
    to[0] = _mm256_add_epi16(g[0], g[0]);
    to[1] = _mm256_add_epi16(ends, g[1]);
    to[2] = _mm256_sub_epi16(ends, g[1]);
    to[3] = _mm256_add_epi16(g[2], g[2]);
}

static void transform_weights(const int8_t *weights, size_t count, int16_t *to)
{
    for (size_t at = 0; at < count; at += 16) {
        __m256i columns[4][3];
#pragma GCC unroll 3
        for (size_t j = 0; j < 3; j++) {
            __m256i g[3], made[4];
#pragma GCC unroll 3
            for (size_t i = 0; i < 3; i++)
                g[i] = load_weights(weights + (3 * i + j) * count + at);
            double_3(g, made);
#pragma GCC unroll 4
            for (size_t i = 0; i < 4; i++)
                columns[i][j] = made[i];
        }
#pragma GCC unroll 4
        for (size_t i = 0; i < 4; i++) {
            __m256i u[4];
            double_3(columns[i], u);
#pragma GCC unroll 4
            for (size_t j = 0; j < 4; j++)
                store(to + (4 * i + j) * count + at, u[j]);
        }
    }
}

/* ---- Sums -------------------------------------------------------------------------------- */

/* Divides the sums of 8 tiles by 4, and stores those of column 0 and column 1 in turn. */
static inline void store_row(int32_t *to, const __m256i m[4])
{
    const __m256i middle = _mm256_sub_epi32(m[1], m[2]);
    const __m256i y0 = _mm256_srai_epi32(_mm256_add_epi32(_mm256_add_epi32(m[0], m[1]), m[2]), 2);
    const __m256i y1 = _mm256_srai_epi32(_mm256_sub_epi32(middle, m[3]), 2);
    const __m256i low = _mm256_unpacklo_epi32(y0, y1);
    const __m256i high = _mm256_unpackhi_epi32(y0, y1);
    store(to, _mm256_permute2x128_si256(low, high, 0x20));
    store(to + 8, _mm256_permute2x128_si256(low, high, 0x31));
}

static inline void sum_8(const int32_t *products, size_t point, int32_t *top, int32_t *bottom)
{
    __m256i a[4], b[4];
#pragma GCC unroll 4
    for (size_t j = 0; j < 4; j++) {
        const __m256i m0 = load(products + j * point);
        const __m256i m1 = load(products + (4 + j) * point);
        const __m256i m2 = load(products + (8 + j) * point);
        const __m256i m3 = load(products + (12 + j) * point);
        a[j] = _mm256_add_epi32(_mm256_add_epi32(m0, m1), m2);
        b[j] = _mm256_sub_epi32(_mm256_sub_epi32(m1, m2), m3);
    }
    store_row(top, a);
    store_row(bottom, b);
}

static void transform_sums(const struct qk_winograd_sums *job)
{
    const size_t pitch = QK_WINOGRAD_PITCH(job->tile_columns);
    const size_t point = job->mr * QK_IGEMM_NR;
    for (size_t i = 0; i < job->tile_rows; i++)
        for (size_t j = 0; j < job->tile_columns; j += QK_WINOGRAD_LANES) {
            const size_t top = 2 * i * pitch + 2 * j;
            const size_t bottom = top + pitch;
            const int32_t *from = job->products + i * job->tile_columns + j;
            int32_t *to_top = job->sums + top / QK_IGEMM_NR * point + top % QK_IGEMM_NR;
            int32_t *to_bottom = job->sums + bottom / QK_IGEMM_NR * point + bottom % QK_IGEMM_NR;
            for (size_t row = 0; row < job->rows; row++)
                sum_8(from + row * QK_IGEMM_NR, point, to_top + row * QK_IGEMM_NR,
                      to_bottom + row * QK_IGEMM_NR);
        }
}

const struct qk_winograd qk_winograd__avx2 = {
    .igemm = &qk_igemm_s16s16_6x16__avx2,
    .transform_x = transform_x,
    .transform_weights = transform_weights,
    .transform_sums = transform_sums,
};

#endif
