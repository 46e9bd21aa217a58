/* The transforms of Winograd's convolution F(4x4, 3x3) (winograd.h) with AVX-512, for products by
 * position. */
#include "kernels/conv/winograd/winograd.h"

#ifdef __x86_64__

#include <immintrin.h>

/* MR and NR are those of the product. As constants, they make the addresses of M constants, too. */
enum { N = 4, SIDE = 6, POINTS = SIDE * SIDE, LANES = 16, MR = 32, NR = 14 };

static inline __m512i load(const void *from)
{
    return _mm512_loadu_si512(from);
}

static inline void store(void *to, __m512i value)
{
    _mm512_storeu_si512(to, value);
}

/* ---- x ----------------------------------------------------------------------------------- */

/* Two runs of QK_WINOGRAD_LANES neighbouring tiles, which fill a vector: where each begins in x,
 * and its first quad. */
struct runs {
    size_t x[2];
    uint8_t *quads[2];
};

static inline __m512i load_runs(const uint8_t *x, const struct runs *runs)
{
    const __m256i first = _mm256_loadu_si256((const void *)(x + runs->x[0]));
    const __m256i second = _mm256_loadu_si256((const void *)(x + runs->x[1]));
    return _mm512_inserti64x4(_mm512_castsi256_si512(first), second, 1);
}

/* Loads two neighbouring columns of both channels. Quads have their bytes of the first channel,
 * then those of the second channel. A masked load touches only the bytes in its mask. */
__attribute__((always_inline)) static inline __m512i
load_columns(const uint8_t *a, const uint8_t *b, const struct runs *runs, bool together)
{
    const __mmask32 second = 0xaaaaaaaa;
    if (together)
        return _mm512_mask_loadu_epi16(load(a + runs->x[0]), second, b + runs->x[0] - 2);
    return _mm512_mask_blend_epi16(second, load_runs(a, runs),
                                   _mm512_slli_epi32(load_runs(b, runs), 16));
}

/* Computes B^T d for a column d. */
static inline void transform_6(const __m512i d[SIDE], __m512i to[SIDE])
{
    const __m512i outer = _mm512_sub_epi16(d[4], d[2]);
    const __m512i inner = _mm512_sub_epi16(d[3], d[1]);
    const __m512i twice = _mm512_add_epi16(inner, inner);
    const __m512i plus = _mm512_slli_epi16(_mm512_add_epi16(d[1], d[2]), 2);
    const __m512i minus = _mm512_slli_epi16(_mm512_sub_epi16(d[1], d[2]), 2);
    const __m512i front = _mm512_slli_epi16(_mm512_sub_epi16(d[0], d[2]), 2);
    to[0] = _mm512_add_epi16(front, outer);
    to[1] = _mm512_sub_epi16(_mm512_add_epi16(d[3], d[4]), plus);
    to[2] = _mm512_add_epi16(_mm512_sub_epi16(d[4], d[3]), minus);
    to[3] = _mm512_add_epi16(outer, twice);
    to[4] = _mm512_sub_epi16(outer, twice);
    to[5] = _mm512_sub_epi16(_mm512_sub_epi16(d[5], d[3]), _mm512_add_epi16(twice, twice));
}

/* Computes a row of d B. */
__attribute__((always_inline)) static inline void transform_row(const uint8_t *a, const uint8_t *b,
                                                                const struct runs *runs,
                                                                __m512i flip, bool together,
                                                                __m512i to[SIDE])
{
    const __m512i low = _mm512_set1_epi16(0xff);
    __m512i d[SIDE];
#pragma GCC unroll 3
    for (size_t i = 0; i < SIDE; i += 2) {
        const __m512i pair = _mm512_xor_si512(load_columns(a + i, b + i, runs, together), flip);
        d[i] = _mm512_and_si512(pair, low);
        d[i + 1] = _mm512_srli_epi16(pair, 8);
    }
    transform_6(d, to);
}

/* B^T 1 B is 36 at point 7 and 0 elsewhere, so 128 is subtracted at that point only. Inlined with a
 * constant `together`: the second run follows the first one in its row. */
