/* Products for matrices (kernels/matmul/). Weights stay bytes, because one row of A takes as long
 * as reading them.
 *
 * VPMADDUBSW multiplies u8 by s8 and adds two products to a word, which saturates. The word never
 * saturates if the positive weights of a pair add up to at most 128, and the negative weights to at
 * least -128, because x is at most 255. `arrange` puts the slabs whose weights are wide, so that
 * they do not fit, before the others in each chunk. A loop for each kind then has no branch that
 * depends on the weights. Slabs that fit take VPMADDUBSW, VPMADDWD by ones and an addition for 32
 * products. Wide slabs are computed in one of two ways:
 *
 *  - One position: x = 2 (x / 2) + x % 2. Products by x / 2 fit into words, because two of them are
 *    at most 2 * 127 * 128. VPMADDWD by twos adds them up. Products by x % 2 are added up in words,
 *    which have room for all slabs of a chunk. These are five instructions for 32 products.
 *  - More positions share words that are made of the weights: VPMADDWD multiplies terms 0 and 2 of
 *    all rows, then terms 1 and 3.
 *
 * A tile is made of parts of up to 6 positions by two vectors of 8 rows, whose 12 vectors of sums
 * stay in registers. */
#include "kernels/gemm/igemm.h"

#ifdef __x86_64__

#include "kernels/gemm/igemm_positions_avx2.h"
#include "kernels/gemm/igemm_wide_avx2.h"

enum { NR = 12 };

/* The most positions that share the words of wide weights: their sums, the words and the parts of x
 * fill the registers. */
enum { WORDS_MOST = 4 };

/* The slabs of one kind in a chunk: where their weights lie, one slab after the other, and the
 * indices of their quads. */
struct slabs {
    const uint8_t *quads; /* of the chunk's first slab and the part's first position */
    size_t slab_bytes;
    const uint8_t *weights;
    const uint8_t *indices;
    size_t count;
};

static inline __m256i load(const void *from)
{
    return _mm256_load_si256(from);
}

