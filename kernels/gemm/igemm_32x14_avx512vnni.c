/* VPDPBUSD on vectors of 16 rows multiplies u8 by s8 and adds four products to a sum, modulo 2^32
 * (the form without saturation). */
#include "kernels/gemm/igemm.h"

#ifdef __x86_64__

#include <immintrin.h>
#include <string.h>

#include "kernels/conv/requantize_avx512.h"
#include "kernels/gemm/dpbusd.h"

static inline __m512i add_products(__m512i sum, __m512i x, __m512i w)
{
    return _mm512_dpbusd_epi32(sum, x, w);
}

#include "kernels/gemm/igemm_32x14_zmm.h"

/* A quad of a row has two pairs of channels, which go to two rows of pairs. */
static void unpack(const uint8_t *weights, size_t slabs, struct qk_igemm_wide wide,
                   const uint8_t *wide_weights, int8_t *to)
{
    const __m512i evens =
        _mm512_set_epi16(62, 60, 58, 56, 54, 52, 50, 48, 46, 44, 42, 40, 38, 36, 34, 32, 30, 28, 26,
                         24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    const __m512i odds = _mm512_add_epi16(evens, _mm512_set1_epi16(1));
    (void)wide, (void)wide_weights;
    for (size_t i = 0; i < slabs; i++, weights += 128, to += 128) {
        const __m512i low = _mm512_load_si512(weights), high = _mm512_load_si512(weights + 64);
        _mm512_storeu_si512(to, _mm512_permutex2var_epi16(low, evens, high));
        _mm512_storeu_si512(to + 64, _mm512_permutex2var_epi16(low, odds, high));
    }
}

/* ---- Bytes ------------------------------------------------------------------------------- */

/* Returns a mask of the rows from `row` on, as lanes. */
static inline __mmask16 rows_from(const struct qk_igemm_args *args, size_t row)
{
    return (__mmask16)(args->rows - row >= LANES ? 0xffff : (1U << (args->rows - row)) - 1);
}

/* Requantizes the sums of 16 rows, which are the lanes, at `positions` positions. The bytes of row
 * r are those of rows[r % 4] in its 128 bits r / 4. Inlined with a constant number of positions. */
__attribute__((always_inline)) static inline void
requantize_lanes(__m512i sums[NR][NV], const size_t v, const struct qk_requantize_512 *to,
                 __m512 multiplier, __m512i rows[4], const size_t positions)
{
    const __m512i order = _mm512_set4_epi32(0x0f0b0703, 0x0e0a0602, 0x0d090501, 0x0c080400);
    __m512i fours[4];
#pragma GCC unroll 4
    for (size_t i = 0; i < 4; i++) {
        __m512i y[4];
#pragma GCC unroll 4
        for (size_t k = 0; k < 4; k++) {
            const size_t p = 4 * i + k < positions ? 4 * i + k : positions - 1;
            y[k] = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_cvtepi32_ps(sums[p][v]), multiplier));
        }
        fours[i] = _mm512_shuffle_epi8(qk_requantize_narrow(to, y, 4), order);
    }
    const __m512i low_01 = _mm512_unpacklo_epi32(fours[0], fours[1]);
    const __m512i high_01 = _mm512_unpackhi_epi32(fours[0], fours[1]);
    const __m512i low_23 = _mm512_unpacklo_epi32(fours[2], fours[3]);
    const __m512i high_23 = _mm512_unpackhi_epi32(fours[2], fours[3]);
    rows[0] = _mm512_unpacklo_epi64(low_01, low_23);
    rows[1] = _mm512_unpackhi_epi64(low_01, low_23);
    rows[2] = _mm512_unpacklo_epi64(high_01, high_23);
    rows[3] = _mm512_unpackhi_epi64(high_01, high_23);
}

/* Stores the bytes of up to 16 rows. */
__attribute__((always_inline)) static inline void
store_rows(const __m512i rows[4], size_t count, uint8_t *y, size_t y_stride, __mmask16 keep)
{
#define STORE(part)                                                         \
    for (size_t k = 0; k < 4 && 4 * (part) + k < count; k++, y += y_stride) \
    _mm_mask_storeu_epi8(y, keep, _mm512_extracti32x4_epi32(rows[k], (part)))
    STORE(0);
    STORE(1);
    STORE(2);
    STORE(3);
#undef STORE
}

