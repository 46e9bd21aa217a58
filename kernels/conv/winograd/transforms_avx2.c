/* The transforms of Winograd's convolution (winograd.h) with AVX2. Vectors of x and of sums hold 8
 * tiles of one row of tiles. */
#include "kernels/conv/winograd/winograd.h"

#ifdef __x86_64__

#include <immintrin.h>

/* 64 channels at 7 x 7 took 37 us instead of igemm's 30 on a Zen 3. */
#define LEAST_NS 50000
#define PRODUCT_SPEED 0.85

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
static inline void transform_row_2(const uint8_t *a, const uint8_t *b, __m256i flip, __m256i to[4])
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

/* B^T 1 B is 4 at point 5 and 0 elsewhere, so 128 is subtracted at that point only. */
static void transform_x_2(const struct qk_winograd_x *job)
{
    const __m256i flip = _mm256_set1_epi8((char)job->flip);
    const __m256i centre = _mm256_set1_epi16(4 * QK_WINOGRAD_X_CENTRE);
    const size_t row_bytes = job->row_bytes;
    for (size_t i = 0; i < job->tile_rows; i++)
        for (size_t j = 0; j < job->tile_columns; j += QK_WINOGRAD_LANES) {
            const size_t from = 2 * i * row_bytes + 2 * j;
            uint8_t *to = job->quads + (i * job->tile_columns + j) * QK_IGEMM_QUAD_BYTES;
            __m256i d[4][4];
#pragma GCC unroll 4
            for (size_t r = 0; r < 4; r++)
                transform_row_2(job->x[0] + from + r * row_bytes, job->x[1] + from + r * row_bytes,
                                flip, d[r]);
#pragma GCC unroll 4
            for (size_t c = 0; c < 4; c++, to += job->point_bytes) {
                const __m256i sum = _mm256_add_epi16(d[1][c], d[2][c]);
                store(to, _mm256_sub_epi16(d[0][c], d[2][c]));
                store(to + 4 * job->point_bytes, c == 1 ? _mm256_sub_epi16(sum, centre) : sum);
                store(to + 8 * job->point_bytes, _mm256_sub_epi16(d[2][c], d[1][c]));
                store(to + 12 * job->point_bytes, _mm256_sub_epi16(d[1][c], d[3][c]));
            }
        }
}

/* Loads four neighbouring columns of 8 tiles of both channels. Quads of to[0] have the bytes of
 * column 0 and 1 of the first channel, then those of the second channel. to[1] has the same of
 * columns 2 and 3. */
static inline void load_4_columns(const uint8_t *a, const uint8_t *b, __m256i to[2])
{
    const __m256i first = load(a), second = load(b);
    to[0] = _mm256_blend_epi16(first, _mm256_slli_epi32(second, 16), 0xaa);
    to[1] = _mm256_blend_epi16(_mm256_srli_epi32(first, 16), second, 0xaa);
}

/* Computes B^T d for a column d, n = 4. */
static inline void transform_6(const __m256i d[6], __m256i to[6])
{
    const __m256i outer = _mm256_sub_epi16(d[4], d[2]);
    const __m256i inner = _mm256_sub_epi16(d[3], d[1]);
    const __m256i twice = _mm256_add_epi16(inner, inner);
    const __m256i plus = _mm256_slli_epi16(_mm256_add_epi16(d[1], d[2]), 2);
    const __m256i minus = _mm256_slli_epi16(_mm256_sub_epi16(d[1], d[2]), 2);
    const __m256i front = _mm256_slli_epi16(_mm256_sub_epi16(d[0], d[2]), 2);
    to[0] = _mm256_add_epi16(front, outer);
    to[1] = _mm256_sub_epi16(_mm256_add_epi16(d[3], d[4]), plus);
    to[2] = _mm256_add_epi16(_mm256_sub_epi16(d[4], d[3]), minus);
    to[3] = _mm256_add_epi16(outer, twice);
    to[4] = _mm256_sub_epi16(outer, twice);
    to[5] = _mm256_sub_epi16(_mm256_sub_epi16(d[5], d[3]), _mm256_add_epi16(twice, twice));
}

/* Computes a row of d B for 8 tiles, n = 4. */
static inline void transform_row_4(const uint8_t *a, const uint8_t *b, __m256i flip, __m256i to[6])
{
    const __m256i low = _mm256_set1_epi16(0xff);
    __m256i pairs[4], d[6];
    load_4_columns(a, b, pairs);
    load_4_columns(a + 4, b + 4, pairs + 2);
#pragma GCC unroll 3
    for (size_t i = 0; i < 3; i++) {
        const __m256i pair = _mm256_xor_si256(pairs[i], flip);
        d[2 * i] = _mm256_and_si256(pair, low);
        d[2 * i + 1] = _mm256_srli_epi16(pair, 8);
    }
    transform_6(d, to);
}

