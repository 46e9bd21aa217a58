/* Products by rows whose sums become bytes of y in registers (struct qk_igemm_bytes), with YMM
 * vectors of 8 positions. Only for igemm_6x16_avx2.c, which defines `add_products` and includes
 * igemm_ymm.h first. */
#pragma once

/* The Makefile sets this on x86 only, for files with these suffixes. */
#ifdef __AVX2__

#include "kernels/gemm/igemm.h"
#include "kernels/gemm/igemm_ymm.h"

/* Scales and rounds 8 sums. */
static inline __m256i scale_sums(__m256i sums, __m256 multiplier)
{
    return _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_cvtepi32_ps(sums), multiplier));
}

/* Stores the first `count` of 16 bytes. */
static inline void store_first(uint8_t *y, __m128i bytes, size_t count)
{
    if (count >= 8) {
        _mm_storel_epi64((void *)y, bytes);
        bytes = _mm_unpackhi_epi64(bytes, bytes);
        y += 8;
    }
    uint64_t left = (uint64_t)_mm_cvtsi128_si64(bytes);
    for (size_t size = 4; size > 0; size /= 2)
        if (count & size) {
            memcpy(y, &left, size);
            left >>= 8 * size;
            y += size;
        }
}

/* Stores the bytes of `count` positions of each row: up to 16 or, if `vectors` is 1, up to 8.
 * Vectors saturate to unsigned bytes. A signed y is computed as an unsigned one that is 128 too
 * large, and `flip` then subtracts the 128. Packing makes the bytes of two rows at a time. It works
 * within each 16-byte half of a vector, so the last step puts groups of 4 bytes in order. */
__attribute__((always_inline)) static inline void
store_bytes(const struct qk_igemm_args *args, size_t first, size_t count, __m256i sums[MR][NV],
            const size_t rows, const size_t vectors)
{
    const struct qk_igemm_bytes *to = args->bytes;
    const int32_t offset = to->is_signed ? 128 : 0;
    const __m256i flip = _mm256_set1_epi8((char)offset);
    const __m256i zero_point = _mm256_set1_epi16((int16_t)(to->zero_point + offset));
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    uint8_t *y = to->y + first;
#pragma GCC unroll 3
    for (size_t r = 0; r < rows; r += 2, y += 2 * to->y_stride) {
        const bool both = r + 2 <= args->rows;
        __m256i words[2];
#pragma GCC unroll 2
        for (size_t i = 0; i < 2; i++) {
            const __m256 multiplier = _mm256_broadcast_ss(to->multiplier + r + (both ? i : 0));
            const __m256i low = scale_sums(sums[r + i][0], multiplier);
            const __m256i high = vectors > 1 ? scale_sums(sums[r + i][1], multiplier) : low;
            words[i] = _mm256_adds_epi16(_mm256_packs_epi32(low, high), zero_point);
        }
        const __m256i bytes = _mm256_xor_si256(
            flip, _mm256_permutevar8x32_epi32(_mm256_packus_epi16(words[0], words[1]), order));
        const __m128i even = _mm256_castsi256_si128(bytes),
                      odd = _mm256_extracti128_si256(bytes, 1);
        if (count == QK_IGEMM_VECTOR) {
            _mm_storeu_si128((void *)y, even);
            if (both)
                _mm_storeu_si128((void *)(y + to->y_stride), odd);
        } else {
            store_first(y, even, count);
            if (both)
                store_first(y + to->y_stride, odd, count);
        }
    }
}

/* Computes the bytes of `count` positions of `rows` rows. The panel may lack the last row. Its
 * bytes are not stored, and any bias serves it. */
__attribute__((always_inline)) static inline void requantize_tile(const struct qk_igemm_args *args,
                                                                  size_t first, size_t count,
                                                                  const size_t rows,
                                                                  const size_t vectors)
{
    const bool lacks_last = args->rows < rows;
    __m256i sums[MR][NV];
#pragma GCC unroll 6
    for (size_t r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (size_t v = 0; v < vectors; v++)
            sums[r][v] = _mm256_set1_epi32(args->bytes->bias[r + 1 == rows && lacks_last ? 0 : r]);
    add_tile(args, first, sums, rows, vectors);
    store_bytes(args, first, count, sums, rows, vectors);
}

/* Computes the bytes of `count` last positions, each in a vector of rows. Inlined with a constant
 * `count`. */
__attribute__((always_inline)) static inline void requantize_last(const struct qk_igemm_args *args,
                                                                  size_t first, const size_t count)
{
    const struct qk_igemm_bytes *to = args->bytes;
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i there = _mm256_cmpgt_epi32(_mm256_set1_epi32((int)args->rows), lane);
    const __m256i bias = _mm256_maskload_epi32(to->bias, there);
    const __m256 multiplier = _mm256_maskload_ps(to->multiplier, there);
    const int32_t offset = to->is_signed ? 128 : 0;
    __m256i sums[LAST_MOST] = {bias, bias};
    add_last(args, first, sums, count);
    const __m256i packed =
        _mm256_packs_epi32(scale_sums(sums[0], multiplier), scale_sums(sums[1], multiplier));
    const __m256i words =
        _mm256_adds_epi16(packed, _mm256_set1_epi16((int16_t)(to->zero_point + offset)));
    uint8_t bytes[2 * QK_IGEMM_VECTOR]; /* in each half, those of four rows of each position */
    _mm256_storeu_si256((void *)bytes, _mm256_xor_si256(_mm256_packus_epi16(words, words),
                                                        _mm256_set1_epi8((char)offset)));
    for (size_t r = 0; r < args->rows; r++)
        for (size_t p = 0; p < count; p++)
            to->y[r * to->y_stride + first + p] = bytes[r / 4 * 16 + p * 4 + r % 4];
}

__attribute__((always_inline)) static inline void requantize_rows(const struct qk_igemm_args *args,
                                                                  const size_t rows)
{
    const size_t last = args->positions % LANES;
    const size_t alone = last <= LAST_MOST ? last : 0;
    const size_t positions = args->positions - alone;
    size_t first = 0;
    for (; first + QK_IGEMM_VECTOR <= positions; first += QK_IGEMM_VECTOR)
        requantize_tile(args, first, QK_IGEMM_VECTOR, rows, NV);
    if (positions - first > LANES)
        requantize_tile(args, first, positions - first, rows, NV);
    else if (positions > first)
        requantize_tile(args, first, positions - first, rows, 1);
    if (alone == 1)
        requantize_last(args, positions, 1);
    else if (alone > 1)
        requantize_last(args, positions, LAST_MOST);
}

/* Rounds the number of rows up to an even number, like multiply_panel. */
static void requantize_panel(const struct qk_igemm_args *args)
{
    if (args->rows > 4)
        requantize_rows(args, 6);
    else if (args->rows > 2)
        requantize_rows(args, 4);
    else
        requantize_rows(args, 2);
}

#endif