/* Computes the bytes of `count` positions from position `first` on, from the sums of
 * `positions` positions, at least `count`. Inlined with constants. */
__attribute__((always_inline)) static inline void requantize_tile(const struct qk_igemm_args *args,
                                                                  size_t first, size_t count,
                                                                  const size_t positions,
                                                                  const size_t vectors)
{
    const struct qk_igemm_bytes *bytes = args->bytes;
    const __mmask16 keep = (__mmask16)((1U << count) - 1);
    __m512i sums[CHAINS][NR][NV];
#pragma GCC unroll 2
    for (size_t v = 0; v < vectors; v++) {
        const __m512i bias =
            _mm512_maskz_loadu_epi32(rows_from(args, v * LANES), bytes->bias + v * LANES);
#pragma GCC unroll 14
        for (size_t p = 0; p < positions; p++)
            sums[0][p][v] = bias;
    }
    add_tile(args, args->quads + first * QK_IGEMM_QUAD_BYTES, sums, positions, vectors,
             chains_for(positions, vectors));
#pragma GCC unroll 14
    for (size_t p = 0; p < positions; p++)
#pragma GCC unroll 2
        for (size_t v = 0; v < vectors; v++)
            qk_hide_origin(&sums[0][p][v]);
    /* What the bytes need is read only now. Otherwise the compiler would read it before the loops,
     * and keep it in registers that the sums need. */
    __asm__ volatile("" : "+r"(bytes));
    const struct qk_requantize_512 to = {
        .zero_point = _mm512_set1_epi16((int16_t)bytes->zero_point),
        .is_signed = bytes->is_signed,
    };
#pragma GCC unroll 2
    for (size_t v = 0; v < vectors; v++) {
        const size_t row = v * LANES;
        const __m512 multiplier =
            _mm512_maskz_loadu_ps(rows_from(args, row), bytes->multiplier + row);
        uint8_t *y = bytes->y + row * bytes->y_stride + first;
        __m512i rows[4];
        requantize_lanes(sums[0], v, &to, multiplier, rows, positions);
        if (args->rows - row >= LANES)
            store_rows(rows, LANES, y, bytes->y_stride, keep);
        else
            store_rows(rows, args->rows - row, y, bytes->y_stride, keep);
    }
}

/* Computes the bytes of tiles. The last one computes more positions than there are, because a copy
 * of the loop for each number of positions would be large. */
__attribute__((always_inline)) static inline void requantize_panel(const struct qk_igemm_args *args,
                                                                   const size_t vectors)
{
    for (size_t first = 0; first < args->positions; first += NR) {
        const size_t count = args->positions - first < NR ? args->positions - first : NR;
        if (count > 8)
            requantize_tile(args, first, count, NR, vectors);
        else if (count > 4)
            requantize_tile(args, first, count, 8, vectors);
        else
            requantize_tile(args, first, count, 4, vectors);
    }
}

/* Requantizes the sums in registers, where rows are lanes, and transposes them. Storing them, and
 * reading them again in the epilogue, would take as long as four slabs more. */
static void multiply_to_bytes(const struct qk_igemm_args *args)
{
    if (args->rows > LANES)
        requantize_panel(args, 2);
    else
        requantize_panel(args, 1);
}

static void multiply_to_sums_or_bytes(const struct qk_igemm_args *args)
{
    if (args->bytes)
        multiply_to_bytes(args);
    else
        multiply(args);
}

const struct qk_igemm qk_igemm_u8s8_32x14__avx512vnni = {
    .quad_k = 4,
    .mr = MR,
    .nr = NR,
    .by_position = true,
    .lanes = LANES,
    .part = NR,
    .row_stride = QK_IGEMM_QUAD_BYTES,
    .quad_stride = (size_t)MR * QK_IGEMM_QUAD_BYTES,
    .unpack = unpack,
    .multiply = multiply_to_sums_or_bytes,
    .stores_bytes = true,
};

#endif
