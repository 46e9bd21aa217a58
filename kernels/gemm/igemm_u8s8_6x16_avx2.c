/* VPMADDUBSW on vectors of 8 positions multiplies u8 by s8 and adds two products to a word, which
 * saturates. VPMADDWD by ones then adds the two words of a sum. With the addition to the sum, these
 * are three instructions for 32 products. Products of words (igemm_6x16_avx2.c) take four, and read
 * twice as many bytes.
 *
 * The word never saturates if the positive weights of a pair add up to at most 128, and the
 * negative weights to at least -128, because x is at most 255. `mark_wide` splits the second weight
 * of any other pair in two: a part that stays in the panel, with which the pair fits, and the
 * excess. Of weights that use all 8 bits, as ONNX Runtime's quantizer makes them for each channel,
 * some 5 % of all quads have an excess, in layers of few channels some 20 %. These quads are a
 * list behind the panel, and are multiplied one by one after the others. So the time that wide
 * weights take follows their number, wherever they are.
 *
 * A tile is six rows by two vectors of positions. It takes all 16 YMM registers: 12 for sums, two
 * for x, one for a quad of weights, and one for products. The ones are an operand in memory. If one
 * or two last positions are left, a vector has the six rows of a position instead. */
#include "kernels/gemm/igemm.h"

#ifdef __x86_64__

#include <immintrin.h>
#include <string.h>

static const int16_t ones[16]
    __attribute__((aligned(32))) = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};

/* Compilers would load the ones into a register once, but none is free. */
static inline __m256i add_products(__m256i sum, __m256i x, __m256i w)
{
    __m256i sums;
    __asm__("vpmaddwd %2, %1, %0"
            : "=x"(sums)
            : "x"(_mm256_maddubs_epi16(x, w)), "m"(*(const __m256i *)(const void *)ones));
    return _mm256_add_epi32(sum, sums);
}

#include "kernels/gemm/igemm_wide_avx2.h"
#include "kernels/gemm/igemm_ymm.h"

enum { VECTORS_MOST = QK_IGEMM_NR / LANES };

/* ---- Last positions ---------------------------------------------------------------------- */

/* Computes the sums of `count` positions from `first` on, without excesses. Inlined with a constant
 * `count`. */
__attribute__((always_inline)) static inline void multiply_last(const struct qk_igemm_args *args,
                                                                size_t first, const size_t count)
{
    __m256i sums[LAST_MOST] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    add_last(args, first, sums, count);
    for (size_t p = 0; p < count; p++) {
        uint32_t lanes[LANES];
        _mm256_storeu_si256((void *)lanes, sums[p]);
        for (size_t r = 0; r < args->rows; r++) {
            int32_t *to = args->sums + r * QK_IGEMM_NR + first + p;
            *to = (int32_t)(lanes[r] + (args->add ? (uint32_t)*to : 0));
        }
    }
}

/* Computes the sums of all positions, without excesses. */
static void multiply_narrow(const struct qk_igemm_args *args)
{
    const size_t last = args->positions % LANES;
    if (last == 0 || last > LAST_MOST || count_vectors(args) * LANES < args->positions) {
        multiply_panel(args);
        return;
    }
    struct qk_igemm_args whole = *args;
    whole.positions -= last;
    if (whole.positions > 0)
        multiply_panel(&whole);
    if (last == 1)
        multiply_last(args, whole.positions, 1);
    else
        multiply_last(args, whole.positions, LAST_MOST);
}

/* ---- Wide weights ------------------------------------------------------------------------ */

/* A quad of weights with an excess is 4 bytes in the list of its step: the slab, the excess of
 * weight 1, the row, and the excess of weight 3. The excesses are therefore the upper bytes of two
 * words. The list of a step is never longer than the step itself. `marks` is its length. */

/* Adds the products of all excesses to the sums of their rows. Sums beyond the positions may not
 * have been written before; nobody reads them. Inlined with a constant number of vectors. */
__attribute__((always_inline)) static inline void add_excesses(const struct qk_igemm_args *args,
                                                               const size_t vectors)
{
    const size_t slab_bytes = args->slab_bytes;
    const struct qk_igemm_step *step = args->steps;
    const struct qk_igemm_wide *wide = args->wide, *end = wide + args->step_count;
    const uint8_t *entry = args->wide_weights + wide->offset;
    const uint8_t *quads = args->quads;
    int32_t *sums = args->sums;
    for (; wide < end; wide++, step++) {
        const uint8_t *last = entry + (size_t)wide->marks * QK_IGEMM_QUAD_BYTES;
        for (; entry < last; entry += QK_IGEMM_QUAD_BYTES) {
            const uint8_t *from = quads + step->offset + entry[0] * slab_bytes;
            int32_t *to = sums + (size_t)entry[2] * QK_IGEMM_NR;
            const __m256i excess = _mm256_srai_epi16(broadcast_quad(entry), 8);
#pragma GCC unroll 8
            for (size_t v = 0; v < vectors; v++) {
                const __m256i odd = _mm256_srli_epi16(load(from + v * 32), 8);
                const __m256i sum =
                    _mm256_add_epi32(load(to + v * LANES), _mm256_madd_epi16(odd, excess));
                _mm256_storeu_si256((void *)(to + v * LANES), sum);
            }
        }
    }
}

