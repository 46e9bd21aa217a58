#include "kernels/dequantize/dequantize.h"

/* Nothing but x86 sets this, and only for the files of this suffix. */
#ifdef __AVX2__

#include <immintrin.h>

#define LANES 8

/* qk_dequantize_one, eight times: a wrapping subtraction, and two steps that round once each. */
static inline void dequantize_eight(__m256i x, __m256i zero_point, __m256 scale, float *y)
{
    __m256 difference = _mm256_cvtepi32_ps(_mm256_sub_epi32(x, zero_point));
    _mm256_storeu_ps(y, _mm256_mul_ps(difference, scale));
}

static void u8(const void *x, size_t count, int32_t zero_point, float scale, float *y)
{
    const uint8_t *in = x;
    const __m256i zero_points = _mm256_set1_epi32(zero_point);
    const __m256 scales = _mm256_set1_ps(scale);
    size_t i = 0;
    for (; count - i >= LANES; i += LANES) {
        __m128i bytes = _mm_loadl_epi64((const __m128i *)(in + i));
        dequantize_eight(_mm256_cvtepu8_epi32(bytes), zero_points, scales, y + i);
    }
    qk_dequantize_u8__scalar(in + i, count - i, zero_point, scale, y + i);
}

static void s8(const void *x, size_t count, int32_t zero_point, float scale, float *y)
{
    const int8_t *in = x;
    const __m256i zero_points = _mm256_set1_epi32(zero_point);
    const __m256 scales = _mm256_set1_ps(scale);
    size_t i = 0;
    for (; count - i >= LANES; i += LANES) {
        __m128i bytes = _mm_loadl_epi64((const __m128i *)(in + i));
        dequantize_eight(_mm256_cvtepi8_epi32(bytes), zero_points, scales, y + i);
    }
    qk_dequantize_s8__scalar(in + i, count - i, zero_point, scale, y + i);
}

static void s32(const void *x, size_t count, int32_t zero_point, float scale, float *y)
{
    const char *in = x; /* may be unaligned: steps in bytes */
    const __m256i zero_points = _mm256_set1_epi32(zero_point);
    const __m256 scales = _mm256_set1_ps(scale);
    size_t i = 0;
    for (; count - i >= LANES; i += LANES) {
        __m256i values = _mm256_loadu_si256((const __m256i *)(in + i * sizeof(int32_t)));
        dequantize_eight(values, zero_points, scales, y + i);
    }
    qk_dequantize_s32__scalar(in + i * sizeof(int32_t), count - i, zero_point, scale, y + i);
}

void qk_dequantize_init_avx2(struct qk_dequantize_kernels *kernels)
{
    kernels->name = "dequantize_avx2";
    kernels->u8 = u8;
    kernels->s8 = s8;
    kernels->s32 = s32;
}

#endif
