/* One AMX instruction multiplies 16 rows by 16 positions by 64 terms, u8 by s8, and adds the
 * products to int32 sums, modulo 2^32. A step is one AMX tile of x: 16 slabs of 16 quads lie in
 * memory exactly as the instruction needs them. An AMX tile of weights has 16 rows. Four AMX tiles
 * of sums, 32 rows by 32 positions, share the tiles of x and weights, so that each tile that is
 * loaded serves two products. */
#include "kernels/gemm/igemm.h"

#ifdef __x86_64__

#include <immintrin.h>

#include "kernels/gemm/dpbusd.h"

enum { TILE_ROWS = 16, TILE_ROW_BYTES = 64, MR = 2 * TILE_ROWS };

/* The configuration of the AMX tile registers. Registers 0 to 3 hold sums, [rows][positions]; 4 and
 * 5 hold weights; 6 and 7 hold quads. */
struct config {
    uint8_t palette;
    uint8_t start_row;
    uint8_t reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

/* Configures the AMX tiles. The tiles of x and weights are as deep as the longest step. */
static void set_up(size_t step_slabs)
{
    struct config config = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        config.rows[i] = TILE_ROWS;
        config.row_bytes[i] = TILE_ROW_BYTES;
    }
    config.row_bytes[4] = config.row_bytes[5] = (uint16_t)(step_slabs * QK_IGEMM_QUAD_BYTES);
    config.rows[6] = config.rows[7] = (uint8_t)step_slabs;
    /* GCC 12 assumes that the instruction reads only 8 bytes, and would not store the others. */
    __asm__ volatile("" : : "r"(&config) : "memory");
    _tile_loadconfig(&config);
}

static void tear_down(void)
{
    _tile_release();
}

static inline const uint8_t *second_weights(const uint8_t *weights)
{
    return weights + (size_t)TILE_ROWS * TILE_ROW_BYTES;
}

static inline int32_t *second_rows(int32_t *sums)
{
    return sums + (size_t)TILE_ROWS * QK_IGEMM_NR;
}

static const size_t sums_stride = QK_IGEMM_NR * sizeof(int32_t);

/* Computes the sums of 16 or, with `rows`, 32 rows by 16 or, with `vectors`, 32 positions. Inlined
 * with constants. */
