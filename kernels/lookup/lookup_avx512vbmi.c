/* Lookups with AVX-512 VBMI: VPERMI2B looks up 64 bytes in 128 entries, so two of them make the
 * whole table, and bit 7 of x chooses between their results. */
#include "kernels/lookup/lookup.h"

#ifdef __x86_64__

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))

enum { CHUNK = 64 };

struct quarters {
    __m512i a, b, c, d;
};

INLINE __m512i look_up(const struct quarters *table, __m512i x)
{
    const __m512i low = _mm512_permutex2var_epi8(table->a, x, table->b);
    const __m512i high = _mm512_permutex2var_epi8(table->c, x, table->d);
    return _mm512_mask_mov_epi8(low, _mm512_movepi8_mask(x), high);
}

static void lookup(const struct qk_lookup_table *table, const uint8_t *x, uint8_t *y, size_t count,
                   bool stream)
{
    const uint8_t *entries = table->entries;
    const struct quarters quarters = {_mm512_load_si512(entries), _mm512_load_si512(entries + 64),
                                      _mm512_load_si512(entries + 128),
                                      _mm512_load_si512(entries + 192)};
    size_t i = 0;
    for (; i + CHUNK <= count; i += CHUNK) {
        const __m512i made = look_up(&quarters, _mm512_loadu_si512(x + i));
        if (stream) {
            __builtin_prefetch((const char *)x + i + QK_LOOKUP_PREFETCH_BYTES);
            _mm512_stream_si512((__m512i *)(y + i), made);
        } else {
            _mm512_storeu_si512(y + i, made);
        }
    }
    if (i < count) {
        const __mmask64 rest = ~(__mmask64)0 >> (CHUNK - (count - i));
        _mm512_mask_storeu_epi8(y + i, rest,
                                look_up(&quarters, _mm512_maskz_loadu_epi8(rest, x + i)));
    }
}

static void finish(void)
{
    _mm_sfence();
}

const struct qk_lookup_kernel qk_lookup_kernel__avx512vbmi = {"lookup_avx512vbmi", lookup, 0.06,
                                                              finish};

#endif
