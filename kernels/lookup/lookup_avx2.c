/* Lookups with AVX2, which looks up 16 entries at a time.
 *
 * VPSHUFB takes the entry that the lowest 4 bits of a byte name, or 0 if bit 7 is set. The table
 * falls into halves of 8 rows of 16 entries. In a half, byte x is decreased by 16 for each row,
 * with saturation, so row r contributes as long as 16 * r <= x. Row r holds the exclusive or of
 * itself and row r - 1. The exclusive or of all contributions is then the entry of the last row
 * that contributes. Bytes of the other half have bit 7 set in all rows, and contribute nothing. */
#include "kernels/lookup/lookup.h"

#ifdef __x86_64__

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))

enum { HALF_COUNT = 2, ROWS = 8, ROW_ENTRIES = 16, CHUNK = 32 };

struct rows {
    __m256i rows[HALF_COUNT][ROWS];
};

/* Reads the rows of the table, each twice. */
INLINE void read_rows(const struct qk_lookup_table *table, struct rows *rows)
{
    for (size_t half = 0; half < HALF_COUNT; half++) {
        __m128i before = _mm_setzero_si128();
        for (size_t r = 0; r < ROWS; r++) {
            const uint8_t *entries = &table->entries[(half * ROWS + r) * ROW_ENTRIES];
            const __m128i row = _mm_load_si128((const __m128i *)entries);
            rows->rows[half][r] = _mm256_broadcastsi128_si256(_mm_xor_si128(row, before));
            before = row;
        }
    }
}

INLINE __m256i look_up(const struct rows *rows, __m256i x)
{
    const __m256i sixteen = _mm256_set1_epi8(ROW_ENTRIES);
    __m256i low = x;
    __m256i high = _mm256_xor_si256(x, _mm256_set1_epi8(-128));
    __m256i y = _mm256_setzero_si256();
#pragma GCC unroll 8
    for (size_t r = 0; r < ROWS; r++) {
        y = _mm256_xor_si256(y, _mm256_shuffle_epi8(rows->rows[0][r], low));
        y = _mm256_xor_si256(y, _mm256_shuffle_epi8(rows->rows[1][r], high));
        low = _mm256_subs_epi8(low, sixteen);
        high = _mm256_subs_epi8(high, sixteen);
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
        const __m256i made = look_up(&rows, _mm256_loadu_si256((const __m256i *)(x + i)));
        if (stream) {
            __builtin_prefetch((const char *)x + i + QK_LOOKUP_PREFETCH_BYTES);
            _mm256_stream_si256((__m256i *)(y + i), made);
        } else {
            _mm256_storeu_si256((__m256i *)(y + i), made);
        }
    }
    for (; i < count; i++)
        y[i] = table->entries[x[i]];
}

static void finish(void)
{
    _mm_sfence();
}

const struct qk_lookup_kernel qk_lookup_kernel__avx2 = {"lookup_avx2", lookup, 0.45, finish};

#endif
