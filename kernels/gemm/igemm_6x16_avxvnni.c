/* VPDPBUSD on vectors of 8 positions, for CPUs that have AVX-VNNI but not AVX-512. It multiplies u8
 * by s8 and adds four products to a sum, modulo 2^32 (the form without saturation). */
#include "kernels/gemm/igemm.h"

#ifdef __x86_64__

#include <immintrin.h>

#include "kernels/gemm/dpbusd.h"

static inline __m256i add_products(__m256i sum, __m256i x, __m256i w)
{
    return _mm256_dpbusd_avx_epi32(sum, x, w);
}

#include "kernels/gemm/igemm_ymm.h"

/* ---- Remainder --------------------------------------------------------------------------- */

/* As in igemm_6x64_avx512vnni.c: a panel has the quads of its six rows side by side, so after TURN
 * vectors (24 quads: 4 slabs of 6 rows) each lane holds the row that it began with. */
enum {
    TURN = 3,
    VECTOR_BYTES = LANES * QK_IGEMM_QUAD_BYTES,
    TURN_BYTES = TURN * VECTOR_BYTES,
    TURN_QUADS = TURN * LANES
};

_Static_assert(TURN_QUADS % MR == 0 && QK_IGEMM_SLACK % TURN_BYTES == 0, "whole turns");

/* Computes the sums of `positions` positions. `rows` are permutations that give each lane the quad
 * of the slab that the lane's weights belong to. Inlined with a constant number of positions. */
__attribute__((always_inline)) static inline void dot_positions(const struct qk_igemm_args *args,
                                                                const size_t positions)
{
    const size_t bytes = args->step_count * args->step_bytes;
    const __m256i rows[TURN] = {_mm256_setr_epi32(0, 0, 0, 0, 0, 0, 1, 1),
                                _mm256_setr_epi32(1, 1, 1, 1, 2, 2, 2, 2),
                                _mm256_setr_epi32(2, 2, 3, 3, 3, 3, 3, 3)};
    __m256i sums[QK_IGEMM_REMAINDER_MAX][TURN];
#pragma GCC unroll 3
    for (size_t p = 0; p < positions; p++)
#pragma GCC unroll 3
        for (size_t i = 0; i < TURN; i++)
            sums[p][i] = _mm256_setzero_si256();
    const uint8_t *quads = args->quads;
    for (size_t at = 0; at < bytes; at += TURN_BYTES, quads += TURN_BYTES / MR)
#pragma GCC unroll 3
        for (size_t p = 0; p < positions; p++) {
            const __m256i turn = _mm256_broadcastsi128_si256(
                _mm_loadu_si128((const void *)(quads + p * args->position_bytes)));
#pragma GCC unroll 3
            for (size_t i = 0; i < TURN; i++)
                sums[p][i] = qk_dpbusd_avx(sums[p][i], _mm256_permutevar8x32_epi32(turn, rows[i]),
                                           load(args->weights + at + i * VECTOR_BYTES));
        }
    for (size_t p = 0; p < positions; p++) {
        uint32_t lanes[TURN_QUADS];
        for (size_t i = 0; i < TURN; i++)
            _mm256_storeu_si256((void *)(lanes + i * LANES), sums[p][i]);
        qk_igemm_add_lanes(args, p, lanes, TURN_QUADS, MR);
    }
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

/* A quad of a row has two pairs of channels, which go to two rows of pairs. */
static void unpack(const uint8_t *weights, size_t slabs, struct qk_igemm_wide wide,
                   const uint8_t *wide_weights, int8_t *to)
{
    (void)wide, (void)wide_weights;
    for (size_t i = 0; i < slabs; i++, to += (size_t)4 * MR)
        for (size_t r = 0; r < MR; r++, weights += QK_IGEMM_QUAD_BYTES) {
            memcpy(to + 2 * r, weights, 2);
            memcpy(to + 2 * (MR + r), weights + 2, 2);
        }
}

const struct qk_igemm qk_igemm_u8s8_6x16__avxvnni = {
    .quad_k = 4,
    .mr = MR,
    .nr = QK_IGEMM_NR,
    .row_stride = QK_IGEMM_QUAD_BYTES,
    .quad_stride = (size_t)MR * QK_IGEMM_QUAD_BYTES,
    .unpack = unpack,
    .multiply = multiply_panel,
    .dot = dot,
};

#endif