static void multiply(const struct qk_igemm_args *args)
{
    multiply_narrow(args);
    switch (count_vectors(args)) {
    case 1:
        add_excesses(args, 1);
        break;
    case 2:
        add_excesses(args, 2);
        break;
    case 3:
        add_excesses(args, 3);
        break;
    case 4:
        add_excesses(args, 4);
        break;
    case 5:
        add_excesses(args, 5);
        break;
    case 6:
        add_excesses(args, 6);
        break;
    case 7:
        add_excesses(args, 7);
        break;
    default:
        add_excesses(args, VECTORS_MOST);
        break;
    }
}

/* Returns a mask of the quads with wide pairs. `quads` are up to 8. */
static uint32_t find_wide(const uint8_t *weights, size_t quads)
{
    const __m256i w = _mm256_maskload_epi32((const void *)weights, first_lanes((int)quads));
    const __m256i wide = find_wide_pairs(w);
    const __m256i zero = _mm256_setzero_si256();
    const __m256i narrow = _mm256_cmpeq_epi32(wide, zero);
    return ~(uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(narrow)) & 0xff;
}

/* Splits the weights of wide pairs and lists the excesses. Rows that the panel lacks are not
 * listed, because their sums are not used. */
static size_t mark_wide(uint8_t *weights, size_t slabs, size_t rows, uint8_t *wide_weights,
                        uint32_t *marks)
{
    const size_t quads = slabs * MR;
    uint32_t found = 0;
    for (size_t first = 0; first < quads; first += LANES)
        for (uint32_t left = find_wide(weights + first * QK_IGEMM_QUAD_BYTES, quads - first);
             left > 0; left &= left - 1) {
            const size_t i = first + (size_t)__builtin_ctz(left);
            if (i % MR >= rows)
                continue;
            int8_t quad[QK_IGEMM_QUAD_BYTES];
            memcpy(quad, weights + i * QK_IGEMM_QUAD_BYTES, sizeof(quad));
            const int excess[2] = {qk_igemm_excess(quad[0], quad[1]),
                                   qk_igemm_excess(quad[2], quad[3])};
            quad[1] = (int8_t)(quad[1] - excess[0]);
            quad[3] = (int8_t)(quad[3] - excess[1]);
            memcpy(weights + i * QK_IGEMM_QUAD_BYTES, quad, sizeof(quad));
            const uint8_t entry[QK_IGEMM_QUAD_BYTES] = {(uint8_t)(i / MR), (uint8_t)excess[0],
                                                        (uint8_t)(i % MR), (uint8_t)excess[1]};
            memcpy(wide_weights + found * QK_IGEMM_QUAD_BYTES, entry, sizeof(entry));
            found++;
        }
    *marks = found;
    return found * QK_IGEMM_QUAD_BYTES;
}

/* Separates the pairs of a slab, and then adds the excesses to the weights. */
static void unpack(const uint8_t *weights, size_t slabs, struct qk_igemm_wide wide,
                   const uint8_t *wide_weights, int8_t *to)
{
    enum { PAIR_BYTES = 2 * MR, SLAB_BYTES = 2 * PAIR_BYTES };
    const __m128i pairs =
        _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15); /* of four rows */
    int8_t *slab = to;
    for (size_t i = 0; i < slabs; i++, weights += SLAB_BYTES, slab += SLAB_BYTES) {
        const __m128i first = _mm_shuffle_epi8(_mm_loadu_si128((const void *)weights), pairs);
        const __m128i last = _mm_shuffle_epi8(_mm_loadl_epi64((const void *)(weights + 16)), pairs);
        const int32_t even = _mm_cvtsi128_si32(last), odd = _mm_extract_epi32(last, 2);
        _mm_storel_epi64((void *)slab, first);
        memcpy(slab + 8, &even, sizeof(even));
        _mm_storel_epi64((void *)(slab + PAIR_BYTES), _mm_unpackhi_epi64(first, first));
        memcpy(slab + PAIR_BYTES + 8, &odd, sizeof(odd));
    }
    const uint8_t *entry = wide_weights + wide.offset;
    for (uint32_t i = 0; i < wide.marks; i++, entry += QK_IGEMM_QUAD_BYTES) {
        int8_t *pair = to + (size_t)entry[0] * SLAB_BYTES + (size_t)entry[2] * 2;
        pair[1] = (int8_t)(pair[1] + (int8_t)entry[1]);
        pair[PAIR_BYTES + 1] = (int8_t)(pair[PAIR_BYTES + 1] + (int8_t)entry[3]);
    }
}

const struct qk_igemm qk_igemm_u8s8_6x16__avx2 = {
    .quad_k = 4,
    .mr = MR,
    .nr = QK_IGEMM_NR,
    .row_stride = QK_IGEMM_QUAD_BYTES,
    .quad_stride = (size_t)MR * QK_IGEMM_QUAD_BYTES,
    .multiply = multiply,
    .mark_wide = mark_wide,
    .count_wide = count_wide,
    .unpack = unpack,
    .wide_rows = 1,
    .wide_bytes = QK_IGEMM_QUAD_BYTES,
};

#endif
