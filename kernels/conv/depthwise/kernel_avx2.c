/* Depthwise convolutions with VPMADDWD, which multiplies words and adds two products to a sum. The
 * words are x, and weights less their zero point. No sum of two products saturates
 * (kernels/gemm/igemm_6x16_avx2.c). */
#include "kernels/conv/depthwise/depthwise.h"

#ifdef __x86_64__

#include <immintrin.h>

/* The byte of a quad that each tap gets. The even bytes become the words of one half of the channel
 * buffer, the odd bytes those of the other half. */
static const uint8_t PLACE[QK_DEPTHWISE_TAPS] = {0, 2, 1, 3};

static inline void store_quads(uint8_t *to, size_t half, __m256i bytes)
{
    _mm256_storeu_si256((void *)to, _mm256_and_si256(bytes, _mm256_set1_epi16(0xff)));
    _mm256_storeu_si256((void *)(to + half), _mm256_srli_epi16(bytes, 8));
}

static inline void store_weights(uint8_t *to, __m128i dense, __m128i order, size_t words,
                                 int32_t zero_point)
{
    (void)words;
    const __m256i none = _mm256_srai_epi16(_mm256_cvtepi8_epi16(order), 15);
    const __m256i weights = _mm256_cvtepi8_epi16(_mm_shuffle_epi8(dense, order));
    const __m256i less = _mm256_andnot_si256(none, _mm256_set1_epi16((int16_t)zero_point));
    _mm256_storeu_si256((void *)to, _mm256_sub_epi16(weights, less));
}

static inline __m256i add_products(__m256i sums, __m256i x, __m256i w)
{
    return _mm256_add_epi32(sums, _mm256_madd_epi16(x, w));
}

#include "kernels/conv/depthwise/kernel_ymm.h"

static void run_words(const struct qk_depthwise_job *job)
{
    run_unit(job, 2);
}

const struct qk_depthwise qk_depthwise_s16s16_1x32__avx2 = {
    .kernel = "conv_depthwise_avx2",
    .load_bytes = LOAD,
    .cycles = 3,
    .run = {[QK_EPILOGUE_BYTES] = run_words},
    .sum = sum_weights,
};

#endif
