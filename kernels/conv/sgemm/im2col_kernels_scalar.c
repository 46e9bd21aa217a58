/* The definition of the im2col kernels, in plain C. All other tiers give the same bits. */
#include "kernels/conv/requantize.h"
#include "kernels/conv/sgemm/im2col_loops.h"
#include "kernels/wrap.h"

/* At -O2 compilers vectorize only inner loops of a constant length. */
#define CHUNK 16

/* Requantizes `count` columns of a row. Inlined into both callers, because one of them has a
 * constant count. */
__attribute__((always_inline)) static inline void
requantize_span(const struct qk_epilogue_floats *job, size_t row, size_t begin, size_t count)
{
    const struct qk_requantize requantize = job->epilogue->requantize;
    const float multiplier = job->multiplier[row];
    const uint32_t bias = (uint32_t)job->bias[row];
    const size_t at = row * job->stride + begin;
    uint8_t *y = job->y + row * job->y_stride + begin;
    uint32_t sums[CHUNK];

    for (size_t i = 0; i < count; i++)
        sums[i] = (uint32_t)(int32_t)job->sums[at + i] + bias;
    if (job->carried)
        for (size_t i = 0; i < count; i++)
            sums[i] += (uint32_t)job->carried[at + i];
    for (size_t i = 0; i < count; i++)
        y[i] = qk_requantize_one(requantize, (int32_t)sums[i], multiplier);
}

static void requantize(const struct qk_epilogue_floats *job)
{
    for (size_t row = 0; row < job->rows; row++) {
        size_t begin = 0;
        for (; job->columns - begin >= CHUNK; begin += CHUNK)
            requantize_span(job, row, begin, CHUNK);
        requantize_span(job, row, begin, job->columns - begin);
    }
}

QK_WRAPS void qk_im2col_epilogue_scalar(const struct qk_epilogue_floats *job)
{
    const struct qk_epilogue *epilogue = job->epilogue;
    const size_t bytes = epilogue->y_bytes;
    for (size_t row = 0; row < job->rows; row++)
        for (size_t i = 0; i < job->columns; i++) {
            const size_t at = row * job->stride + i;
            const uint32_t carried = job->carried ? (uint32_t)job->carried[at] : 0;
            const int32_t sum =
                (int32_t)((uint32_t)(int32_t)job->sums[at] + carried + (uint32_t)job->bias[row]);
            uint8_t *y = job->y + (row * job->y_stride + i * job->position_stride) * bytes;
            if (epilogue->kind == QK_EPILOGUE_INT32)
                memcpy(y, &sum, sizeof(sum));
            else
                *y = qk_requantize_one(epilogue->requantize, sum, job->multiplier[row]);
        }
}

static void im2col(const struct qk_im2col *job)
{
    im2col_all(job, im2col_write_segment);
}

const struct qk_im2col_kernels qk_im2col_kernels__scalar = {
    .im2col = im2col,
    .epilogues =
        {[QK_EPILOGUE_BYTES] = requantize, [QK_EPILOGUE_INT32] = qk_im2col_epilogue_scalar},
};
