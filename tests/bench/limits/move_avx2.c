#include "tests/bench/limits/move_loop.h"

#if defined(__AVX2__)

#include <immintrin.h>

BENCH_INLINE void step(const uint8_t *from, const uint8_t *second, uint8_t *to, size_t loads,
                       size_t stores, bool stream)
{
    __m256i v = _mm256_load_si256((const __m256i *)from);
    for (size_t i = 1; i < loads; i++) {
        __asm__ volatile("" : : "x"(v)); /* keeps the load */
        v = _mm256_load_si256((const __m256i *)from + i);
    }
    for (size_t i = 0; second && i < loads; i++) {
        __asm__ volatile("" : : "x"(v));
        v = _mm256_load_si256((const __m256i *)second + i);
    }
    if (stores == 0)
        __asm__ volatile("" : : "x"(v));
    for (size_t i = 0; i < stores; i++)
        if (stream)
            _mm256_stream_si256((__m256i *)to + i, v);
        else
            _mm256_store_si256((__m256i *)to + i, v);
}

static void move(const uint8_t *x, const uint8_t *second, uint8_t *y, size_t x_bytes, int doublings,
                 bool stream)
{
    if (stream) {
        bench_move_loop(step, sizeof(__m256i), x, second, y, x_bytes, doublings, true);
        _mm_sfence();
    } else
        bench_move_loop(step, sizeof(__m256i), x, second, y, x_bytes, doublings, false);
}

bench_move_fn *bench_move_avx2(void)
{
    return move;
}

#else

bench_move_fn *bench_move_avx2(void)
{
    return NULL;
}

#endif