__attribute__((always_inline)) static inline void
transform_runs(const struct qk_winograd_x *job, const struct runs *runs, const bool together)
{
    const __m512i flip = _mm512_set1_epi8((char)job->flip);
    const __m512i centre = _mm512_set1_epi16(36 * QK_WINOGRAD_X_CENTRE);
    uint8_t *first = runs->quads[0], *second = runs->quads[1];
    __m512i rows[SIDE][SIDE];
#pragma GCC unroll 6
    for (size_t r = 0; r < SIDE; r++)
        transform_row(job->x[0] + r * job->row_bytes, job->x[1] + r * job->row_bytes, runs, flip,
                      together, rows[r]);
#pragma GCC unroll 6
    for (size_t c = 0; c < SIDE; c++, first += job->point_bytes, second += job->point_bytes) {
        __m512i d[SIDE], v[SIDE];
#pragma GCC unroll 6
        for (size_t r = 0; r < SIDE; r++)
            d[r] = rows[r][c];
        transform_6(d, v);
        if (c == 1)
            v[1] = _mm512_sub_epi16(v[1], centre);
#pragma GCC unroll 6
        for (size_t r = 0; r < SIDE; r++) {
            const size_t at = r * SIDE * job->point_bytes;
            if (together) {
                store(first + at, v[r]);
            } else {
                _mm256_storeu_si256((void *)(first + at), _mm512_castsi512_si256(v[r]));
                _mm256_storeu_si256((void *)(second + at), _mm512_extracti64x4_epi64(v[r], 1));
            }
        }
    }
}

/* Quads that a run writes beyond its row of tiles are written again by the runs of the next row, so
 * the order of runs matters. A vector has two runs of one row or, if rows have an odd number of
 * runs, of two. The last run may be taken twice. */
static void transform_x(const struct qk_winograd_x *job)
{
    const size_t row_runs = (job->tile_columns + QK_WINOGRAD_LANES - 1) / QK_WINOGRAD_LANES;
    const size_t count = job->tile_rows * row_runs;
    for (size_t run = 0; run < count; run += 2) {
        struct runs runs;
        for (size_t i = 0; i < 2; i++) {
            const size_t at = run + i < count ? run + i : run;
            const size_t row = at / row_runs, column = at % row_runs * QK_WINOGRAD_LANES;
            runs.x[i] = N * (row * job->row_bytes + column);
            runs.quads[i] = job->quads + (row * job->tile_columns + column) * QK_IGEMM_QUAD_BYTES;
        }
        if (runs.x[1] == runs.x[0] + (size_t)N * QK_WINOGRAD_LANES)
            transform_runs(job, &runs, true);
        else
            transform_runs(job, &runs, false);
    }
}

/* ---- Weights ----------------------------------------------------------------------------- */

/* Computes G g. */
static inline void weigh(const __m512i g[3], __m512i to[SIDE])
{
    const __m512i ends = _mm512_add_epi16(g[0], g[2]);
    const __m512i twice = _mm512_add_epi16(g[1], g[1]);
    const __m512i far = _mm512_add_epi16(g[0], _mm512_slli_epi16(g[2], 2));
    to[0] = g[0];
    to[1] = _mm512_add_epi16(ends, g[1]);
    to[2] = _mm512_sub_epi16(ends, g[1]);
    to[3] = _mm512_add_epi16(far, twice);
    to[4] = _mm512_sub_epi16(far, twice);
    to[5] = g[2];
}

static void transform_weights(const int8_t *weights, size_t count, int16_t *to, size_t to_stride)
{
    for (size_t at = 0; at < count; at += 32) {
        __m512i columns[SIDE][3];
#pragma GCC unroll 3
        for (size_t j = 0; j < 3; j++) {
            __m512i g[3], made[SIDE];
#pragma GCC unroll 3
            for (size_t i = 0; i < 3; i++)
                g[i] = _mm512_cvtepi8_epi16(
                    _mm256_loadu_si256((const void *)(weights + (3 * i + j) * count + at)));
            weigh(g, made);
#pragma GCC unroll 6
            for (size_t i = 0; i < SIDE; i++)
                columns[i][j] = made[i];
        }
#pragma GCC unroll 6
        for (size_t i = 0; i < SIDE; i++) {
            __m512i u[SIDE];
            weigh(columns[i], u);
#pragma GCC unroll 6
            for (size_t j = 0; j < SIDE; j++)
                store(to + (SIDE * i + j) * to_stride + at, u[j]);
        }
    }
}

