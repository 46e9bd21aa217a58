/* Transposes weights for packing (struct qk_transpose) with vectors of 64 bytes. Skylake-X has all
 * instructions that it needs. Only for slab_kernels_avx512bw.c and slab_kernels_avx512vbmi.c. */
#pragma once

#include "kernels/conv/igemm/slab_kernels_zmm.h"

#ifdef __AVX512BW__

/* ---- One K block of a row ---------------------------------------------------------------- */

/* Transposes one K block of a row to 64 bytes for each tap, tap_stride bytes apart, and returns the
 * sum of its weights. `plan` is data for this function alone, or NULL. */
typedef uint32_t block_fn(const struct qk_transpose *job, const void *plan, const uint8_t *from,
                          uint8_t *to, size_t tap_stride);

/* Transposes 16 x 16 bytes in each 16-byte lane: byte b of vector v goes to byte v of vector b.
 * Write the place of a byte as the 8 bits v3 v2 v1 v0 b3 b2 b1 b0. Each round interleaves vectors i
 * and i + 8, which rotates these bits to the left by one: v2 v1 v0 b3 b2 b1 b0 v3. Four rounds
 * therefore swap v and b. */
static inline void transpose_lanes(__m512i v[16])
{
    __m512i next[16];
#pragma GCC unroll 4
    for (size_t round = 0; round < 4; round++) {
#pragma GCC unroll 8
        for (size_t i = 0; i < 8; i++) {
            next[2 * i] = _mm512_unpacklo_epi8(v[i], v[i + 8]);
            next[2 * i + 1] = _mm512_unpackhi_epi8(v[i], v[i + 8]);
        }
#pragma GCC unroll 16
        for (size_t i = 0; i < 16; i++)
            v[i] = next[i];
    }
}

/* Transposes up to 16 taps of one K block of a row, from tap `first` on. Returns 16 numbers whose
 * sum is that of the weights. Before the transposition, lane l of vector i holds the taps of
 * channel 16 l + i. The load for lane l begins 16 l bytes before that channel's taps, so that they
 * land in lane l without a shift. This is safe, because a masked load touches only the bytes in its
 * mask. `whole`: there are 64 channels. */
