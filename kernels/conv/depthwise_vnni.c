#include "kernels/conv/depthwise.h"

#ifdef __x86_64__

#include <string.h>

#include "kernels/conv/requantize_avx512.h"

enum { NV = 4 };

/* Byte 4 p + t of a vector is the one that tap t of position p sees. */
static __m512i window_order(size_t stride, size_t dilation)
{
    uint8_t order[64];
    for (size_t p = 0; p < 16; p++)
        for (size_t t = 0; t < QK_DEPTHWISE_TAPS; t++)
            order[QK_DEPTHWISE_TAPS * p + t] = (uint8_t)(p * stride + t * dilation);
    return _mm512_loadu_si512(order);
}

static inline __m512i broadcast_taps(const uint8_t *taps)
{
    int32_t word;
    memcpy(&word, taps, sizeof(word));
    return _mm512_set1_epi32(word);
}

/* sums[v] = sum over cells of window * taps; inlined with constant vectors. */
__attribute__((always_inline)) static inline void
sum_block(const struct qk_depthwise_job *job, const uint8_t *taps, __m512i order, size_t first,
          const size_t vectors, __m512i sums[NV])
{
    const uint8_t *planes = job->planes + first * job->stride;
    const size_t step = 16 * job->stride;
#pragma GCC unroll 4
    for (size_t v = 0; v < NV; v++)
        sums[v] = _mm512_setzero_si512();
    for (size_t i = 0; i < job->cells; i++) {
        const uint8_t *from = planes + job->offsets[i];
        const __m512i weights = broadcast_taps(taps + i * QK_DEPTHWISE_TAPS);
#pragma GCC unroll 4
        for (size_t v = 0; v < vectors; v++) {
            const __m512i x =
                _mm512_permutexvar_epi8(order, _mm512_loadu_si512(from + v * step));
            sums[v] = _mm512_dpbusd_epi32(sums[v], x, weights);
        }
    }
}

__attribute__((always_inline)) static inline void
run_block(const struct qk_depthwise_job *job, const struct qk_conv_block *block, __m512i order,
          const struct qk_requantize_512 *to, const size_t vectors)
{
    __m512i sums[NV];
    sum_block(job, job->weights, order, block->first, vectors, sums);
    if (job->w_zero_point != 0) {
        const __m512i zero_point = _mm512_set1_epi32(job->w_zero_point);
        __m512i of_x[NV];
        sum_block(job, job->ones, order, block->first, vectors, of_x);
#pragma GCC unroll 4
        for (size_t v = 0; v < vectors; v++)
            sums[v] = _mm512_sub_epi32(sums[v], _mm512_mullo_epi32(of_x[v], zero_point));
    }
    qk_store_kept(job->y + block->before, qk_requantize_64(to, sums, job->bias, job->multiplier),
                  block->keep);
}

void qk_depthwise_vnni(const struct qk_depthwise_job *job)
{
    const __m512i order = window_order(job->stride, job->dilation);
    const struct qk_requantize_512 to = qk_requantize_512_from(job->requantize, job->y_signed);
    for (size_t i = 0; i < job->block_count; i++) {
        const struct qk_conv_block *block = &job->blocks[i];
        if (block->vectors == 4)
            run_block(job, block, order, &to, 4);
        else if (block->vectors == 3)
            run_block(job, block, order, &to, 3);
        else if (block->vectors == 2)
            run_block(job, block, order, &to, 2);
        else
            run_block(job, block, order, &to, 1);
    }
}

#endif
