/* What the AVX2 kernels by position (igemm.h) share: their tiles, parts and sums. Only for
 * igemm_16x12_avx2.c and igemm_16x14_avx2.c.
 *
 * A tile is made of parts of up to 6 positions by two vectors of 8 rows. The 12 vectors of sums
 * stay in registers until the part is done. */
#pragma once

#include <immintrin.h>
#include <string.h>

#include "kernels/gemm/igemm.h"

enum { NV = 2, LANES = 8, MR = NV * LANES, PART = 6 };
enum { SLAB_BYTES = MR * QK_IGEMM_QUAD_BYTES };

/* Adds the products of a part's positions, from `first` on, to `sums`. */
typedef void add_part_function(const struct qk_igemm_args *args, size_t first,
                               __m256i sums[PART][NV], const size_t positions,
                               const size_t vectors);

static inline __m256i broadcast_quad(const uint8_t *quad)
{
    int32_t word;
    memcpy(&word, quad, sizeof(word));
    return _mm256_set1_epi32(word);
}

/* Multiplies by weights in memory. Compilers would load the weights into a register once, but none
 * is free. */
static inline __m256i multiply_bytes(__m256i x, const uint8_t *weights)
{
    __m256i pairs;
    __asm__("vpmaddubsw %2, %1, %0"
            : "=x"(pairs)
            : "x"(x), "m"(*(const __m256i *)(const void *)weights));
    return pairs;
}

/* Computes the sums of a part of a tile, from position `first` on. Inlined with constants, so that
 * the compiler keeps `sums` in registers. */
__attribute__((always_inline)) static inline void
multiply_part(const struct qk_igemm_args *args, size_t first, const size_t positions,
              const size_t vectors, add_part_function *add_part)
{
    __m256i sums[PART][NV];
#pragma GCC unroll 6
    for (size_t p = 0; p < positions; p++)
#pragma GCC unroll 2
        for (size_t v = 0; v < vectors; v++)
            sums[p][v] = _mm256_setzero_si256();
    add_part(args, first, sums, positions, vectors);
#pragma GCC unroll 6
    for (size_t p = 0; p < positions; p++)
#pragma GCC unroll 2
        for (size_t v = 0; v < vectors; v++) {
            void *to = args->sums + (first + p) * MR + v * LANES;
            if (args->add)
                sums[p][v] = _mm256_add_epi32(sums[p][v], _mm256_loadu_si256(to));
            _mm256_storeu_si256(to, sums[p][v]);
        }
}

__attribute__((always_inline)) static inline void
multiply_positions(const struct qk_igemm_args *args, size_t first, const size_t positions,
                   add_part_function *add_part)
{
    if (args->rows > LANES)
        multiply_part(args, first, positions, 2, add_part);
    else
        multiply_part(args, first, positions, 1, add_part);
}

/* Cuts a tile into parts of about the same size. */
__attribute__((always_inline)) static inline void
multiply_in_parts(const struct qk_igemm_args *args, add_part_function *add_part)
{
    size_t parts = (args->positions + PART - 1) / PART;
    for (size_t first = 0, count; first < args->positions; first += count, parts--) {
        count = (args->positions - first + parts - 1) / parts;
        switch (count) {
        case 1:
            multiply_positions(args, first, 1, add_part);
            break;
        case 2:
            multiply_positions(args, first, 2, add_part);
            break;
        case 3:
            multiply_positions(args, first, 3, add_part);
            break;
        case 4:
            multiply_positions(args, first, 4, add_part);
            break;
        case 5:
            multiply_positions(args, first, 5, add_part);
            break;
        default:
            multiply_positions(args, first, PART, add_part);
            break;
        }
    }
}