__attribute__((always_inline)) static inline __m512i transpose_taps(const struct qk_transpose *job,
                                                                    const uint8_t *from,
                                                                    uint8_t *to, size_t tap_stride,
                                                                    size_t first, const bool whole)
{
    const size_t count = qk_size_min(job->taps - first, 16);
    const __mmask64 taps = low_bits(count);
    const __m512i flip = _mm512_maskz_set1_epi8(low_bits(job->channels), (char)job->flip);
    const __m512i ones = _mm512_set1_epi8(1);
    const uintptr_t at = (uintptr_t)from + first;
    __m512i sums = _mm512_setzero_si512();
    __m512i v[16];
#pragma GCC unroll 16
    for (size_t i = 0; i < 16; i++) {
        v[i] = _mm512_setzero_si512();
#pragma GCC unroll 4
        for (size_t l = 0; l < 4; l++)
            if (whole || 16 * l + i < job->channels)
                v[i] = _mm512_mask_loadu_epi8(
                    v[i], taps << 16 * l, (const void *)(at + (16 * l + i) * job->taps - 16 * l));
    }
    transpose_lanes(v);
    to += first * tap_stride;
#pragma GCC unroll 16
    for (size_t t = 0; t < 16; t++, to += tap_stride) {
        if (t == count)
            break;
        const __m512i tap = _mm512_xor_si512(v[t], flip);
        const __m512i pairs = _mm512_maddubs_epi16(ones, tap);
        sums = _mm512_add_epi32(sums, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
        _mm512_storeu_si512(to, tap);
    }
    return sums;
}

/* Transposes one K block of a row, 16 taps at a time, and returns the sum of its weights. */
static uint32_t transpose_block(const struct qk_transpose *job, const void *plan,
                                const uint8_t *from, uint8_t *to, size_t tap_stride)
{
    __m512i sums = _mm512_setzero_si512();
    (void)plan;
    for (size_t tap = 0; tap < job->taps; tap += 16)
        sums = _mm512_add_epi32(sums, job->channels == 64
                                          ? transpose_taps(job, from, to, tap_stride, tap, true)
                                          : transpose_taps(job, from, to, tap_stride, tap, false));
    return (uint32_t)_mm512_reduce_add_epi32(sums);
}

/* Like transpose_block, for a single tap: the weights keep their order. */
static uint32_t copy_block(const struct qk_transpose *job, const void *plan, const uint8_t *from,
                           uint8_t *to, size_t tap_stride)
{
    const __mmask64 channels = low_bits(job->channels);
    const __m512i flip = _mm512_maskz_set1_epi8(channels, (char)job->flip);
    const __m512i tap = _mm512_xor_si512(_mm512_maskz_loadu_epi8(channels, from), flip);
    const __m512i pairs = _mm512_maddubs_epi16(_mm512_set1_epi8(1), tap);
    (void)plan, (void)tap_stride;
    _mm512_storeu_si512(to, tap);
    return (uint32_t)_mm512_reduce_add_epi32(_mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
}

/* ---- All rows ----------------------------------------------------------------------------- */

/* Transposes all rows, for layouts in which the quads of a row lie together. */
static void transpose_rows(const struct qk_transpose *job, block_fn *block, const void *plan)
{
    for (size_t row = 0; row < job->rows; row++) {
        const uint8_t *from = job->from + row * job->from_row_stride;
        uint8_t *to = job->to + row * job->to_row_stride;
        uint32_t sum = (uint32_t)job->sums[row];
        for (size_t k_block = 0; k_block < job->k_blocks; k_block++) {
            sum += block(job, plan, from, to, job->to_tap_stride);
            from += job->channels * job->taps;
            to += job->taps * job->to_tap_stride;
        }
        job->sums[row] = (int32_t)sum;
    }
}

/* Turns 16 rows of 16 quads, [row][quad], into [quad][row]: the same quad of all rows lies
 * together. */
static void interleave(uint8_t from[16][64], size_t rows, size_t quads, uint8_t *to,
                       size_t to_stride)
{
    const __mmask16 there = (__mmask16)low_bits(rows);
    __m512i a[16], b[16];
#pragma GCC unroll 8
    for (size_t i = 0; i < 16; i += 2) {
        const __m512i even = _mm512_loadu_si512(from[i]);
        const __m512i odd = _mm512_loadu_si512(from[i + 1]);
        a[i] = _mm512_unpacklo_epi32(even, odd);
        a[i + 1] = _mm512_unpackhi_epi32(even, odd);
    }
    /* b[q + k] has quad k of each lane's four quads, for rows q to q + 3. */
#pragma GCC unroll 4
    for (size_t q = 0; q < 16; q += 4) {
        b[q] = _mm512_unpacklo_epi64(a[q], a[q + 2]);
        b[q + 1] = _mm512_unpackhi_epi64(a[q], a[q + 2]);
        b[q + 2] = _mm512_unpacklo_epi64(a[q + 1], a[q + 3]);
        b[q + 3] = _mm512_unpackhi_epi64(a[q + 1], a[q + 3]);
    }
#pragma GCC unroll 4
    for (size_t k = 0; k < 4; k++) {
        const __m512i low_01 = _mm512_shuffle_i32x4(b[k], b[4 + k], 0x44);
        const __m512i low_23 = _mm512_shuffle_i32x4(b[8 + k], b[12 + k], 0x44);
        const __m512i high_01 = _mm512_shuffle_i32x4(b[k], b[4 + k], 0xee);
        const __m512i high_23 = _mm512_shuffle_i32x4(b[8 + k], b[12 + k], 0xee);
        a[k] = _mm512_shuffle_i32x4(low_01, low_23, 0x88);
        a[4 + k] = _mm512_shuffle_i32x4(low_01, low_23, 0xdd);
        a[8 + k] = _mm512_shuffle_i32x4(high_01, high_23, 0x88);
        a[12 + k] = _mm512_shuffle_i32x4(high_01, high_23, 0xdd);
    }
#pragma GCC unroll 16
    for (size_t i = 0; i < 16; i++)
        if (i < quads)
            _mm512_mask_storeu_epi32(to + i * to_stride, there, a[i]);
}

/* Transposes up to 16 rows, for layouts in which equal quads of neighbouring rows lie together. */
static void transpose_quads(const struct qk_transpose *job, block_fn *block, const void *plan,
                            size_t first, size_t rows)
{
    uint8_t scratch[QK_TRANSPOSE_TAPS][16][QK_TRANSPOSE_CHANNELS];
    const size_t tap_stride = sizeof(scratch[0]);
    const uint8_t *from = job->from + first * job->from_row_stride;
    uint8_t *to = job->to + first * job->to_row_stride;
    for (size_t k_block = 0; k_block < job->k_blocks; k_block++) {
        for (size_t row = 0; row < rows; row++)
            job->sums[first + row] = (int32_t)((uint32_t)job->sums[first + row] +
                                               block(job, plan, from + row * job->from_row_stride,
                                                     scratch[0][row], tap_stride));
        for (size_t tap = 0; tap < job->taps; tap++, to += job->to_tap_stride)
            interleave(scratch[tap], rows, job->quads, to, job->to_quad_stride);
        from += job->channels * job->taps;
    }
}

/* Transposes all rows. Calls `block` with `plan` for each K block of a row. */
static void transpose_by(const struct qk_transpose *job, block_fn *block, const void *plan)
{
    if (job->to_quad_stride == QK_IGEMM_QUAD_BYTES) {
        transpose_rows(job, block, plan);
        return;
    }
    for (size_t row = 0; row < job->rows; row += 16)
        transpose_quads(job, block, plan, row, qk_size_min(job->rows - row, 16));
}

static void transpose_by_lanes(const struct qk_transpose *job)
{
    transpose_by(job, job->taps == 1 ? copy_block : transpose_block, NULL);
}

#endif
