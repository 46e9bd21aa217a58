/* VPDPBUSD on vectors of 16 positions multiplies u8 by s8 and adds four products to a sum, modulo
 * 2^32 (the form without saturation). The instruction itself broadcasts a quad of weights to all
 * lanes while it reads the quad from memory. A tile's 24 vectors of sums stay in registers until
 * all steps are done. They may become bytes of y there (struct qk_igemm_bytes). */
#include "kernels/gemm/igemm.h"

#ifdef __x86_64__

#include <immintrin.h>
#include <string.h>

#include "kernels/conv/requantize_avx512.h"
#include "kernels/gemm/dpbusd.h"
#include "kernels/sizes.h"

enum { MR = 6, NV = QK_IGEMM_NR / QK_IGEMM_VECTOR, SLAB_WEIGHTS = MR * QK_IGEMM_QUAD_BYTES };

static inline __m512i broadcast_quad(const uint8_t *weights)
{
    int32_t quad;
    memcpy(&quad, weights, sizeof(quad));
    return _mm512_set1_epi32(quad);
}

/* Adds the products of one slab. Inlined with constant `rows` and `vectors`, so that the compiler
 * keeps `sums` in registers. It would rather load x again for each of a few rows, so the origin of
 * `x` is hidden then. */
__attribute__((always_inline)) static inline void add_slab(const uint8_t *quads,
                                                           const uint8_t *weights,
                                                           __m512i sums[][NV], const size_t rows,
                                                           const size_t vectors)
{
    __m512i x[NV];
#pragma GCC unroll 4
    for (size_t v = 0; v < vectors; v++) {
        x[v] = _mm512_loadu_si512(quads + 64 * v);
        if (rows <= MR / 2)
            qk_hide_origin(&x[v]);
    }
#pragma GCC unroll 6
    for (size_t r = 0; r < rows; r++) {
        __m512i w = broadcast_quad(weights + r * QK_IGEMM_QUAD_BYTES);
#pragma GCC unroll 4
        for (size_t v = 0; v < vectors; v++)
            sums[r][v] = _mm512_dpbusd_epi32(sums[r][v], x[v], w);
    }
}

/* Adds the products of a tile that begins at position `first`. Inlined like add_slab. */
__attribute__((always_inline)) static inline void add_tile(const struct qk_igemm_args *args,
                                                           size_t first, __m512i sums[MR][NV],
                                                           const size_t rows, const size_t vectors)
{
    const struct qk_igemm_step *step = args->steps;
    const uint8_t *step_weights = args->weights;
    for (size_t s = 0; s < args->step_count; s++, step++, step_weights += args->step_bytes) {
        const uint8_t *quads = args->quads + step->offset + first * QK_IGEMM_QUAD_BYTES;
        const uint8_t *weights = step_weights;
        for (uint32_t i = 0; i < step->slabs; i++) {
            add_slab(quads, weights, sums, rows, vectors);
            quads += args->slab_bytes;
            weights += SLAB_WEIGHTS;
        }
    }
}