/* ---- Sums -------------------------------------------------------------------------------- */

static inline __m512i twice(__m512i a)
{
    return _mm512_add_epi32(a, a);
}

/* Computes A^T F m: to[0] is divided by 1, to[1] by 2, and the others by 4. */
static inline void sum_6(const __m512i m[SIDE], __m512i to[N])
{
    const __m512i sum_12 = _mm512_add_epi32(m[1], m[2]), sum_34 = _mm512_add_epi32(m[3], m[4]);
    const __m512i less_12 = _mm512_sub_epi32(m[1], m[2]), less_34 = _mm512_sub_epi32(m[3], m[4]);
    const __m512i front = _mm512_add_epi32(twice(_mm512_sub_epi32(m[0], sum_12)), m[0]);
    const __m512i back = _mm512_add_epi32(less_34, _mm512_add_epi32(twice(m[5]), m[5]));
    to[0] = _mm512_add_epi32(twice(front), sum_34);
    to[1] = _mm512_sub_epi32(less_34, twice(less_12));
    to[2] = _mm512_sub_epi32(sum_34, sum_12);
    to[3] = _mm512_sub_epi32(twice(back), less_12);
}

/* Stores a row of y of a tile, from a row of A^T F M. What sum_6 has divided its results by is not
 * divided again. `shift` is the number of bits that the row still has to lose. Inlined with a
 * constant `shift`. */
__attribute__((always_inline)) static inline void finish_row(int32_t *to, const __m512i m[SIDE],
                                                             const unsigned shift)
{
    const __m512i inverse_of_9 = _mm512_set1_epi32(0x38E38E39);
    __m512i y[N];
    sum_6(m, y);
#pragma GCC unroll 4
    for (unsigned j = 0; j < N; j++)
        store(to + j * MR,
              _mm512_srai_epi32(_mm512_mullo_epi32(y[j], inverse_of_9), shift + (j == 0   ? 3
                                                                                 : j == 1 ? 2
                                                                                          : 1)));
}

/* Computes the sums of a tile for a vector of rows. */
static inline void sum_tile(const int32_t *products, int32_t *to, size_t row_sums)
{
    __m512i rows[N][SIDE];
#pragma GCC unroll 6
    for (size_t j = 0; j < SIDE; j++) {
        __m512i m[SIDE], made[N];
#pragma GCC unroll 6
        for (size_t i = 0; i < SIDE; i++)
            m[i] = load(products + (SIDE * i + j) * MR * NR);
        sum_6(m, made);
#pragma GCC unroll 4
        for (size_t i = 0; i < N; i++)
            rows[i][j] = made[i];
    }
    finish_row(to, rows[0], 3);
    finish_row(to + row_sums, rows[1], 2);
    finish_row(to + 2 * row_sums, rows[2], 1);
    finish_row(to + 3 * row_sums, rows[3], 1);
}

static void transform_sums(const struct qk_winograd_sums *job)
{
    const size_t row_sums = N * job->tile_columns * MR;
    for (size_t row = 0; row < job->rows; row += LANES)
        for (size_t i = 0; i < job->tile_rows; i++)
            for (size_t j = 0; j < job->tile_columns; j++)
                sum_tile(job->products + (i * job->tile_columns + j) * MR + row,
                         job->sums + N * i * row_sums + N * j * MR + row, row_sums);
}

const struct qk_winograd qk_winograd__avx512vnni[QK_WINOGRAD_SIZES] = {
    {
        .igemm = &qk_igemm_s16s16_32x14__avx512vnni,
        .kernel = "conv_winograd4_vnni",
        .n = N,
        .points = POINTS,
        .x_cycles = 70,
        .kernel_cycles = 5.5,
        .sums_cycles = 90,
        .terms_per_cycle = 64,
        .product_speed = 1,
        .least_ns = 10000,
        .transform_x = transform_x,
        .transform_weights = transform_weights,
        .transform_sums = transform_sums,
        .add_row = qk_winograd_row__avx2,
    },
};

#endif
