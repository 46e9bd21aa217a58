/* Depthwise kernels with vectors of 8 lanes whose products take four bytes (VPDPBUSD). Only for
 * kernel_avxvnni.c and kernel_avx512vnni.c, which define `add_products` before they include this
 * file. */
#pragma once

#include "kernels/conv/depthwise/depthwise.h"

/* Only x86 defines this macro, and only for files with these suffixes. */
#ifdef __AVX2__

#include <immintrin.h>

static const uint8_t PLACE[QK_DEPTHWISE_TAPS] = {0, 1, 2, 3};

static inline void store_quads(uint8_t *to, size_t half, __m256i bytes)
{
    (void)half;
    _mm256_storeu_si256((void *)to, bytes);
}

static inline void store_weights(uint8_t *to, __m128i dense, __m128i order, size_t words,
                                 int32_t zero_point)
{
    (void)words, (void)zero_point;
    _mm_storeu_si128((void *)to, _mm_shuffle_epi8(dense, order));
}

#include "kernels/conv/depthwise/kernel_ymm.h"

/* A weight less its zero point may need more than a byte. Such weights are multiplied as words, by
 * the AVX2 kernel. */
static void run_bytes(const struct qk_depthwise_job *job)
{
    if (job->any_zero_point)
        qk_depthwise_s16s16_1x32__avx2.run[QK_EPILOGUE_BYTES](job);
    else
        run_unit(job, 1);
}

#endif