/* Computes the sums of a tile. Inlined with constants. */
__attribute__((always_inline)) static inline void
multiply_tile(const struct qk_igemm_args *args, const size_t rows, const size_t vectors)
{
    __m512i sums[MR][NV];
#pragma GCC unroll 6
    for (size_t r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (size_t v = 0; v < vectors; v++)
            sums[r][v] = _mm512_setzero_si512();
    add_tile(args, 0, sums, rows, vectors);
#pragma GCC unroll 6
    for (size_t r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (size_t v = 0; v < vectors; v++) {
            int32_t *to = args->sums + r * QK_IGEMM_NR + v * QK_IGEMM_VECTOR;
            if (args->add)
                sums[r][v] = _mm512_add_epi32(sums[r][v], _mm512_loadu_si512(to));
            _mm512_storeu_si512(to, sums[r][v]);
        }
}

/* Computes an even number of rows: one wasted row costs less than twice as many copies of the loop.
 */
__attribute__((always_inline)) static inline void multiply_vectors(const struct qk_igemm_args *args,
                                                                   const size_t vectors)
{
    if (args->rows > 4)
        multiply_tile(args, 6, vectors);
    else if (args->rows > 2)
        multiply_tile(args, 4, vectors);
    else
        multiply_tile(args, 2, vectors);
}

/* ---- Bytes ------------------------------------------------------------------------------- */

static inline struct qk_requantize_512 requantize_to(const struct qk_igemm_bytes *bytes)
{
    return (struct qk_requantize_512){
        .zero_point = _mm512_set1_epi16((int16_t)bytes->zero_point),
        .is_signed = bytes->is_signed,
    };
}

/* Requantizes the sums of `vectors` vectors of a row, and returns the bytes in order. */
__attribute__((always_inline)) static inline __m512i
requantize_row(const __m512i sums[NV], const struct qk_requantize_512 *to, float multiplier,
               const size_t vectors)
{
    const __m512 multipliers = _mm512_set1_ps(multiplier);
    __m512i scaled[NV];
#pragma GCC unroll 4
    for (size_t v = 0; v < NV; v++)
        scaled[v] =
            v < vectors
                ? _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_cvtepi32_ps(sums[v]), multipliers))
                : scaled[0];
    return qk_requantize_in_order(qk_requantize_narrow(to, scaled, vectors));
}

static inline void store_row(uint8_t *y, __m512i row, size_t count)
{
    if (count == QK_IGEMM_NR)
        _mm512_storeu_si512(y, row);
    else
        _mm512_mask_storeu_epi8(y, UINT64_MAX >> (QK_IGEMM_NR - count), row);
}

/* Computes the bytes of `count` positions of `rows` rows, from position `first` on. The panel may
 * lack the last row. Its bytes are not stored, and any bias serves it. Inlined with constant `rows`
 * and `vectors`. */
