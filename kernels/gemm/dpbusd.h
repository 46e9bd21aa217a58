/* VPDPBUSD in loops: multiplies u8 by s8 and adds four products to a sum, modulo 2^32 (the form
 * without saturation). Only for files that are compiled for this instruction.
 *
 * The instruction overwrites the sums that it adds to. If several vectors of sums have the same
 * value before a loop, such as 0, GCC 12 keeps them in other registers than those that the
 * instruction overwrites. It then copies each vector twice in each pass: before the instruction and
 * after it. An empty asm hides where a value comes from, which prevents these copies. */
#pragma once

#if defined(__AVX512VNNI__) || defined(__AVXVNNI__)
#include <immintrin.h>
#endif

#ifdef __AVX512VNNI__
/* Hides where sums come from. After a loop, this is as good as qk_dpbusd in it. */
static inline void qk_hide_origin(__m512i *sums)
{
    __asm__("" : "+v"(*sums));
}

static inline __m512i qk_dpbusd(__m512i sums, __m512i x, __m512i w)
{
    sums = _mm512_dpbusd_epi32(sums, x, w);
    qk_hide_origin(&sums);
    return sums;
}
#endif

#ifdef __AVXVNNI__
static inline __m256i qk_dpbusd_avx(__m256i sums, __m256i x, __m256i w)
{
    sums = _mm256_dpbusd_avx_epi32(sums, x, w);
    __asm__("" : "+x"(sums));
    return sums;
}
#endif
