/* im2col kernels on vectors of 16 floats. */
#include "kernels/conv/sgemm/im2col_kernels.h"

#ifdef __x86_64__

#include <immintrin.h>

#include "kernels/conv/requantize_avx512.h"
#include "kernels/conv/sgemm/im2col_loops.h"

/* Returns a mask of the positions that are before `end`, of the 64 positions from `at` on. */
static inline uint64_t low_bits(size_t end, size_t at)
{
    return end < at ? 0 : _bzhi_u64(UINT64_MAX, (uint32_t)qk_size_min(end - at, 64));
}

/* Writes a segment, 16 elements at a time. Masked loads read nothing outside the plane, because
 * there may be no memory. Stores may go beyond the end of the segment. */
__attribute__((always_inline)) static inline void
write_segment(const struct qk_im2col *job, const struct im2col_segment *segment, float *to)
{
    if (segment->stride > 2) {
        im2col_write_segment(job, segment, to);
        return;
    }
    const __m128i flip = _mm_set1_epi8((char)job->widen.flip);
    const __m512i offset = _mm512_set1_epi32(job->widen.offset);
    const __m512 padding = _mm512_set1_ps(job->fill);
    uintptr_t from = segment->from;
    uint64_t inside = 0;
    for (size_t at = 0; at < segment->count; at += 16, from += 16 * (uintptr_t)segment->stride) {
        inside = at % 64 == 0 ? low_bits(segment->behind, at) & ~low_bits(segment->first, at)
                              : inside >> 16;
        const __mmask16 mask = (__mmask16)inside;
        __m128i bytes;
        if (segment->stride == 1)
            bytes = _mm_maskz_loadu_epi8(mask, (const void *)from);
        else
            bytes = _mm256_cvtepi16_epi8(
                _mm256_maskz_loadu_epi8(_pdep_u32(mask, 0x55555555), (const void *)from));
        const __m512i values =
            _mm512_sub_epi32(_mm512_cvtepu8_epi32(_mm_xor_si128(bytes, flip)), offset);
        _mm512_storeu_ps(to + at, _mm512_mask_mov_ps(padding, mask, _mm512_cvtepi32_ps(values)));
    }
}

static void im2col(const struct qk_im2col *job)
{
    im2col_all(job, write_segment);
}

/* Requantizes up to 64 columns of a row. */
static inline void requantize_columns(const struct qk_epilogue_floats *job,
                                      const struct qk_requantize_512 *to, size_t row, size_t column)
{
    const uint64_t keep = UINT64_MAX >> (64 - qk_size_min(job->columns - column, 64));
    const size_t at = row * job->stride + column;
    __m512i sums[4];
#pragma GCC unroll 4
    for (size_t v = 0; v < 4; v++) {
        const __mmask16 mask = (__mmask16)(keep >> (16 * v));
        const __m512 floats = _mm512_maskz_loadu_ps(mask, job->sums + at + 16 * v);
        sums[v] = _mm512_add_epi32(_mm512_cvttps_epi32(floats), _mm512_set1_epi32(job->bias[row]));
        if (job->carried)
            sums[v] = _mm512_add_epi32(sums[v],
                                       _mm512_maskz_loadu_epi32(mask, job->carried + at + 16 * v));
    }
    _mm512_mask_storeu_epi8(job->y + row * job->y_stride + column, keep,
                            qk_requantize_64(to, sums, job->multiplier[row]));
}

static void requantize(const struct qk_epilogue_floats *job)
{
    const struct qk_requantize_512 to = qk_requantize_512_from(&job->epilogue->requantize);
    for (size_t row = 0; row < job->rows; row++)
        for (size_t column = 0; column < job->columns; column += 64)
            requantize_columns(job, &to, row, column);
}

const struct qk_im2col_kernels qk_im2col_kernels__avx512bw = {
    .im2col = im2col,
    .epilogues =
        {[QK_EPILOGUE_BYTES] = requantize, [QK_EPILOGUE_INT32] = qk_im2col_epilogue_scalar},
};

#endif
