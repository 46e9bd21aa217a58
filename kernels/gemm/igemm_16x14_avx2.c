/* VPMADDUBSW on vectors of 8 rows multiplies u8 by s8 and adds two products to a word, which
 * saturates. VPMADDWD by ones then adds the two words of a sum. With the addition to the sum, these
 * are three instructions for 32 products. Products of words (igemm_6x16_avx2.c) take four.
 *
 * The word never saturates if the positive weights of a pair add up to at most 128, and the
 * negative weights to at least -128, because x is at most 255. `mark_wide` looks at each slab of a
 * panel once. Weights of 7 bits, as ONNX Runtime's quantizer makes them with reduce_range, are all
 * of this kind. Of weights that use all 8 bits, less than half are. The weights of the other slabs
 * become words, which VPMADDWD multiplies exactly: terms 0 and 2 of all rows replace the quads, and
 * terms 1 and 3 go to the array behind the panel. `marks` is a mask of these slabs.
 * Layers with many of them use another kernel (kernels/conv/choose.c).
 *
 * A tile is made of parts of up to 6 positions by two vectors of rows. The 12 vectors of sums stay
 * in registers until the part is done, beside one quad of x in all lanes, two products and the
 * ones. Weights are operands in memory, in whole halves of a cache line. x is read by 4 bytes that
 * never cross a cache line. */
#include "kernels/gemm/igemm.h"

#ifdef __x86_64__

#include "kernels/gemm/igemm_positions_avx2.h"
#include "kernels/gemm/igemm_wide_avx2.h"

enum { NR = 14 };

/* Like multiply_bytes, for words. */
static inline __m256i multiply_words(__m256i x, const uint8_t *weights)
{
    __m256i sums;
    __asm__("vpmaddwd %2, %1, %0"
            : "=x"(sums)
            : "x"(x), "m"(*(const __m256i *)(const void *)weights));
    return sums;
}

/* ---- Products ---------------------------------------------------------------------------- */

/* Adds the products of one slab that has no wide weights. */
__attribute__((always_inline)) static inline void
multiply_pairs(const uint8_t *quads, const uint8_t *weights, __m256i sums[PART][NV],
               const size_t positions, const size_t vectors)
{
    const __m256i ones = _mm256_set1_epi16(1);
#pragma GCC unroll 6
    for (size_t p = 0; p < positions; p++) {
        const __m256i x = broadcast_quad(quads + p * QK_IGEMM_QUAD_BYTES);
#pragma GCC unroll 2
        for (size_t v = 0; v < vectors; v++) {
            const __m256i pairs = multiply_bytes(x, weights + v * 32);
            sums[p][v] = _mm256_add_epi32(sums[p][v], _mm256_madd_epi16(pairs, ones));
        }
    }
}

/* Adds the products of one slab whose weights `mark_wide` has turned into words. */
__attribute__((always_inline)) static inline void
multiply_wide(const uint8_t *quads, const uint8_t *even, const uint8_t *odd, __m256i sums[PART][NV],
              const size_t positions, const size_t vectors)
{
    const __m256i low_bytes = _mm256_set1_epi16(0xff);
#pragma GCC unroll 6
    for (size_t p = 0; p < positions; p++) {
        const __m256i x = broadcast_quad(quads + p * QK_IGEMM_QUAD_BYTES);
        const __m256i x_even = _mm256_and_si256(x, low_bytes);
        const __m256i x_odd = _mm256_srli_epi16(x, 8);
#pragma GCC unroll 2
        for (size_t v = 0; v < vectors; v++) {
            sums[p][v] = _mm256_add_epi32(sums[p][v], multiply_words(x_even, even + v * 32));
            sums[p][v] = _mm256_add_epi32(sums[p][v], multiply_words(x_odd, odd + v * 32));
        }
    }
}

/* Adds the products of a step that has slabs with wide weights. The slabs without wide weights come
 * first, so that no branch depends on the order of the slabs. */
