/* The operations of kernel_8.h in YMM registers, for depthwise kernels with vectors of 8 lanes.
 * Only for kernel_avx2.c and kernel_ymm_u8s8.h. PLACE, store_quads, store_weights and add_products
 * (kernel_8.h) must be defined before this file is included, for __m256i and __m128i. A file that
 * defines SUM_LANES has all operations on sums in wider registers. */
#pragma once

/* Only x86 defines this macro, and only for files with these suffixes. */
#ifdef __AVX2__

#include "kernels/conv/requantize_avx2.h"

#define HALF(buffer_bytes) ((buffer_bytes) / 2)

typedef __m128i bytes_16;
typedef __m256i bytes_32;

static inline bytes_16 load_16(const uint8_t *from)
{
    return _mm_loadu_si128((const void *)from);
}

static inline const uint8_t *base_of(const uint8_t *quads)
{
    return quads;
}

static inline bytes_32 load_32(const uint8_t *from)
{
    return _mm256_loadu_si256((const void *)from);
}

static inline bytes_32 splat_32(uint8_t byte)
{
    return _mm256_set1_epi8((char)byte);
}

static inline bytes_32 twice_16(bytes_16 bytes)
{
    return _mm256_broadcastsi128_si256(bytes);
}

static inline bytes_32 join_16(bytes_16 low, bytes_16 high)
{
    return _mm256_set_m128i(high, low);
}

static inline bytes_32 permute_32(bytes_32 bytes, bytes_32 order, bytes_32 flip)
{
    return _mm256_xor_si256(_mm256_shuffle_epi8(bytes, order), flip);
}

#ifndef SUM_LANES
#define SUM_LANES 8

typedef __m256i lane_taps;
typedef __m256i lane_sums;

static inline __m256i load_quads(const uint8_t *from)
{
    return load_32(from);
}

static inline lane_taps splat_taps(int32_t taps)
{
    return _mm256_set1_epi32(taps);
}

static inline lane_sums splat_sum(int32_t sum)
{
    return _mm256_set1_epi32(sum);
}

static inline void requantize_4(const struct qk_requantize *to, const lane_sums sums[4],
                                float multiplier, uint8_t bytes[32])
{
    _mm256_storeu_si256((void *)bytes, qk_requantize_32(to, sums, multiplier));
}
#endif

#include "kernels/conv/depthwise/kernel_8.h"

/* The `sum` of struct qk_depthwise. VPSADBW adds up unsigned bytes, so 128 is added to each weight
 * first and subtracted at the end. */
static void sum_weights(const uint8_t *weights, size_t channels, size_t depth, int32_t *sums)
{
    const __m128i index = _mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m128i flip = _mm_set1_epi8((char)0x80);
    for (size_t m = 0; m < channels; m++, weights += depth) {
        __m128i sum = _mm_setzero_si128(); /* of weights made unsigned */
        for (size_t i = 0; i < depth; i += sizeof(sum)) {
            const size_t left = qk_size_min(depth - i, sizeof(sum));
            const __m128i there = _mm_cmpgt_epi8(_mm_set1_epi8((char)left), index);
            const __m128i bytes = _mm_loadu_si128((const void *)(weights + i));
            sum = _mm_add_epi64(sum, _mm_sad_epu8(_mm_and_si128(_mm_xor_si128(bytes, flip), there),
                                                  _mm_setzero_si128()));
        }
        sum = _mm_add_epi64(sum, _mm_unpackhi_epi64(sum, sum));
        sums[m] = (int32_t)((uint32_t)_mm_cvtsi128_si32(sum) - 128 * (uint32_t)depth);
    }
}

#endif
