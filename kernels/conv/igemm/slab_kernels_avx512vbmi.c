#include "kernels/conv/igemm/slab_kernels_zmm.h"

#ifdef __x86_64__

/* ---- Transpose --------------------------------------------------------------------------- */

/* Transposing reads `taps` vectors of 64 bytes, in which the bytes of one tap are `taps` bytes
 * apart, and picks them together. This says which of a tap's 64 bytes come from which vector, and,
 * in the low 6 bits of an index, from where in it. */
struct transpose_plan {
    __m512i index; /* for tap 0; tap t lies t bytes further */
    __mmask64 loaded[QK_TRANSPOSE_TAPS];
    __mmask64 part[QK_TRANSPOSE_TAPS][QK_TRANSPOSE_TAPS]; /* [tap][vector] */
};

static void plan_transpose(const struct qk_transpose *job, struct transpose_plan *plan)
{
    const size_t taps = job->taps;
    const size_t bytes = job->channels * taps;
    uint8_t index[64];
    for (size_t i = 0; i < 64; i++)
        index[i] = (uint8_t)(i * taps);
    plan->index = _mm512_loadu_si512(index);
    for (size_t v = 0; v < taps; v++)
        plan->loaded[v] = bytes > 64 * v ? low_bits(bytes - 64 * v) : 0;
    for (size_t t = 0; t < taps; t++) {
        uint64_t before = 0;
        for (size_t v = 0; v < taps; v++) {
            const uint64_t up_to = low_bits((64 * (v + 1) - t - 1) / taps + 1);
            plan->part[t][v] = up_to & ~before;
            before = up_to;
        }
    }
}

/* Transposes one K block of a row and returns the sum of its weights. What is not loaded stays 0.
 */
static inline int32_t transpose_row(const struct qk_transpose *job,
                                    const struct transpose_plan *plan, const uint8_t *from,
                                    uint8_t *to, size_t tap_stride)
{
    const size_t taps = job->taps;
    const __m512i flip = _mm512_set1_epi8((char)job->flip);
    const __m512i one = _mm512_set1_epi8(1);
    __m512i source[QK_TRANSPOSE_TAPS];
    __m512i sum = _mm512_setzero_si512();
    __m512i index = plan->index;
    for (size_t v = 0; v < taps; v++) {
        const __m512i bytes = _mm512_maskz_loadu_epi8(plan->loaded[v], from + 64 * v);
        source[v] = _mm512_maskz_mov_epi8(plan->loaded[v], _mm512_xor_si512(bytes, flip));
        sum = _mm512_dpbusd_epi32(sum, one, source[v]);
    }
    for (size_t t = 0; t < taps; t++) {
        __m512i tap = _mm512_maskz_permutexvar_epi8(plan->part[t][0], index, source[0]);
        for (size_t v = 1; v < taps; v++)
            tap = _mm512_mask_permutexvar_epi8(tap, plan->part[t][v], index, source[v]);
        _mm512_storeu_si512(to + t * tap_stride, tap);
        index = _mm512_add_epi8(index, one);
    }
    return _mm512_reduce_add_epi32(sum);
}

/* Transposes where the cells of a row lie together. */
static void transpose_rows(const struct qk_transpose *job, const struct transpose_plan *plan)
{
    for (size_t row = 0; row < job->rows; row++) {
        const uint8_t *from = job->from + row * job->from_row_stride;
        uint8_t *to = job->to + row * job->to_row_stride;
        uint32_t sum = (uint32_t)job->sums[row];
        for (size_t k_block = 0; k_block < job->k_blocks; k_block++) {
            sum += (uint32_t)transpose_row(job, plan, from, to, job->to_tap_stride);
            from += job->channels * job->taps;
            to += job->taps * job->to_tap_stride;
        }
        job->sums[row] = (int32_t)sum;
    }
}

/* Cells of 16 rows, 64 bytes each, to 16 cells of which each has its rows together. */
static void interleave(uint8_t from[16][64], size_t rows, size_t cells, uint8_t *to,
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
    /* b[4 q + k]: of rows 4 q to 4 q + 3, cell k of each lane's four. */
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
        if (i < cells)
            _mm512_mask_storeu_epi32(to + i * to_stride, there, a[i]);
}

/* Transposes up to 16 rows where neighbouring rows lie together. */
static void transpose_cells(const struct qk_transpose *job, const struct transpose_plan *plan,
                            size_t first, size_t rows)
{
    uint8_t scratch[QK_TRANSPOSE_TAPS][16][QK_TRANSPOSE_CHANNELS];
    const size_t tap_stride = sizeof(scratch[0]);
    const uint8_t *from = job->from + first * job->from_row_stride;
    uint8_t *to = job->to + first * job->to_row_stride;
    for (size_t k_block = 0; k_block < job->k_blocks; k_block++) {
        for (size_t row = 0; row < rows; row++)
            job->sums[first + row] =
                (int32_t)((uint32_t)job->sums[first + row] +
                          (uint32_t)transpose_row(job, plan, from + row * job->from_row_stride,
                                                  scratch[0][row], tap_stride));
        for (size_t tap = 0; tap < job->taps; tap++, to += job->to_tap_stride)
            interleave(scratch[tap], rows, job->cells, to, job->to_cell_stride);
        from += job->channels * job->taps;
    }
}

static void transpose(const struct qk_transpose *job)
{
    struct transpose_plan plan;
    plan_transpose(job, &plan);
    if (job->to_cell_stride == QK_IGEMM_CELL_BYTES) {
        transpose_rows(job, &plan);
        return;
    }
    for (size_t row = 0; row < job->rows; row += 16)
        transpose_cells(job, &plan, row, qk_size_min(job->rows - row, 16));
}

const struct qk_slab_kernels qk_slab_kernels_u8x4__avx512vbmi = {
    .fill = fill,
    .epilogues = {[QK_EPILOGUE_BYTES] = requantize},
    .transpose = transpose,
};

#endif