__attribute__((always_inline)) static inline void
multiply_mixed(const struct qk_igemm_args *args, size_t step, const uint8_t *quads,
               const uint8_t *weights, __m256i sums[PART][NV], const size_t positions,
               const size_t vectors)
{
    const uint8_t *odd = args->wide_weights + args->wide[step].offset;
    const uint32_t wide = args->wide[step].marks;
    const uint32_t slabs = args->steps[step].slabs;
    if (wide == ((uint32_t)1 << slabs) - 1) {
        for (uint32_t i = slabs; i > 0; i--) {
            multiply_wide(quads, weights, odd, sums, positions, vectors);
            quads += args->slab_bytes;
            weights += SLAB_BYTES;
            odd += SLAB_BYTES;
        }
        return;
    }
    for (uint32_t left = ((uint32_t)1 << args->steps[step].slabs) - 1 - wide; left > 0;
         left &= left - 1) {
        const size_t i = (size_t)__builtin_ctz(left);
        multiply_pairs(quads + i * args->slab_bytes, weights + i * SLAB_BYTES, sums, positions,
                       vectors);
    }
    for (uint32_t left = wide; left > 0; left &= left - 1, odd += SLAB_BYTES) {
        const size_t i = (size_t)__builtin_ctz(left);
        multiply_wide(quads + i * args->slab_bytes, weights + i * SLAB_BYTES, odd, sums, positions,
                      vectors);
    }
}

__attribute__((always_inline)) static inline void add_part(const struct qk_igemm_args *args,
                                                           size_t first, __m256i sums[PART][NV],
                                                           const size_t positions,
                                                           const size_t vectors)
{
    const uint8_t *step_weights = args->weights;
    const size_t slab_bytes = args->slab_bytes;
    for (size_t s = 0; s < args->step_count; s++, step_weights += args->step_bytes) {
        const uint8_t *quads = args->quads + args->steps[s].offset + first * QK_IGEMM_QUAD_BYTES;
        const uint8_t *weights = step_weights;
        if (args->wide[s].marks != 0) {
            multiply_mixed(args, s, quads, weights, sums, positions, vectors);
            continue;
        }
        for (uint32_t i = args->steps[s].slabs; i > 0; i--) {
            multiply_pairs(quads, weights, sums, positions, vectors);
            quads += slab_bytes;
            weights += SLAB_BYTES;
        }
    }
}

static void multiply(const struct qk_igemm_args *args)
{
    multiply_in_parts(args, add_part);
}

/* ---- Wide weights ------------------------------------------------------------------------ */

/* Finds the slabs whose products may leave a word, and turns their weights into words. Rows that
 * the panel lacks are ignored, because their weights may be anything. */
static size_t mark_wide(uint8_t *weights, size_t slabs, size_t rows, uint8_t *wide_weights,
                        uint32_t *marks)
{
    __m256i *odd = (__m256i *)(void *)wide_weights;
    uint32_t found = 0;
    for (size_t i = 0; i < slabs; i++) {
        __m256i *even = (__m256i *)(void *)(weights + i * SLAB_BYTES);
        __m256i wide = _mm256_setzero_si256();
        for (size_t v = 0; v < NV; v++) {
            const __m256i here = find_wide_pairs(_mm256_load_si256(even + v));
            wide = _mm256_or_si256(
                wide, _mm256_and_si256(first_lanes((int)rows - (int)(v * LANES)), here));
        }
        if (_mm256_testz_si256(wide, wide))
            continue;
        found |= (uint32_t)1 << i;
        for (size_t v = 0; v < NV; v++) {
            const __m256i quads = _mm256_load_si256(even + v);
            _mm256_store_si256(odd++, _mm256_srai_epi16(quads, 8));
            _mm256_store_si256(even + v, _mm256_srai_epi16(_mm256_slli_epi16(quads, 8), 8));
        }
    }
    *marks = found;
    return (size_t)__builtin_popcount(found) * SLAB_BYTES;
}

const struct qk_igemm qk_igemm_u8s8_16x14__avx2 = {
    .quad_k = 4,
    .mr = MR,
    .nr = NR,
    .by_position = true,
    .lanes = LANES,
    .part = PART,
    .row_stride = QK_IGEMM_QUAD_BYTES,
    .quad_stride = SLAB_BYTES,
    .multiply = multiply,
    .mark_wide = mark_wide,
    .count_wide = count_wide,
    .wide_rows = MR,
    .wide_bytes = SLAB_BYTES,
};

#endif