/* Adds the products of slabs whose weights fit. */
__attribute__((always_inline)) static inline void add_pairs(const struct slabs *slabs,
                                                            __m256i sums[PART][NV],
                                                            const size_t positions,
                                                            const size_t vectors)
{
    const __m256i ones = _mm256_set1_epi16(1);
    const uint8_t *weights = slabs->weights;
    for (size_t i = 0; i < slabs->count; i++, weights += SLAB_BYTES) {
        const uint8_t *quads = slabs->quads + slabs->indices[i] * slabs->slab_bytes;
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
}

/* Adds the products of wide slabs and one position. A chunk has at most 128 slabs, so the words of
 * `odd` stay within 128 * 2 * -128 and 128 * 2 * 127. */
__attribute__((always_inline)) static inline void add_halves(const struct slabs *slabs,
                                                             __m256i sums[NV], const size_t vectors)
{
    const __m256i ones = _mm256_set1_epi16(1);
    const __m256i twos = _mm256_set1_epi16(2);
    const __m256i low_bits = _mm256_set1_epi8(1);
    const __m256i others = _mm256_set1_epi8(127);
    const uint8_t *weights = slabs->weights;
    __m256i odd[NV] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    for (size_t i = 0; i < slabs->count; i++, weights += SLAB_BYTES) {
        const __m256i x = broadcast_quad(slabs->quads + slabs->indices[i] * slabs->slab_bytes);
        const __m256i half = _mm256_and_si256(_mm256_srli_epi16(x, 1), others);
        const __m256i rest = _mm256_and_si256(x, low_bits);
#pragma GCC unroll 2
        for (size_t v = 0; v < vectors; v++) {
            const __m256i w = load(weights + v * 32);
            const __m256i pairs = _mm256_maddubs_epi16(half, w);
            sums[v] = _mm256_add_epi32(sums[v], _mm256_madd_epi16(pairs, twos));
            odd[v] = _mm256_add_epi16(odd[v], _mm256_maddubs_epi16(rest, w));
        }
    }
#pragma GCC unroll 2
    for (size_t v = 0; v < vectors; v++)
        sums[v] = _mm256_add_epi32(sums[v], _mm256_madd_epi16(odd[v], ones));
}

/* Adds the products of wide slabs and positions [first, first + positions) of the part. */
__attribute__((always_inline)) static inline void
add_words(const struct slabs *slabs, __m256i sums[PART][NV], const size_t first,
          const size_t positions, const size_t vectors)
{
    const __m256i low_bytes = _mm256_set1_epi16(0xff);
    const uint8_t *weights = slabs->weights;
    for (size_t i = 0; i < slabs->count; i++, weights += SLAB_BYTES) {
        const uint8_t *quads = slabs->quads + slabs->indices[i] * slabs->slab_bytes;
        __m256i even[NV];
        __m256i odd[NV];
#pragma GCC unroll 2
        for (size_t v = 0; v < vectors; v++) {
            const __m256i w = load(weights + v * 32);
            odd[v] = _mm256_srai_epi16(w, 8);
            even[v] = _mm256_srai_epi16(_mm256_slli_epi16(w, 8), 8);
        }
#pragma GCC unroll 4
        for (size_t p = first; p < first + positions; p++) {
            const __m256i x = broadcast_quad(quads + p * QK_IGEMM_QUAD_BYTES);
            const __m256i x_even = _mm256_and_si256(x, low_bytes);
            const __m256i x_odd = _mm256_srli_epi16(x, 8);
#pragma GCC unroll 2
            for (size_t v = 0; v < vectors; v++) {
                sums[p][v] = _mm256_add_epi32(sums[p][v], _mm256_madd_epi16(x_even, even[v]));
                sums[p][v] = _mm256_add_epi32(sums[p][v], _mm256_madd_epi16(x_odd, odd[v]));
            }
        }
    }
}

__attribute__((always_inline)) static inline void add_wide(const struct slabs *slabs,
                                                           __m256i sums[PART][NV],
                                                           const size_t positions,
                                                           const size_t vectors)
{
    if (positions == 1)
        add_halves(slabs, sums[0], vectors);
    else if (positions <= WORDS_MOST)
        add_words(slabs, sums, 0, positions, vectors);
    else {
        add_words(slabs, sums, 0, positions - positions / 2, vectors);
        add_words(slabs, sums, positions - positions / 2, positions / 2, vectors);
    }
}

__attribute__((always_inline)) static inline void add_part(const struct qk_igemm_args *args,
                                                           size_t first, __m256i sums[PART][NV],
                                                           const size_t positions,
                                                           const size_t vectors)
{
    const uint8_t *order = args->order;
    for (size_t s = 0; s < args->step_count; s += QK_IGEMM_CHUNK_STEPS) {
        const size_t left = args->step_count - s;
        const size_t steps = left < QK_IGEMM_CHUNK_STEPS ? left : QK_IGEMM_CHUNK_STEPS;
        const size_t count = (steps - 1) * QK_IGEMM_STEP_SLABS + args->steps[s + steps - 1].slabs;
        const size_t wide = order[QK_IGEMM_CHUNK_SLABS];
        struct slabs slabs = {
            .quads = args->quads + args->steps[s].offset + first * QK_IGEMM_QUAD_BYTES,
            .slab_bytes = args->slab_bytes,
            .weights = args->weights + s * args->step_bytes,
            .indices = order,
            .count = wide,
        };
        add_wide(&slabs, sums, positions, vectors);
        slabs.weights += wide * SLAB_BYTES;
        slabs.indices += wide;
        slabs.count = count - wide;
        add_pairs(&slabs, sums, positions, vectors);
        order += QK_IGEMM_ORDER_BYTES;
    }
}

static void multiply(const struct qk_igemm_args *args)
{
    multiply_in_parts(args, add_part);
}

/* ---- Wide weights ------------------------------------------------------------------------ */

/* True if the words of a slab may saturate. Rows that the panel lacks are ignored, because their
 * weights may be anything. */
static bool is_wide(const uint8_t *slab, size_t rows)
{
    __m256i wide = _mm256_setzero_si256();
    for (size_t v = 0; v < NV; v++)
        wide = _mm256_or_si256(wide, _mm256_and_si256(first_lanes((int)rows - (int)(v * LANES)),
                                                      find_wide_pairs(load(slab + v * 32))));
    return !_mm256_testz_si256(wide, wide);
}

static void arrange(uint8_t *weights, size_t slabs, size_t rows, uint8_t *order)
{
    uint8_t narrow[QK_IGEMM_CHUNK_SLABS * SLAB_BYTES] __attribute__((aligned(32)));
    uint8_t indices[QK_IGEMM_CHUNK_SLABS];
    size_t wide_count = 0;
    size_t narrow_count = 0;
    for (size_t i = 0; i < slabs; i++) {
        const uint8_t *slab = weights + i * SLAB_BYTES;
        if (is_wide(slab, rows)) {
            memmove(weights + wide_count * SLAB_BYTES, slab, SLAB_BYTES);
            order[wide_count++] = (uint8_t)i;
        } else {
            memcpy(narrow + narrow_count * SLAB_BYTES, slab, SLAB_BYTES);
            indices[narrow_count++] = (uint8_t)i;
        }
    }
    memcpy(weights + wide_count * SLAB_BYTES, narrow, narrow_count * SLAB_BYTES);
    memcpy(order + wide_count, indices, narrow_count);
    order[QK_IGEMM_CHUNK_SLABS] = (uint8_t)wide_count;
}

const struct qk_igemm qk_igemm_u8s8_16x12__avx2 = {
    .quad_k = 4,
    .mr = MR,
    .nr = NR,
    .by_position = true,
    .lanes = LANES,
    .part = PART,
    .row_stride = QK_IGEMM_QUAD_BYTES,
    .quad_stride = SLAB_BYTES,
    .multiply = multiply,
    .arrange = arrange,
};

#endif