__attribute__((always_inline)) static inline void requantize_tile(const struct qk_igemm_args *args,
                                                                  size_t first, size_t count,
                                                                  const size_t rows,
                                                                  const size_t vectors)
{
    const struct qk_igemm_bytes *bytes = args->bytes;
    const struct qk_requantize_512 to = requantize_to(bytes);
    const bool lacks_last = args->rows < rows;
    uint8_t *y = bytes->y + first;
    __m512i sums[MR][NV];
#pragma GCC unroll 6
    for (size_t r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (size_t v = 0; v < vectors; v++)
            sums[r][v] = _mm512_set1_epi32(bytes->bias[r + 1 == rows && lacks_last ? 0 : r]);
    add_tile(args, first, sums, rows, vectors);
#pragma GCC unroll 6
    for (size_t r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (size_t v = 0; v < vectors; v++)
            qk_hide_origin(&sums[r][v]);
#pragma GCC unroll 6
    for (size_t r = 0; r < rows; r++, y += bytes->y_stride) {
        if (r + 1 == rows && lacks_last)
            break;
        const __m512i row = requantize_row(sums[r], &to, bytes->multiplier[r], vectors);
        store_row(y, row, count);
    }
}

/* Computes the bytes of `rows` rows from position `first` on. */
__attribute__((always_inline)) static inline void requantize_rows(const struct qk_igemm_args *args,
                                                                  size_t first, const size_t rows)
{
    for (; first < args->positions; first += QK_IGEMM_NR) {
        const size_t count = qk_size_min(args->positions - first, QK_IGEMM_NR);
        if (count > 3 * QK_IGEMM_VECTOR)
            requantize_tile(args, first, count, rows, 4);
        else if (count > 2 * QK_IGEMM_VECTOR)
            requantize_tile(args, first, count, rows, 3);
        else if (count > QK_IGEMM_VECTOR)
            requantize_tile(args, first, count, rows, 2);
        else
            requantize_tile(args, first, count, rows, 1);
    }
}

/* Half of the rows of a tile of four vectors. To requantize all rows of a tile at once takes nearly
 * as long as the products of 16 channels, because a CPU hardly looks far enough ahead to begin the
 * next tile. A half is therefore requantized between the products of the half after it, which use
 * other execution units. */
struct half {
    __m512i sums[MR / 2][NV];
    const float *multiplier;
    uint8_t *y;
    size_t count;    /* of positions */
    bool lacks_last; /* the panel lacks the last row, as in requantize_tile */
};

/* Begins half `h` of the tile that begins at position `first`. Inlined with constant `rows`, those
 * of a half. */
__attribute__((always_inline)) static inline void begin_half(const struct qk_igemm_args *args,
                                                             size_t first, size_t h,
                                                             struct half *half, const size_t rows)
{
    const struct qk_igemm_bytes *bytes = args->bytes;
    half->multiplier = bytes->multiplier + h * rows;
    half->y = bytes->y + first + h * rows * bytes->y_stride;
    half->count = qk_size_min(args->positions - first, QK_IGEMM_NR);
    half->lacks_last = h > 0 && args->rows < 2 * rows;
#pragma GCC unroll 3
    for (size_t r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (size_t v = 0; v < NV; v++)
            half->sums[r][v] = _mm512_set1_epi32(
                bytes->bias[h * rows + (r + 1 == rows && half->lacks_last ? 0 : r)]);
}

/* Stores the bytes of row `r` of a half. Inlined like begin_half. */
__attribute__((always_inline)) static inline void finish_row(const struct qk_igemm_args *args,
                                                             const struct qk_requantize_512 *to,
                                                             struct half *half, const size_t r,
                                                             const size_t rows)
{
    uint8_t *y = half->y + r * args->bytes->y_stride;
    if (r + 1 == rows && half->lacks_last)
        return;
#pragma GCC unroll 4
    for (size_t v = 0; v < NV; v++)
        qk_hide_origin(&half->sums[r][v]);
    store_row(y, requantize_row(half->sums[r], to, half->multiplier[r], NV), half->count);
}

/* Adds the products of one slab to half `h`. The first half reads a slab into the L1 cache. The
 * second half finds it there, and fetches the same slab of the next tile. */
__attribute__((always_inline)) static inline void add_to_half(const uint8_t **quads,
                                                              const uint8_t **weights,
                                                              size_t slab_bytes, size_t h,
                                                              struct half *half, const size_t rows)
{
    if (h > 0)
#pragma GCC unroll 4
        for (size_t v = 0; v < NV; v++)
            _mm_prefetch((const void *)(*quads + 64 * (NV + v)), _MM_HINT_T0);
    add_slab(*quads, *weights, half->sums, rows, NV);
    *quads += slab_bytes;
    *weights += SLAB_WEIGHTS;
}

/* Computes the sums of half `h` of a tile, and the bytes of the half before it, `last`, if it is
 * not NULL: a row after each of the first slabs. Inlined like begin_half. */
__attribute__((always_inline)) static inline void
multiply_half(const struct qk_igemm_args *args, const struct qk_requantize_512 *to, size_t first,
              size_t h, struct half *half, struct half *last, const size_t rows)
{
    const struct qk_igemm_step *step = args->steps;
    const uint8_t *step_weights = args->weights + h * rows * QK_IGEMM_QUAD_BYTES;
    const size_t slab_bytes = args->slab_bytes;
    begin_half(args, first, h, half, rows);
    for (size_t s = 0; s < args->step_count; s++, step++, step_weights += args->step_bytes) {
        const uint8_t *quads = args->quads + step->offset + first * QK_IGEMM_QUAD_BYTES;
        const uint8_t *weights = step_weights;
        size_t left = step->slabs;
        if (last && s == 0)
#pragma GCC unroll 3
            for (size_t r = 0; r < rows; r++) {
                if (left > 0) {
                    add_to_half(&quads, &weights, slab_bytes, h, half, rows);
                    left--;
                }
                finish_row(args, to, last, r, rows);
            }
        if (left % 2)
            add_to_half(&quads, &weights, slab_bytes, h, half, rows);
        for (left /= 2; left > 0; left--) {
            add_to_half(&quads, &weights, slab_bytes, h, half, rows);
            add_to_half(&quads, &weights, slab_bytes, h, half, rows);
        }
    }
}

/* Computes the bytes of the tiles of four vectors, in halves of `rows` rows. Returns how many
 * positions these tiles have: all but those of a last tile of fewer vectors. */
__attribute__((always_inline)) static inline size_t
requantize_halves(const struct qk_igemm_args *args, const size_t rows)
{
    const struct qk_requantize_512 to = requantize_to(args->bytes);
    const size_t tiles = (args->positions + QK_IGEMM_VECTOR - 1) / QK_IGEMM_NR;
    const size_t end = tiles * QK_IGEMM_NR;
    struct half a, b;
    if (tiles == 0)
        return 0;
    multiply_half(args, &to, 0, 0, &a, NULL, rows);
    for (size_t first = 0;;) {
        multiply_half(args, &to, first, 1, &b, &a, rows);
        first += QK_IGEMM_NR;
        if (first == end)
            break;
        multiply_half(args, &to, first, 0, &a, &b, rows);
    }
#pragma GCC unroll 3
    for (size_t r = 0; r < rows; r++)
        finish_row(args, &to, &b, r, rows);
    return end;
}

/* Returns true if halves are faster. Each half begins all steps, so steps must not be short. The
 * slabs of two tiles, 512 bytes each, should stay in an L1 cache of 32 KiB; weights are read in
 * order. */
static bool halves_suit(const struct qk_igemm_args *args)
{
    enum { SLABS_MIN = 6, SLABS_MAX = 64 };
    return args->step_count == 1 ||
           (args->step_bytes >= SLABS_MIN * SLAB_WEIGHTS &&
            args->step_count * args->step_bytes <= SLABS_MAX * SLAB_WEIGHTS);
}

/* Rounds the number of rows up to an even number, like multiply_vectors. */
static void requantize_panel(const struct qk_igemm_args *args)
{
    const bool halves = halves_suit(args);
    if (args->rows > 4)
        requantize_rows(args, halves ? requantize_halves(args, 3) : 0, 6);
    else if (args->rows > 2)
        requantize_rows(args, halves ? requantize_halves(args, 2) : 0, 4);
    else
        requantize_rows(args, 0, 2);
}

static void multiply(const struct qk_igemm_args *args)
{
    if (args->bytes) {
        requantize_panel(args);
        return;
    }
    switch (args->vectors) {
    case 1:
        multiply_vectors(args, 1);
        break;
    case 2:
        multiply_vectors(args, 2);
        break;
    case 3:
        multiply_vectors(args, 3);
        break;
    default:
        multiply_vectors(args, 4);
        break;
    }
}

/* ---- Remainder --------------------------------------------------------------------------- */

/* A panel has the quads of its six rows side by side, 6 x 4 bytes for each slab. The lanes of a
 * vector that is loaded from the panel therefore hold the rows in order, and the next vector goes
 * on with the next row. After TURN vectors (48 quads: 8 slabs of 6 rows), each lane holds the row
 * that it began with. TURN vectors of sums therefore serve for all of K. At the end they are added
 * up by rows. */
enum { TURN = 3, TURN_BYTES = TURN * 64, TURN_QUADS = TURN * 16 };

_Static_assert(TURN_QUADS % MR == 0 && TURN_BYTES <= QK_IGEMM_SLACK, "whole turns");

/* Stores the sums of one position of which lane i of all vectors belongs to row i % MR. */
static inline void add_lanes(const struct qk_igemm_args *args, size_t position,
                             const __m512i sums[TURN])
{
    /* Turns the vectors such that their first 12 lanes have rows 0 to 5 twice. Of the last four
     * lanes of each, every row is in two. */
    const __m512i b = _mm512_alignr_epi32(sums[1], sums[1], 2);
    const __m512i c = _mm512_alignr_epi32(sums[2], sums[2], 4);
    const __m512i twice = _mm512_add_epi32(_mm512_add_epi32(sums[0], b), c);
    const __m512i first = _mm512_permutex2var_epi32(
        sums[0], _mm512_setr_epi32(12, 13, 14, 15, 30, 31, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), b);
    const __m512i second = _mm512_permutex2var_epi32(
        b, _mm512_setr_epi32(12, 13, 28, 29, 30, 31, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), c);
    const __m512i rows =
        _mm512_add_epi32(_mm512_add_epi32(twice, _mm512_alignr_epi32(twice, twice, MR)),
                         _mm512_add_epi32(first, second));
    int32_t *to = args->sums + position * args->sums_position;
    const __mmask16 there = (__mmask16)((1U << args->rows) - 1);
    if (args->sums_row == 1 && !args->add) {
        _mm512_mask_storeu_epi32(to, there, rows);
        return;
    }
    int32_t made[16];
    _mm512_storeu_si512(made, rows);
    for (size_t row = 0; row < args->rows; row++, to += args->sums_row)
        *to = (int32_t)((args->add ? (uint32_t)*to : 0) + (uint32_t)made[row]);
}

/* Computes the sums of `positions` positions. `rows` are permutations that give each lane the quad
 * of the slab that the lane's weights belong to. Inlined with a constant number of positions. */
__attribute__((always_inline)) static inline void dot_positions(const struct qk_igemm_args *args,
                                                                const size_t positions)
{
    const size_t bytes = args->step_count * args->step_bytes;
    __m512i sums[QK_IGEMM_REMAINDER_MAX][TURN];
#pragma GCC unroll 3
    for (size_t p = 0; p < positions; p++)
#pragma GCC unroll 3
        for (size_t i = 0; i < TURN; i++)
            sums[p][i] = _mm512_setzero_si512();
    const __m512i rows[TURN] = {
        _mm512_set_epi32(2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0),
        _mm512_set_epi32(5, 5, 4, 4, 4, 4, 4, 4, 3, 3, 3, 3, 3, 3, 2, 2),
        _mm512_set_epi32(7, 7, 7, 7, 7, 7, 6, 6, 6, 6, 6, 6, 5, 5, 5, 5),
    };
    const uint8_t *quads = args->quads;
    for (size_t at = 0; at < bytes; at += TURN_BYTES, quads += TURN_BYTES / MR)
#pragma GCC unroll 3
        for (size_t p = 0; p < positions; p++) {
            const uint8_t *from = quads + p * args->position_bytes;
            const __m512i turn = _mm512_castsi256_si512(_mm256_loadu_si256((const void *)from));
#pragma GCC unroll 3
            for (size_t i = 0; i < TURN; i++)
                sums[p][i] = qk_dpbusd(sums[p][i], _mm512_permutexvar_epi32(rows[i], turn),
                                       _mm512_loadu_si512(args->weights + at + 64 * i));
        }
#pragma GCC unroll 3
    for (size_t p = 0; p < positions; p++)
        add_lanes(args, p, sums[p]);
}

static void dot(const struct qk_igemm_args *args)
{
    if (args->positions == 1)
        dot_positions(args, 1);
    else if (args->positions == 2)
        dot_positions(args, 2);
    else
        dot_positions(args, 3);
}

const struct qk_igemm qk_igemm_u8s8_6x64__avx512vnni = {
    .quad_k = 4,
    .mr = MR,
    .nr = QK_IGEMM_NR,
    .lanes = QK_IGEMM_VECTOR,
    .row_stride = QK_IGEMM_QUAD_BYTES,
    .quad_stride = (size_t)MR * QK_IGEMM_QUAD_BYTES,
    .multiply = multiply,
    .dot = dot,
    .stores_bytes = true,
};

#endif