/* B^T 1 B is 36 at point 7 and 0 elsewhere. */
static void transform_x_4(const struct qk_winograd_x *job)
{
    const __m256i flip = _mm256_set1_epi8((char)job->flip);
    const __m256i centre = _mm256_set1_epi16(36 * QK_WINOGRAD_X_CENTRE);
    const size_t row_bytes = job->row_bytes;
    for (size_t i = 0; i < job->tile_rows; i++)
        for (size_t j = 0; j < job->tile_columns; j += QK_WINOGRAD_LANES) {
            const size_t from = 4 * i * row_bytes + 4 * j;
            uint8_t *to = job->quads + (i * job->tile_columns + j) * QK_IGEMM_QUAD_BYTES;
            __m256i rows[6][6];
            for (size_t r = 0; r < 6; r++)
                transform_row_4(job->x[0] + from + r * row_bytes, job->x[1] + from + r * row_bytes,
                                flip, rows[r]);
            for (size_t c = 0; c < 6; c++, to += job->point_bytes) {
                __m256i d[6], v[6];
#pragma GCC unroll 6
                for (size_t r = 0; r < 6; r++)
                    d[r] = rows[r][c];
                transform_6(d, v);
                if (c == 1)
                    v[1] = _mm256_sub_epi16(v[1], centre);
#pragma GCC unroll 6
                for (size_t r = 0; r < 6; r++)
                    store(to + r * 6 * job->point_bytes, v[r]);
            }
        }
}

/* ---- Weights ----------------------------------------------------------------------------- */

static inline __m256i load_weights(const int8_t *from)
{
    return _mm256_cvtepi8_epi16(_mm_loadu_si128((const void *)from));
}

/* Computes G g for n = 2. */
static inline void weigh_2(const __m256i g[3], __m256i to[4])
{
    const __m256i ends = _mm256_add_epi16(g[0], g[2]);
    to[0] = _mm256_add_epi16(g[0], g[0]);
    to[1] = _mm256_add_epi16(ends, g[1]);
    to[2] = _mm256_sub_epi16(ends, g[1]);
    to[3] = _mm256_add_epi16(g[2], g[2]);
}

/* Computes G g for n = 4. */
static inline void weigh_4(const __m256i g[3], __m256i to[6])
{
    const __m256i ends = _mm256_add_epi16(g[0], g[2]);
    const __m256i twice = _mm256_add_epi16(g[1], g[1]);
    const __m256i far = _mm256_add_epi16(g[0], _mm256_slli_epi16(g[2], 2));
    to[0] = g[0];
    to[1] = _mm256_add_epi16(ends, g[1]);
    to[2] = _mm256_sub_epi16(ends, g[1]);
    to[3] = _mm256_add_epi16(far, twice);
    to[4] = _mm256_sub_epi16(far, twice);
    to[5] = g[2];
}

/* Inlined with a constant n. */
__attribute__((always_inline)) static inline void transform_weights(const size_t n,
                                                                    const int8_t *weights,
                                                                    size_t count, int16_t *to,
                                                                    size_t to_stride)
{
    const size_t side = n + 2;
    for (size_t at = 0; at < count; at += 16) {
        __m256i columns[6][3];
#pragma GCC unroll 3
        for (size_t j = 0; j < 3; j++) {
            __m256i g[3], made[6];
#pragma GCC unroll 3
            for (size_t i = 0; i < 3; i++)
                g[i] = load_weights(weights + (3 * i + j) * count + at);
            n == 2 ? weigh_2(g, made) : weigh_4(g, made);
#pragma GCC unroll 6
            for (size_t i = 0; i < side; i++)
                columns[i][j] = made[i];
        }
#pragma GCC unroll 6
        for (size_t i = 0; i < side; i++) {
            __m256i u[6];
            n == 2 ? weigh_2(columns[i], u) : weigh_4(columns[i], u);
#pragma GCC unroll 6
            for (size_t j = 0; j < side; j++)
                store(to + (side * i + j) * to_stride + at, u[j]);
        }
    }
}

static void transform_weights_2(const int8_t *weights, size_t count, int16_t *to, size_t to_stride)
{
    transform_weights(2, weights, count, to, to_stride);
}

static void transform_weights_4(const int8_t *weights, size_t count, int16_t *to, size_t to_stride)
{
    transform_weights(4, weights, count, to, to_stride);
}

/* Returns the sum of the four 64-bit lanes, which fits 32 bits. */
static inline uint32_t sum_lanes(__m256i lanes)
{
    const __m128i half =
        _mm_add_epi64(_mm256_castsi256_si128(lanes), _mm256_extracti128_si256(lanes, 1));
    return (uint32_t)_mm_cvtsi128_si32(_mm_add_epi64(half, _mm_unpackhi_epi64(half, half)));
}

