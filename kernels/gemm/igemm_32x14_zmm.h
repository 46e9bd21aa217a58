/* `multiply` for the kernels by position of 32 rows by 14 positions on AVX-512. The including file
 * defines what a product is:
 *
 *      static inline __m512i add_products(__m512i sum, __m512i x, __m512i w)
 *
 * A tile is two vectors of rows by 14 positions. Its 28 vectors of sums stay in registers until all
 * steps are done, beside two vectors of weights and one quad of x in all lanes. Weights are read in
 * whole cache lines, and x by 4 bytes that never cross one. A tile may begin and end at any
 * position. */
#pragma once

#include "kernels/gemm/igemm.h"

/* Nothing here compiles without a tier's file around it. */
#ifdef __AVX512BW__

#include <immintrin.h>
#include <string.h>

enum { NR = 14, NV = 2, LANES = 16, MR = NV * LANES, CHAINS = 4 };

/* How many bytes ahead weights are prefetched, if a tile has more than PREFETCH_POSITIONS
 * positions. The weights of a network's layers leave the L2 cache between two runs, and the CPU's
 * own prefetching stops at each panel, which is read again for other positions. These bytes take
 * 900 cycles with full tiles. Half as many gained two thirds as much on a Zen 5, twice as many the
 * same. Prefetching beyond the weights does nothing. Tiles of few positions read weights as fast as
 * the CPU can. */
#define PREFETCH_BYTES 8192
#define PREFETCH_POSITIONS 4

static inline __m512i broadcast_quad(const uint8_t *quad)
{
    int32_t word;
    memcpy(&word, quad, sizeof(word));
    return _mm512_set1_epi32(word);
}

/* Adds the products of one slab. */
__attribute__((always_inline)) static inline void
multiply_slab(const uint8_t *quads, const uint8_t *weights, __m512i sums[NR][NV],
              const size_t positions, const size_t vectors)
{
    __m512i w[NV];
#pragma GCC unroll 2
    for (size_t v = 0; v < vectors; v++) {
        w[v] = _mm512_loadu_si512(weights + v * 64);
        if (positions > PREFETCH_POSITIONS)
            _mm_prefetch((const void *)(weights + v * 64 + PREFETCH_BYTES), _MM_HINT_T0);
    }
#pragma GCC unroll 14
    for (size_t p = 0; p < positions; p++) {
        const __m512i x = broadcast_quad(quads + p * QK_IGEMM_QUAD_BYTES);
#pragma GCC unroll 2
        for (size_t v = 0; v < vectors; v++)
            sums[p][v] = add_products(sums[p][v], x, w[v]);
    }
}

/* Adds the products of a tile to sums[0]. The other sets are cleared first, and added to sums[0] at
 * the end. Inlined with constants, so that the compiler keeps `sums` in registers. In a tile with
 * few sums, each product would wait for the product before it, so neighbouring slabs use `chains`
 * sets of sums in turn. The loop takes at least two slabs at a time: the products need every cycle
 * of the execution units that the loop counter uses, too. */
__attribute__((always_inline)) static inline void
add_tile(const struct qk_igemm_args *args, const uint8_t *tile_quads, __m512i sums[CHAINS][NR][NV],
         const size_t positions, const size_t vectors, const size_t chains)
{
    const struct qk_igemm_step *step = args->steps;
    const uint8_t *step_weights = args->weights;
    const size_t quad_stride = (size_t)MR * QK_IGEMM_QUAD_BYTES;
    const size_t slab_bytes = args->slab_bytes;
    const size_t turns = chains > 2 ? chains : 2;

#pragma GCC unroll 4
    for (size_t c = 1; c < chains; c++)
#pragma GCC unroll 14
        for (size_t p = 0; p < positions; p++)
#pragma GCC unroll 2
            for (size_t v = 0; v < vectors; v++)
                sums[c][p][v] = _mm512_setzero_si512();
    for (size_t s = 0; s < args->step_count; s++, step++, step_weights += args->step_bytes) {
        const uint8_t *quads = tile_quads + step->offset;
        const uint8_t *weights = step_weights;
        for (size_t left = step->slabs % turns; left > 0; left--) {
            multiply_slab(quads, weights, sums[0], positions, vectors);
            quads += slab_bytes;
            weights += quad_stride;
        }
        for (size_t left = step->slabs / turns; left > 0; left--)
#pragma GCC unroll 4
            for (size_t c = 0; c < turns; c++) {
                multiply_slab(quads, weights, sums[c % chains], positions, vectors);
                quads += slab_bytes;
                weights += quad_stride;
            }
    }
#pragma GCC unroll 4
    for (size_t c = 1; c < chains; c++)
#pragma GCC unroll 14
        for (size_t p = 0; p < positions; p++)
#pragma GCC unroll 2
            for (size_t v = 0; v < vectors; v++)
                sums[0][p][v] = _mm512_add_epi32(sums[0][p][v], sums[c][p][v]);
}

/* Computes the sums of a tile. Inlined with constants. */
__attribute__((always_inline)) static inline void multiply_tile(const struct qk_igemm_args *args,
                                                                const size_t positions,
                                                                const size_t vectors,
                                                                const size_t chains)
{
    __m512i sums[CHAINS][NR][NV];
#pragma GCC unroll 14
    for (size_t p = 0; p < positions; p++)
#pragma GCC unroll 2
        for (size_t v = 0; v < vectors; v++)
            sums[0][p][v] = _mm512_setzero_si512();
    add_tile(args, args->quads, sums, positions, vectors, chains);
#pragma GCC unroll 14
    for (size_t p = 0; p < positions; p++)
#pragma GCC unroll 2
        for (size_t v = 0; v < vectors; v++) {
            int32_t *to = args->sums + p * MR + v * LANES;
            if (args->add)
                sums[0][p][v] = _mm512_add_epi32(sums[0][p][v], _mm512_loadu_si512(to));
            _mm512_storeu_si512(to, sums[0][p][v]);
        }
}

/* Returns the number of sets of sums that keeps the CPU busy: a product takes four or five cycles,
 * and two products may begin in each cycle. */
__attribute__((always_inline)) static inline size_t chains_for(const size_t positions,
                                                               const size_t vectors)
{
    return positions * vectors > 8 ? 1 : positions * vectors > 4 ? 2 : CHAINS;
}

__attribute__((always_inline)) static inline void
multiply_positions(const struct qk_igemm_args *args, const size_t positions)
{
    if (args->rows > LANES)
        multiply_tile(args, positions, 2, chains_for(positions, 2));
    else
        multiply_tile(args, positions, 1, chains_for(positions, 1));
}

static void multiply(const struct qk_igemm_args *args)
{
#define CASE(positions)                        \
    case positions:                            \
        multiply_positions(args, (positions)); \
        break
    switch (args->positions) {
        CASE(1);
        CASE(2);
        CASE(3);
        CASE(4);
        CASE(5);
        CASE(6);
        CASE(7);
        CASE(8);
        CASE(9);
        CASE(10);
        CASE(11);
        CASE(12);
        CASE(13);
    default:
        multiply_positions(args, NR);
        break;
    }
#undef CASE
}

#endif
