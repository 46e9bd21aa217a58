/* Finds wide weights (igemm.h) with vectors. For the kernels of products by VPMADDUBSW. */
#pragma once

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Returns a mask of the 16-bit words of 8 quads that have wide pairs: the positive weights of the
 * pair add up to more than 128, or the negative weights to less than -128. */
static inline __m256i find_wide_pairs(__m256i quads)
{
    const __m256i zero = _mm256_setzero_si256();
    const __m256i all_ones = _mm256_set1_epi8(1);
    const __m256i most = _mm256_set1_epi16(128);
    /* Negative weights are negated, so that -128 becomes an unsigned 128. VPMADDUBSW adds two
     * unsigned bytes. */
    const __m256i up = _mm256_maddubs_epi16(_mm256_max_epi8(quads, zero), all_ones);
    const __m256i down =
        _mm256_maddubs_epi16(_mm256_sub_epi8(zero, _mm256_min_epi8(quads, zero)), all_ones);
    return _mm256_or_si256(_mm256_cmpgt_epi16(up, most), _mm256_cmpgt_epi16(down, most));
}

/* Returns the first `count` of up to 8 bytes, xored with `flip`. Other bytes may be anything. Never
 * reads at or beyond `end`. */
static inline __m128i load_taps(const uint8_t *from, size_t count, const uint8_t *end, uint8_t flip)
{
    uint64_t bytes = 0;
    if (end - from >= (ptrdiff_t)sizeof(bytes))
        memcpy(&bytes, from, sizeof(bytes));
    else
        memcpy(&bytes, from, count);
    return _mm_xor_si128(_mm_cvtsi64_si128((long long)bytes), _mm_set1_epi8((char)flip));
}

/* Counts the wide quads of four channels. A vector has up to 8 taps of two channels in each half.
 */
static inline size_t count_wide_taps(const uint8_t *from, size_t channels, size_t taps,
                                     const uint8_t *end, uint8_t flip)
{
    size_t found = 0;
    for (size_t tap = 0; tap < taps; tap += 8) {
        const size_t count = taps - tap < 8 ? taps - tap : 8;
        __m128i v[4];
        for (size_t i = 0; i < 4; i++)
            v[i] = i < channels ? load_taps(from + i * taps + tap, count, end, flip)
                                : _mm_setzero_si128();
        const __m256i wide = find_wide_pairs(
            _mm256_set_m128i(_mm_unpacklo_epi8(v[2], v[3]), _mm_unpacklo_epi8(v[0], v[1])));
        const __m128i either =
            _mm_or_si128(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1));
        const int mask = _mm_movemask_epi8(_mm_packs_epi16(either, _mm_setzero_si128()));
        found += (size_t)__builtin_popcount((unsigned)mask & ((1U << count) - 1));
    }
    return found;
}

/* `count_wide` of the kernels. */
static inline size_t count_wide(const uint8_t *row, size_t channels, size_t taps, uint8_t flip)
{
    const uint8_t *end = row + channels * taps;
    size_t found = 0, channel = 0;
    const __m256i flips = _mm256_set1_epi8((char)flip);
    for (; taps == 1 && channels - channel >= 32; channel += 32) {
        const __m256i quads = _mm256_loadu_si256((const void *)(row + channel));
        const __m256i wide = find_wide_pairs(_mm256_xor_si256(quads, flips));
        const __m256i narrow = _mm256_cmpeq_epi32(wide, _mm256_setzero_si256());
        found += 8 - (size_t)__builtin_popcount(
                         (unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(narrow)));
    }
    for (; channel < channels; channel += 4)
        found += count_wide_taps(row + channel * taps, channels - channel, taps, end, flip);
    return found;
}

/* Returns a mask of the first `count` of 8 lanes; of all lanes if `count` is larger. */
static inline __m256i first_lanes(int count)
{
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), lane);
}