/* VPSADBW adds up unsigned bytes: |weights|, of which 128 is unsigned, and weights + 128. */
struct qk_winograd_row qk_winograd_row__avx2(const uint8_t *weights, size_t count, uint8_t flip)
{
    const __m256i zero = _mm256_setzero_si256();
    const __m256i flips = _mm256_set1_epi8((char)flip);
    const __m256i middle = _mm256_set1_epi8((char)0x80);
    const size_t whole = count / 32 * 32;
    __m256i sums = zero, sizes = zero;
    for (size_t i = 0; i < whole; i += 32) {
        const __m256i w = _mm256_xor_si256(load(weights + i), flips);
        sums = _mm256_add_epi64(sums, _mm256_sad_epu8(_mm256_xor_si256(w, middle), zero));
        sizes = _mm256_add_epi64(sizes, _mm256_sad_epu8(_mm256_abs_epi8(w), zero));
    }
    struct qk_winograd_row row = qk_winograd_row_scalar(weights + whole, count - whole, flip);
    row.sum += (int32_t)sum_lanes(sums) - (int32_t)(128 * whole);
    row.size += sum_lanes(sizes);
    return row;
}

/* ---- Sums -------------------------------------------------------------------------------- */

/* Divides the sums of 8 tiles by 4, and stores those of column 0 and column 1 in turn. */
static inline void store_row_2(int32_t *to, const __m256i m[4])
{
    const __m256i middle = _mm256_sub_epi32(m[1], m[2]);
    const __m256i y0 = _mm256_srai_epi32(_mm256_add_epi32(_mm256_add_epi32(m[0], m[1]), m[2]), 2);
    const __m256i y1 = _mm256_srai_epi32(_mm256_sub_epi32(middle, m[3]), 2);
    const __m256i low = _mm256_unpacklo_epi32(y0, y1);
    const __m256i high = _mm256_unpackhi_epi32(y0, y1);
    store(to, _mm256_permute2x128_si256(low, high, 0x20));
    store(to + 8, _mm256_permute2x128_si256(low, high, 0x31));
}

static inline void sum_8_2(const int32_t *products, size_t point, int32_t *top, int32_t *bottom)
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
    store_row_2(top, a);
    store_row_2(bottom, b);
}

static void transform_sums_2(const struct qk_winograd_sums *job)
{
    const size_t pitch = QK_WINOGRAD_PITCH(2, job->tile_columns);
    const size_t point = job->igemm->mr * QK_IGEMM_NR;
    for (size_t i = 0; i < job->tile_rows; i++)
        for (size_t j = 0; j < job->tile_columns; j += QK_WINOGRAD_LANES) {
            const size_t top = 2 * i * pitch + 2 * j;
            const size_t bottom = top + pitch;
            const int32_t *from = job->products + i * job->tile_columns + j;
            int32_t *to_top = job->sums + top / QK_IGEMM_NR * point + top % QK_IGEMM_NR;
            int32_t *to_bottom = job->sums + bottom / QK_IGEMM_NR * point + bottom % QK_IGEMM_NR;
            for (size_t row = 0; row < job->rows; row++)
                sum_8_2(from + row * QK_IGEMM_NR, point, to_top + row * QK_IGEMM_NR,
                        to_bottom + row * QK_IGEMM_NR);
        }
}

static inline __m256i double_32(__m256i a)
{
    return _mm256_add_epi32(a, a);
}

/* Computes A^T F m for n = 4: to[0] is divided by 1, to[1] by 2, and the others by 4. */
static inline void sum_6(const __m256i m[6], __m256i to[4])
{
    const __m256i sum_12 = _mm256_add_epi32(m[1], m[2]), sum_34 = _mm256_add_epi32(m[3], m[4]);
    const __m256i less_12 = _mm256_sub_epi32(m[1], m[2]), less_34 = _mm256_sub_epi32(m[3], m[4]);
    const __m256i front = _mm256_add_epi32(double_32(_mm256_sub_epi32(m[0], sum_12)), m[0]);
    const __m256i back = _mm256_add_epi32(less_34, _mm256_add_epi32(double_32(m[5]), m[5]));
    to[0] = _mm256_add_epi32(double_32(front), sum_34);
    to[1] = _mm256_sub_epi32(less_34, double_32(less_12));
    to[2] = _mm256_sub_epi32(sum_34, sum_12);
    to[3] = _mm256_sub_epi32(double_32(back), less_12);
}

