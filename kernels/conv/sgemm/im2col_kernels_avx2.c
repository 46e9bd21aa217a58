/* im2col kernels on vectors of 8 floats. */
#include "kernels/conv/sgemm/im2col_kernels.h"

#ifdef __x86_64__

#include <immintrin.h>

#include "kernels/conv/requantize_avx2.h"
#include "kernels/conv/sgemm/im2col_loops.h"

/* Requantizes up to 32 columns of a row. */
static inline void requantize_columns(const struct qk_epilogue_floats *job,
                                      const struct qk_requantize *to, size_t row, size_t column)
{
    const size_t count = job->columns - column;
    const size_t at = row * job->stride + column;
    const __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    uint8_t *y = job->y + row * job->y_stride + column;
    __m256i sums[4];
    for (size_t v = 0; v < 4; v++) {
        const int left = (int)qk_size_min(count, 32) - 8 * (int)v;
        const __m256i mask = _mm256_cmpgt_epi32(_mm256_set1_epi32(left), index);
        const __m256 floats = _mm256_maskload_ps(job->sums + at + 8 * v, mask);
        sums[v] = _mm256_add_epi32(_mm256_cvttps_epi32(floats), _mm256_set1_epi32(job->bias[row]));
        if (job->carried)
            sums[v] =
                _mm256_add_epi32(sums[v], _mm256_maskload_epi32(job->carried + at + 8 * v, mask));
    }
    const __m256i bytes = qk_requantize_32(to, sums, job->multiplier[row]);
    if (count >= 32)
        _mm256_storeu_si256((void *)y, bytes);
    else
        memcpy(y, &bytes, count);
}

static void requantize(const struct qk_epilogue_floats *job)
{
    const struct qk_requantize to = job->epilogue->requantize; /* no store to y changes this */
    for (size_t row = 0; row < job->rows; row++)
        for (size_t column = 0; column < job->columns; column += 32)
            requantize_columns(job, &to, row, column);
}

static void im2col(const struct qk_im2col *job)
{
    im2col_all(job, im2col_write_segment);
}

const struct qk_im2col_kernels qk_im2col_kernels__avx2 = {
    .im2col = im2col,
    .epilogues =
        {[QK_EPILOGUE_BYTES] = requantize, [QK_EPILOGUE_INT32] = qk_im2col_epilogue_scalar},
};

#endif
