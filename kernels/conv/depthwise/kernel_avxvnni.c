/* VPDPBUSD on vectors of 8 lanes, four products to a sum. */
#include "kernels/conv/depthwise/depthwise.h"

#ifdef __x86_64__

#include <immintrin.h>

enum { PARTS = 1 };

static const uint8_t PLACE[QK_DEPTHWISE_TAPS] = {0, 1, 2, 3};

static inline void store_cells(uint8_t *to, size_t half, __m256i bytes)
{
    (void)half;
    _mm256_storeu_si256((void *)to, bytes);
}

static inline void store_weights(uint8_t *to, __m128i dense, __m128i order, int32_t zero_point)
{
    (void)zero_point;
    _mm_storeu_si128((void *)to, _mm_shuffle_epi8(dense, order));
}

static inline __m256i add_products(__m256i sums, __m256i x, __m256i w)
{
    return _mm256_dpbusd_avx_epi32(sums, x, w);
}

#include "kernels/conv/depthwise/kernel_ymm.h"

/* A weight less its zero point is more than a byte. */
static void run_bytes(const struct qk_depthwise_job *job)
{
    if (job->any_zero_point)
        qk_depthwise_s16s16_1x32__avx2.run(job);
    else
        run_unit(job);
}

const struct qk_depthwise qk_depthwise_u8s8_1x32__avxvnni = {
    .kernel = "conv_depthwise_avxvnni",
    .load_bytes = LOAD,
    .cycles = 2,
    .run = run_bytes,
    .sum = sum_weights,
};

#endif