/* Stores y of 8 tiles, whose columns are vectors, position by position. */
static inline void store_row_4(int32_t *to, const __m256i y[4])
{
    const __m256i a = _mm256_unpacklo_epi32(y[0], y[1]), b = _mm256_unpackhi_epi32(y[0], y[1]);
    const __m256i c = _mm256_unpacklo_epi32(y[2], y[3]), d = _mm256_unpackhi_epi32(y[2], y[3]);
    const __m256i tiles_04 = _mm256_unpacklo_epi64(a, c), tiles_15 = _mm256_unpackhi_epi64(a, c);
    const __m256i tiles_26 = _mm256_unpacklo_epi64(b, d), tiles_37 = _mm256_unpackhi_epi64(b, d);
    store(to, _mm256_permute2x128_si256(tiles_04, tiles_15, 0x20));
    store(to + 8, _mm256_permute2x128_si256(tiles_26, tiles_37, 0x20));
    store(to + 16, _mm256_permute2x128_si256(tiles_04, tiles_15, 0x31));
    store(to + 24, _mm256_permute2x128_si256(tiles_26, tiles_37, 0x31));
}

/* Computes a row of y for 8 tiles from a row of A^T F M. What sum_6 has divided its results by is
 * not divided again. `shift` is the number of bits that the row still has to lose. */
__attribute__((always_inline)) static inline void finish_row_4(int32_t *to, const __m256i m[6],
                                                               const int shift)
{
    const __m256i inverse_of_9 = _mm256_set1_epi32(0x38E38E39);
    __m256i y[4];
    sum_6(m, y);
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++)
        y[j] = _mm256_srai_epi32(_mm256_mullo_epi32(y[j], inverse_of_9), shift + (j == 0   ? 3
                                                                                  : j == 1 ? 2
                                                                                           : 1));
    store_row_4(to, y);
}

/* Computes the sums of 8 tiles. `to` has the first sum of each row of these tiles. */
static inline void sum_8_4(const int32_t *products, size_t point, int32_t *const to[4])
{
    __m256i rows[4][6];
    for (size_t j = 0; j < 6; j++) {
        __m256i m[6], made[4];
#pragma GCC unroll 6
        for (size_t i = 0; i < 6; i++)
            m[i] = load(products + (6 * i + j) * point);
        sum_6(m, made);
#pragma GCC unroll 4
        for (size_t i = 0; i < 4; i++)
            rows[i][j] = made[i];
    }
    finish_row_4(to[0], rows[0], 3);
    finish_row_4(to[1], rows[1], 2);
    finish_row_4(to[2], rows[2], 1);
    finish_row_4(to[3], rows[3], 1);
}

/* M of all points is larger than the L1 cache, so it is read row by row. */
static void transform_sums_4(const struct qk_winograd_sums *job)
{
    const size_t pitch = QK_WINOGRAD_PITCH(4, job->tile_columns);
    const size_t point = job->igemm->mr * QK_IGEMM_NR;
    for (size_t row = 0; row < job->rows; row++)
        for (size_t i = 0; i < job->tile_rows; i++)
            for (size_t j = 0; j < job->tile_columns; j += QK_WINOGRAD_LANES) {
                int32_t *to[4];
                for (size_t k = 0; k < 4; k++) {
                    const size_t first = (4 * i + k) * pitch + 4 * j;
                    to[k] = job->sums + first / QK_IGEMM_NR * point + row * QK_IGEMM_NR +
                            first % QK_IGEMM_NR;
                }
                sum_8_4(job->products + row * QK_IGEMM_NR + i * job->tile_columns + j, point, to);
            }
}

#define TILES_OF_4(product, name)                                                     \
    {                                                                                 \
        .igemm = (product), .kernel = (name), .n = 4, .points = 36, .x_cycles = 120,  \
        .kernel_cycles = 3.4, .sums_cycles = 250, .product_speed = PRODUCT_SPEED,     \
        .least_ns = LEAST_NS, .transform_x = transform_x_4,                           \
        .transform_weights = transform_weights_4, .transform_sums = transform_sums_4, \
        .add_row = qk_winograd_row__avx2,                                             \
    }

const struct qk_winograd qk_winograd__avx2[QK_WINOGRAD_SIZES] = {
    TILES_OF_4(&qk_igemm_s16s16_6x16__avx2, "conv_winograd4_avx2"),
    {
        .igemm = &qk_igemm_s16s16_6x16__avx2,
        .kernel = "conv_winograd_avx2",
        .n = 2,
        .points = 16,
        .x_cycles = 32,
        .kernel_cycles = 1.3,
        .sums_cycles = 50,
        .product_speed = PRODUCT_SPEED,
        .least_ns = LEAST_NS,
        .transform_x = transform_x_2,
        .transform_weights = transform_weights_2,
        .transform_sums = transform_sums_2,
        .add_row = qk_winograd_row__avx2,
    },
};

const struct qk_winograd qk_winograd__avxvnni[QK_WINOGRAD_SIZES] = {
    TILES_OF_4(&qk_igemm_s16s16_6x16__avxvnni, "conv_winograd4_avxvnni"),
};

#endif
