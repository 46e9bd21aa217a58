/* Requantizes 64 sums at a time (kernels/conv/requantize.h). For files that are compiled for
 * AVX-512. Private to conv/ and gemm/. */
#pragma once

#include "kernels/conv/requantize.h"

#ifdef __AVX512BW__

#include <immintrin.h>
#include <string.h>

/* struct qk_requantize, with each constant in all lanes of a vector. */
struct qk_requantize_512 {
    __m512 high;
    __m512i zero_point;
    bool is_signed;
};

static inline struct qk_requantize_512 qk_requantize_512_from(const struct qk_requantize *from)
{
    return (struct qk_requantize_512){
        _mm512_set1_ps(from->high),
        _mm512_set1_epi16((int16_t)from->zero_point),
        from->is_signed,
    };
}

/* Scales 16 sums and rounds them to integers. The comment of qk_requantize_scale_8 in
 * requantize_avx2.h says why only `high` is clamped. */
static inline __m512i qk_requantize_scale(__m512i sums, __m512 multiplier, __m512 high)
{
    __m512 value = _mm512_mul_ps(_mm512_cvtepi32_ps(sums), multiplier);
    return _mm512_cvtps_epi32(_mm512_min_ps(high, value));
}

/* Returns true if |multiplier| < 1. Then no scaled sum leaves the range of int32, and not even
 * `high` needs a clamp, because the saturation to a byte does the same. */
static inline bool qk_requantize_saturates(float multiplier)
{
    uint32_t bits;
    memcpy(&bits, &multiplier, sizeof(bits));
    return (bits & 0x7fffffff) <
           0x3f800000; /* compares the bits as integers, because the float units are busy */
}

/* Adds the zero point to up to four vectors of scaled sums, and saturates them to bytes. Packing
 * works within each 16-byte lane of a vector. Lane q of the result therefore has four bytes of each
 * vector of sums, which the caller has to put in order:
 *
 *    lane 0    bytes of sums[0] 0..3, sums[1] 0..3, sums[2] 0..3, sums[3] 0..3
 *    lane 1    bytes of sums[0] 4..7, sums[1] 4..7, ...
 *
 * If there are fewer than four vectors, the bytes of the others may be anything. */
__attribute__((always_inline)) static inline __m512i
qk_requantize_narrow(const struct qk_requantize_512 *to, const __m512i y[4], const size_t vectors)
{
    const __m512i low = _mm512_adds_epi16(_mm512_packs_epi32(y[0], y[1]), to->zero_point);
    const __m512i high =
        vectors > 2 ? _mm512_adds_epi16(_mm512_packs_epi32(y[2], y[3]), to->zero_point) : low;
    return to->is_signed ? _mm512_packs_epi16(low, high) : _mm512_packus_epi16(low, high);
}

/* Puts the bytes of qk_requantize_narrow in order. */
static inline __m512i qk_requantize_in_order(__m512i bytes)
{
    const __m512i order = _mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0);
    return _mm512_permutexvar_epi32(order, bytes);
}

/* Requantizes up to four vectors of 16 sums, which include the bias. The bytes are in the order of
 * qk_requantize_narrow. */
__attribute__((always_inline)) static inline __m512i
qk_requantize_pack(const struct qk_requantize_512 *to, const __m512i sums[], const size_t vectors,
                   float multiplier)
{
    const __m512 multipliers = _mm512_set1_ps(multiplier);
    __m512i y[4];
    if (qk_requantize_saturates(multiplier))
#pragma GCC unroll 4
        for (size_t v = 0; v < 4; v++)
            y[v] = v < vectors
                       ? _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_cvtepi32_ps(sums[v]), multipliers))
                       : y[0];
    else
#pragma GCC unroll 4
        for (size_t v = 0; v < 4; v++)
            y[v] = v < vectors ? qk_requantize_scale(sums[v], multipliers, to->high) : y[0];
    return qk_requantize_narrow(to, y, vectors);
}

/* Returns the permutation that puts packed bytes in order and drops the gaps between rows: rows
 * have `width` positions and begin `pitch` sums apart. Byte i of the result is that of sum i /
 * width * pitch + i % width. If this is not one of the 64 sums, the byte may be anything. */
static inline __m512i qk_requantize_order(size_t width, size_t pitch)
{
    uint8_t bytes[64];
    for (size_t i = 0; i < 64; i++)
        bytes[i] = (uint8_t)i;
    const __m512i each = _mm512_loadu_si512(bytes), gap = _mm512_set1_epi8((char)(pitch - width));
    __m512i lane = each;
    for (size_t row = width; row < 64 && pitch != width; row += width)
        lane = _mm512_mask_add_epi8(lane, _mm512_cmpge_epu8_mask(each, _mm512_set1_epi8((char)row)),
                                    lane, gap);
    /* lane % 16 / 4 * 16 + lane / 16 * 4 + lane % 4, for each byte */
    const __m512i high = _mm512_and_si512(_mm512_slli_epi16(lane, 2), _mm512_set1_epi8(0x30));
    const __m512i low = _mm512_and_si512(_mm512_srli_epi16(lane, 2), _mm512_set1_epi8(0x0c));
    return _mm512_or_si512(_mm512_or_si512(high, low), _mm512_and_si512(lane, _mm512_set1_epi8(3)));
}

/* Requantizes four vectors of sums, and returns the bytes in order. */
static inline __m512i qk_requantize_64(const struct qk_requantize_512 *to, const __m512i sums[4],
                                       float multiplier)
{
    return qk_requantize_in_order(qk_requantize_pack(to, sums, 4, multiplier));
}

/* Stores the bytes whose bit is set in `keep`, one after the other without gaps: bytes a b c d with
 * keep 1101 (bit 0 first) become a b d. */
static inline void qk_store_kept(uint8_t *y, __m512i bytes, uint64_t keep)
{
#ifdef __AVX512VBMI2__
    const uint64_t count = (uint64_t)_mm_popcnt_u64(keep);
    const uint64_t dense = count == 64 ? UINT64_MAX : (UINT64_C(1) << count) - 1;
    if (keep != dense)
        bytes = _mm512_maskz_compress_epi8(keep, bytes);
    _mm512_mask_storeu_epi8(y, dense, bytes);
#else
    /* Each run of set bits takes a masked store of its own. The store begins so far before y that
     * the first byte of the run lands in its place. It writes no other bytes. */
    for (uintptr_t to = (uintptr_t)y; keep != 0;) {
        const uint64_t first = keep & -keep;
        const uint64_t run = keep & ~(keep + first);
        _mm512_mask_storeu_epi8((void *)(to - (uintptr_t)__builtin_ctzll(first)), run, bytes);
        to += (uintptr_t)_mm_popcnt_u64(run);
        keep &= ~run;
    }
#endif
}

#endif
