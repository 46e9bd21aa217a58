/* The loops of integer products (igemm.h) by rows, with YMM vectors of 8 positions. They call
 * `add_products`, which adds the products of 8 quads of x and one quad of weights to 8 sums. A file
 * has to define it before it includes this one. Only for igemm_6x16_avx2.c,
 * igemm_u8s8_6x16_avx2.c, igemm_6x16_avxvnni.c and igemm_words_6x16_avxvnni.c. */
#pragma once

/* The Makefile sets this on x86 only, for files with these suffixes. */
#ifdef __AVX2__

#include <string.h>

/* A tile is six rows by two vectors of positions. It takes all 16 YMM registers: 12 for sums, two
 * for x, one for a quad of weights, and one for a product. */
enum { MR = 6, NV = 2, LANES = 8 };

static inline __m256i broadcast_quad(const uint8_t *weights)
{
    int32_t quad;
    memcpy(&quad, weights, sizeof(quad));
    return _mm256_set1_epi32(quad);
}

static inline __m256i load(const void *from)
{
    return _mm256_loadu_si256(from);
}

/* Returns how many vectors of 8 positions have a position that the caller wants. */
static inline size_t count_vectors(const struct qk_igemm_args *args)
{
    const size_t wanted = (args->positions + LANES - 1) / LANES;
    return wanted < args->vectors * NV ? wanted : args->vectors * NV;
}

/* Adds the products of `rows` rows for 16 positions or, if `vectors` is 1, for 8. Inlined with
 * constants, so that the compiler keeps `sums` in registers. */
__attribute__((always_inline)) static inline void add_tile(const struct qk_igemm_args *args,
                                                           size_t first, __m256i sums[MR][NV],
                                                           const size_t rows, const size_t vectors)
{
    const struct qk_igemm_step *step = args->steps;
    const uint8_t *step_weights = args->weights;
    for (size_t s = 0; s < args->step_count; s++, step++, step_weights += args->step_bytes) {
        const uint8_t *quads = args->quads + step->offset + first * QK_IGEMM_QUAD_BYTES;
        const uint8_t *weights = step_weights;
        for (uint32_t i = 0; i < step->slabs; i++) {
            const __m256i x0 = load(quads);
            const __m256i x1 = vectors > 1 ? load(quads + sizeof(x0)) : x0;
#pragma GCC unroll 6
            for (size_t r = 0; r < rows; r++) {
                const __m256i w = broadcast_quad(weights + r * QK_IGEMM_QUAD_BYTES);
                sums[r][0] = add_products(sums[r][0], x0, w);
                if (vectors > 1)
                    sums[r][1] = add_products(sums[r][1], x1, w);
            }
            quads += args->slab_bytes;
            weights += (size_t)MR * QK_IGEMM_QUAD_BYTES;
        }
    }
}

/* The most positions after whole vectors that are computed one by one. Planes of 3 x 3 and 7 x 7
 * positions leave one. */
enum { LAST_MOST = 2 };

/* Adds the products of all rows for `count` positions from `first` on. A vector holds the rows of
 * one position, because a vector of positions would be mostly empty. Inlined with a constant
 * `count`. */
__attribute__((always_inline)) static inline void add_last(const struct qk_igemm_args *args,
                                                           size_t first, __m256i sums[LAST_MOST],
                                                           const size_t count)
{
    const __m256i rows = _mm256_setr_epi32(-1, -1, -1, -1, -1, -1, 0, 0);
    const struct qk_igemm_step *step = args->steps;
    const uint8_t *step_weights = args->weights;
    for (size_t s = 0; s < args->step_count; s++, step++, step_weights += args->step_bytes) {
        const uint8_t *quads = args->quads + step->offset + first * QK_IGEMM_QUAD_BYTES;
        const uint8_t *weights = step_weights;
        for (uint32_t i = 0; i < step->slabs; i++) {
            const __m256i w = _mm256_maskload_epi32((const void *)weights, rows);
#pragma GCC unroll 2
            for (size_t p = 0; p < count; p++)
                sums[p] = add_products(sums[p], broadcast_quad(quads + p * QK_IGEMM_QUAD_BYTES), w);
            quads += args->slab_bytes;
            weights += (size_t)MR * QK_IGEMM_QUAD_BYTES;
        }
    }
}

/* Computes the sums of `rows` rows for 16 positions or for 8. */
__attribute__((always_inline)) static inline void multiply_tile(const struct qk_igemm_args *args,
                                                                size_t first, const size_t rows,
                                                                const size_t vectors)
{
    __m256i sums[MR][NV];
#pragma GCC unroll 6
    for (size_t r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (size_t v = 0; v < vectors; v++)
            sums[r][v] = _mm256_setzero_si256();
    add_tile(args, first, sums, rows, vectors);
#pragma GCC unroll 6
    for (size_t r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (size_t v = 0; v < vectors; v++) {
            int32_t *to = args->sums + r * QK_IGEMM_NR + first + v * LANES;
            if (args->add)
                sums[r][v] = _mm256_add_epi32(sums[r][v], load(to));
            _mm256_storeu_si256((void *)to, sums[r][v]);
        }
}

__attribute__((always_inline)) static inline void multiply_rows(const struct qk_igemm_args *args,
                                                                const size_t rows)
{
    const size_t positions = count_vectors(args) * LANES;
    size_t first = 0;
    for (; first + LANES < positions; first += QK_IGEMM_VECTOR)
        multiply_tile(args, first, rows, NV);
    if (first < positions)
        multiply_tile(args, first, rows, 1);
}

/* Rounds the number of rows up to an even number. Computing one row for nothing costs less than
 * having twice as many copies of the loop. */
static void multiply_panel(const struct qk_igemm_args *args)
{
    if (args->rows > 4)
        multiply_rows(args, 6);
    else if (args->rows > 2)
        multiply_rows(args, 4);
    else
        multiply_rows(args, 2);
}

#endif
