#include "kernels/conv/depthwise.h"

#ifdef __x86_64__

#include <string.h>

#include "kernels/conv/requantize_avx512.h"

enum { NV = 4 };

static inline __m512i broadcast_taps(const uint8_t *taps)
{
    int32_t word;
    memcpy(&word, taps, sizeof(word));
    return _mm512_set1_epi32(word);
}

/* sums[v] = start + sum over cells of window * taps. This and what calls it is inlined with
 * constant vectors, and cells where there are few. */
__attribute__((always_inline)) static inline void sum_block(const struct qk_depthwise_job *job,
                                                            const uint8_t *taps, int32_t start,
                                                            size_t first, const size_t cells,
                                                            const size_t vectors, __m512i sums[NV])
{
    const uint8_t *planes = job->planes + first * job->stride;
    const size_t step = 16 * job->stride;
    const __m512i order = _mm512_loadu_si512(job->order);
#pragma GCC unroll 4
    for (size_t v = 0; v < NV; v++)
        sums[v] = _mm512_set1_epi32(start);
#pragma GCC unroll 3
    for (size_t i = 0; i < cells; i++) {
        const uint8_t *from = planes + job->offsets[i];
        const __m512i weights = broadcast_taps(taps + i * QK_DEPTHWISE_TAPS);
#pragma GCC unroll 4
        for (size_t v = 0; v < vectors; v++) {
            const __m512i x = _mm512_permutexvar_epi8(order, _mm512_loadu_si512(from + v * step));
            sums[v] = _mm512_dpbusd_epi32(sums[v], x, weights);
        }
    }
}

__attribute__((always_inline)) static inline void
run_block(const struct qk_depthwise_job *job, const struct qk_conv_block *block,
          const struct qk_requantize_512 *to, const size_t cells, const size_t vectors)
{
    __m512i sums[NV];
    sum_block(job, job->weights, job->bias, block->first, cells, vectors, sums);
    if (job->w_zero_point != 0) {
        const __m512i zero_point = _mm512_set1_epi32(job->w_zero_point);
        __m512i of_x[NV];
        sum_block(job, job->ones, 0, block->first, cells, vectors, of_x);
#pragma GCC unroll 4
        for (size_t v = 0; v < vectors; v++)
            sums[v] = _mm512_sub_epi32(sums[v], _mm512_mullo_epi32(of_x[v], zero_point));
    }
    qk_store_kept(job->y + block->before, qk_requantize_64(to, sums, job->multiplier), block->keep);
}

__attribute__((always_inline)) static inline void run_blocks(const struct qk_depthwise_job *job,
                                                             const size_t cells)
{
    const struct qk_requantize_512 to = qk_requantize_512_from(job->requantize, job->y_signed);
    for (size_t i = 0; i < job->block_count; i++) {
        const struct qk_conv_block *block = &job->blocks[i];
        if (block->vectors == 4)
            run_block(job, block, &to, cells, 4);
        else if (block->vectors == 3)
            run_block(job, block, &to, cells, 3);
        else if (block->vectors == 2)
            run_block(job, block, &to, cells, 2);
        else
            run_block(job, block, &to, cells, 1);
    }
}

void qk_depthwise_vnni(const struct qk_depthwise_job *job)
{
    if (job->cells == 3)
        run_blocks(job, 3);
    else
        run_blocks(job, job->cells);
}

#endif
