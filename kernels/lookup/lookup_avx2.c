/* Lookups with AVX2, which looks up 16 entries at a time.
 *
 * VPSHUFB takes the entry that the lowest 4 bits of a byte name, or 0 if bit 7 is set. The table
 * falls into halves of 8 rows of 16 entries. Bytes of the other half have bit 7 set in all rows,
 * and contribute nothing. There are two ways to choose among the 8 rows:
 *
 * Chains: byte x is decreased by 16 for each row, with saturation, so row r contributes as long as
 * 16 * r <= x. Row r holds the exclusive or of itself and row r - 1. The exclusive or of all
 * contributions is then the entry of the last row that contributes.
 *
 * Blends: bits 4, 5 and 6 choose among neighbours, pairs and fours. This takes 36 instructions for
 * 32 bytes instead of 46. Zen 3 looks up 8.4 bytes a ns so, and 6.1 with chains. But Intel's CPUs
 * need two or three operations for VPBLENDVB, on Haswell both on the port that also has VPSHUFB. */
#include "kernels/lookup/lookup.h"

#ifdef __x86_64__

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))

enum { HALF_COUNT = 2, ROWS = 8, ROW_ENTRIES = 16, CHUNK = 32 };

struct rows {
    __m256i rows[HALF_COUNT][ROWS];
};

/* Reads the rows of the table, each into both halves of a vector. With `chains`, a row holds the
 * exclusive or of itself and the row before. */
INLINE void read_rows(const struct qk_lookup_table *table, bool chains, struct rows *rows)
{
    for (size_t half = 0; half < HALF_COUNT; half++) {
        __m128i before = _mm_setzero_si128();
        for (size_t r = 0; r < ROWS; r++) {
            const uint8_t *entries = &table->entries[(half * ROWS + r) * ROW_ENTRIES];
            const __m128i row = _mm_load_si128((const __m128i *)entries);
            rows->rows[half][r] = _mm256_broadcastsi128_si256(_mm_xor_si128(row, before));
            before = chains ? row : before;
        }
    }
}

INLINE __m256i look_up_by_chains(const struct rows *rows, __m256i x)
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

/* Looks up in row r of both halves. */
INLINE __m256i row_of(const struct rows *rows, size_t r, __m256i low, __m256i high)
{
    return _mm256_or_si256(_mm256_shuffle_epi8(rows->rows[0][r], low),
                           _mm256_shuffle_epi8(rows->rows[1][r], high));
}

INLINE __m256i look_up_by_blends(const struct rows *rows, __m256i x)
{
    const __m256i low = _mm256_and_si256(x, _mm256_set1_epi8((char)0x8f));
    const __m256i high = _mm256_xor_si256(low, _mm256_set1_epi8(-128));
    /* A blend reads bit 7, to which these move bits 6, 5 and 4. */
    const __m256i bit_6 = _mm256_add_epi8(x, x);
    const __m256i bit_5 = _mm256_add_epi8(bit_6, bit_6);
    const __m256i bit_4 = _mm256_add_epi8(bit_5, bit_5);
    __m256i fours[2];
#pragma GCC unroll 2
    for (size_t i = 0; i < 2; i++) {
        const size_t r = 4 * i;
        const __m256i first =
            _mm256_blendv_epi8(row_of(rows, r, low, high), row_of(rows, r + 1, low, high), bit_4);
        const __m256i second = _mm256_blendv_epi8(row_of(rows, r + 2, low, high),
                                                  row_of(rows, r + 3, low, high), bit_4);
        fours[i] = _mm256_blendv_epi8(first, second, bit_5);
    }
    return _mm256_blendv_epi8(fours[0], fours[1], bit_6);
}

INLINE void run(const struct qk_lookup_table *table, const uint8_t *x, uint8_t *y, size_t count,
                bool stream, bool chains)
{
    struct rows rows;
    size_t i = 0;
    read_rows(table, chains, &rows);
    for (; i + CHUNK <= count; i += CHUNK) {
        const __m256i codes = _mm256_loadu_si256((const __m256i *)(x + i));
        const __m256i made =
            chains ? look_up_by_chains(&rows, codes) : look_up_by_blends(&rows, codes);
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

static void lookup(const struct qk_lookup_table *table, const uint8_t *x, uint8_t *y, size_t count,
                   bool stream)
{
    run(table, x, y, count, stream, true);
}

static void lookup_by_blends(const struct qk_lookup_table *table, const uint8_t *x, uint8_t *y,
                             size_t count, bool stream)
{
    run(table, x, y, count, stream, false);
}

static void finish(void)
{
    _mm_sfence();
}

const struct qk_lookup_kernel qk_lookup_kernel__avx2 = {"lookup_avx2", lookup, 0.45, finish};

const struct qk_lookup_kernel qk_lookup_kernel__avx2_blends = {"lookup_avx2", lookup_by_blends,
                                                               0.35, finish};

#endif
