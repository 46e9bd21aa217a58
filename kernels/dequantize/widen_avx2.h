/* Converts scales to FP32, eight at a time, and ends stores past the caches, for the AVX2 and
 * AVX-512 kernels. Only for dequantize_avx2.c and dequantize_avx512bw.c. */
#pragma once

/* The Makefile sets this on x86 only, for files with these suffixes. */
#ifdef __AVX2__

/* Returns eight scales as FP32. */
INLINE __m256 widened(enum qk_type type, const uint8_t *from)
{
    if (type == QK_FP16)
        return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)from));
    if (type == QK_BF16)
        return _mm256_castsi256_ps(
            _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)from)), 16));
    const __m256i codes = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)from));
    const __m256i is_nan = _mm256_cmpeq_epi32(codes, _mm256_set1_epi32(0xff));
    const __m256i is_least = _mm256_cmpeq_epi32(codes, _mm256_setzero_si256());
    const __m256i specials = _mm256_or_si256(
        _mm256_and_si256(is_nan, _mm256_set1_epi32(0x7fc00000)),
        _mm256_and_si256(is_least, _mm256_set1_epi32(0x00400000))); /* 2^-127, a subnormal */
    return _mm256_castsi256_ps(_mm256_or_si256(_mm256_slli_epi32(codes, 23), specials));
}

INLINE void store_widened(float *to, enum qk_type type, const uint8_t *from)
{
    _mm256_storeu_ps(to, widened(type, from));
}

/* Makes results that were stored past the caches visible to other threads. */
INLINE void end_streaming(void)
{
    _mm_sfence();
}

#endif
