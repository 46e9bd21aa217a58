/* Lookups with AVX-512BW, in the way of lookup_avx2.c: VPSHUFB looks up 64 bytes in 16 entries. */
#include "kernels/lookup/lookup.h"

#ifdef __x86_64__

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))

enum { HALF_COUNT = 2, ROWS = 8, ROW_ENTRIES = 16, CHUNK = 64 };

struct rows {
    __m512i rows[HALF_COUNT][ROWS];
};

/* Reads the rows of the table, each four times. */
INLINE void read_rows(const struct qk_lookup_table *table, struct rows *rows)
{
#pragma GCC unroll 2
    for (size_t half = 0; half < HALF_COUNT; half++) {
        __m128i before = _mm_setzero_si128();
#pragma GCC unroll 8
        for (size_t r = 0; r < ROWS; r++) {
            const uint8_t *entries = &table->entries[(half * ROWS + r) * ROW_ENTRIES];
            const __m128i row = _mm_load_si128((const __m128i *)entries);
            rows->rows[half][r] = _mm512_broadcast_i32x4(_mm_xor_si128(row, before));
            before = row;
        }
    }
}

INLINE __m512i look_up(const struct rows *rows, __m512i x)
{
    const __m512i sixteen = _mm512_set1_epi8(ROW_ENTRIES);
    __m512i low = x;
    __m512i high = _mm512_xor_si512(x, _mm512_set1_epi8(-128));
    __m512i y = _mm512_setzero_si512();
#pragma GCC unroll 8
    for (size_t r = 0; r < ROWS; r++) {
        y = _mm512_ternarylogic_epi64(y, _mm512_shuffle_epi8(rows->rows[0][r], low),
                                      _mm512_shuffle_epi8(rows->rows[1][r], high), 0x96);
        low = _mm512_subs_epi8(low, sixteen);
        high = _mm512_subs_epi8(high, sixteen);
    }
    return y;
}

static void lookup(const struct qk_lookup_table *table, const uint8_t *x, uint8_t *y, size_t count,
                   bool stream)
{
    struct rows rows;
    size_t i = 0;
    read_rows(table, &rows);
    for (; i + CHUNK <= count; i += CHUNK) {
        const __m512i made = look_up(&rows, _mm512_loadu_si512(x + i));
        if (stream) {
            __builtin_prefetch((const char *)x + i + QK_LOOKUP_PREFETCH_BYTES);
            _mm512_stream_si512((__m512i *)(y + i), made);
        } else {
            _mm512_storeu_si512(y + i, made);
        }
    }
    if (i < count) {
        const __mmask64 rest = ~(__mmask64)0 >> (CHUNK - (count - i));
        _mm512_mask_storeu_epi8(y + i, rest, look_up(&rows, _mm512_maskz_loadu_epi8(rest, x + i)));
    }
}

static void finish(void)
{
    _mm_sfence();
}

const struct qk_lookup_kernel qk_lookup_kernel__avx512bw = {"lookup_avx512bw", lookup, 0.25,
                                                            finish};

#endif