__attribute__((always_inline)) static inline void
multiply_tiles(const struct qk_igemm_args *args, size_t vector, const bool rows, const bool vectors)
{
    const uint8_t *quads = args->quads + vector * TILE_ROW_BYTES;
    const uint8_t *weights = args->weights;
    int32_t *sums = args->sums + vector * QK_IGEMM_VECTOR;
    if (args->add) {
        _tile_loadd(0, sums, sums_stride);
        _tile_loadd(1, sums + QK_IGEMM_VECTOR, sums_stride);
        _tile_loadd(2, second_rows(sums), sums_stride);
        _tile_loadd(3, second_rows(sums) + QK_IGEMM_VECTOR, sums_stride);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (size_t s = 0; s < args->step_count; s++, weights += args->step_bytes) {
        const uint8_t *x = quads + args->steps[s].offset;
        _tile_loadd(4, weights, TILE_ROW_BYTES);
        _tile_loadd(6, x, args->slab_bytes);
        _tile_dpbsud(0, 4, 6);
        if (vectors) {
            _tile_loadd(7, x + TILE_ROW_BYTES, args->slab_bytes);
            _tile_dpbsud(1, 4, 7);
        }
        if (rows) {
            _tile_loadd(5, second_weights(weights), TILE_ROW_BYTES);
            _tile_dpbsud(2, 5, 6);
        }
        if (rows && vectors)
            _tile_dpbsud(3, 5, 7);
    }
    _tile_stored(0, sums, sums_stride);
    if (vectors)
        _tile_stored(1, sums + QK_IGEMM_VECTOR, sums_stride);
    if (rows)
        _tile_stored(2, second_rows(sums), sums_stride);
    if (rows && vectors)
        _tile_stored(3, second_rows(sums) + QK_IGEMM_VECTOR, sums_stride);
}

static void multiply(const struct qk_igemm_args *args)
{
    const bool rows = args->rows > TILE_ROWS;
    for (size_t vector = 0; vector < args->vectors; vector += 2) {
        const bool vectors = vector + 1 < args->vectors;
        if (rows && vectors)
            multiply_tiles(args, vector, true, true);
        else if (rows)
            multiply_tiles(args, vector, true, false);
        else if (vectors)
            multiply_tiles(args, vector, false, true);
        else
            multiply_tiles(args, vector, false, false);
    }
}

/* ---- Remainder --------------------------------------------------------------------------- */

/* The vector whose sum each lane of add_lanes's result has. */
static const size_t lane_vectors[TILE_ROWS] = {0, 4, 8, 12, 2, 6, 10, 14,
                                               1, 5, 9, 13, 3, 7, 11, 15};

/* Adds up the lanes of each of 16 vectors. Returns the 16 sums as the lanes of one vector, in the
 * order of lane_vectors. */
static inline __m512i add_lanes(__m512i sums[TILE_ROWS])
{
#pragma GCC unroll 8
    for (size_t i = 0; i < 8; i++)
        sums[i] = _mm512_add_epi32(_mm512_unpacklo_epi32(sums[i], sums[i + 8]),
                                   _mm512_unpackhi_epi32(sums[i], sums[i + 8]));
#pragma GCC unroll 8
    for (size_t i = 0; i < 4; i++)
        sums[i] = _mm512_add_epi32(_mm512_unpacklo_epi32(sums[i], sums[i + 4]),
                                   _mm512_unpackhi_epi32(sums[i], sums[i + 4]));
#pragma GCC unroll 8
    for (size_t i = 0; i < 2; i++)
        sums[i] = _mm512_add_epi32(_mm512_shuffle_i32x4(sums[i], sums[i + 2], 0x44),
                                   _mm512_shuffle_i32x4(sums[i], sums[i + 2], 0xee));
    return _mm512_add_epi32(_mm512_shuffle_i32x4(sums[0], sums[1], 0x88),
                            _mm512_shuffle_i32x4(sums[0], sums[1], 0xdd));
}

/* Returns the sums of TILE_ROWS / positions rows: all rows of the first position, then all rows of
 * the second one. A vector holds one row's weights of one step. Inlined with a constant number of
 * positions, 1 or 2. */
__attribute__((always_inline)) static inline __m512i dot_rows(const struct qk_igemm_args *args,
                                                              const uint8_t *weights,
                                                              const uint8_t *quads,
                                                              const size_t positions)
{
    const __mmask16 there = (__mmask16)((1U << args->step_slabs) - 1);
    const size_t rows = TILE_ROWS / positions;
    __m512i sums[TILE_ROWS];
#pragma GCC unroll 16
    for (size_t i = 0; i < TILE_ROWS; i++)
        sums[i] = _mm512_setzero_si512();
    for (size_t s = 0; s < args->step_count; s++, weights += args->step_bytes) {
        const __m512i x = _mm512_maskz_loadu_epi32(there, quads);
        const __m512i second =
            positions == 1 ? x : _mm512_maskz_loadu_epi32(there, quads + args->position_bytes);
        quads += args->step_slabs * QK_IGEMM_QUAD_BYTES;
#pragma GCC unroll 16
        for (size_t i = 0; i < rows; i++) {
            const __m512i w = _mm512_loadu_si512(weights + TILE_ROW_BYTES * i);
            __m512i *sum = &sums[lane_vectors[i]];
            *sum = qk_dpbusd(*sum, x, w);
            if (positions == 1)
                continue;
            sum = &sums[lane_vectors[rows + i]];
            *sum = qk_dpbusd(*sum, second, w);
        }
    }
    return add_lanes(sums);
}

/* Computes all rows of `positions` positions, from position `first` on. */
__attribute__((always_inline)) static inline void
dot_positions(const struct qk_igemm_args *args, size_t first, const size_t positions)
{
    const size_t rows = TILE_ROWS / positions;
    const uint8_t *quads = args->quads + first * args->position_bytes;
    const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i row = _mm512_and_si512(lanes, _mm512_set1_epi32((int)rows - 1));
    const __m512i to = _mm512_add_epi32(
        _mm512_mullo_epi32(row, _mm512_set1_epi32((int)args->sums_row)),
        _mm512_maskz_set1_epi32(positions == 1 ? 0 : 0xff00, (int)args->sums_position));
    for (size_t at = 0; at < args->rows; at += rows) {
        int32_t *sums = args->sums + at * args->sums_row + first * args->sums_position;
        __m512i made = dot_rows(args, args->weights + at * TILE_ROW_BYTES, quads, positions);
        if (args->add)
            made = _mm512_add_epi32(made, _mm512_i32gather_epi32(to, sums, sizeof(*sums)));
        if (args->sums_row != 1) {
            _mm512_i32scatter_epi32(sums, to, made, sizeof(*sums));
            continue;
        }
        _mm512_mask_storeu_epi32(sums, (__mmask16)((1U << rows) - 1), made);
        if (positions == 2)
            _mm256_storeu_si256((void *)(sums + args->sums_position),
                                _mm512_extracti64x4_epi64(made, 1));
    }
}

static void dot(const struct qk_igemm_args *args)
{
    size_t first = 0;
    for (; first + 2 <= args->positions; first += 2)
        dot_positions(args, first, 2);
    if (first < args->positions)
        dot_positions(args, first, 1);
}

const struct qk_igemm qk_igemm_u8s8_32x32__amx = {
    .quad_k = 4,
    .mr = MR,
    .nr = QK_IGEMM_NR,
    .row_stride = TILE_ROW_BYTES,
    .quad_stride = QK_IGEMM_QUAD_BYTES,
    .whole_steps = true,
    .multiply = multiply,
    .dot = dot,
    .set_up = set_up,
    .tear_down = tear_down,
};

#endif
