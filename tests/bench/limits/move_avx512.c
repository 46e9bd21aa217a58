#include "tests/bench/limits/move_loop.h"

#if defined(__AVX512F__)

#include <immintrin.h>

BENCH_INLINE void step(const uint8_t *from, const uint8_t *second, uint8_t *to, size_t loads,
                       size_t stores, bool stream)
{
    __m512i v = _mm512_load_si512(from);
    for (size_t i = 1; i < loads; i++) {
        __asm__ volatile("" : : "v"(v)); /* keeps the load */
        v = _mm512_load_si512(from + i * sizeof(v));
    }
    for (size_t i = 0; second && i < loads; i++) {
        __asm__ volatile("" : : "v"(v));
        v = _mm512_load_si512(second + i * sizeof(v));
    }
    if (stores == 0)
        __asm__ volatile("" : : "v"(v));
    for (size_t i = 0; i < stores; i++)
        if (stream)
            _mm512_stream_si512((void *)(to + i * sizeof(v)), v);
        else
            _mm512_store_si512(to + i * sizeof(v), v);
}

static void move(const uint8_t *x, const uint8_t *second, uint8_t *y, size_t x_bytes, int doublings,
                 bool stream)
{
    if (stream) {
        bench_move_loop(step, sizeof(__m512i), x, second, y, x_bytes, doublings, true);
        _mm_sfence();
    } else
        bench_move_loop(step, sizeof(__m512i), x, second, y, x_bytes, doublings, false);
}

bench_move_fn *bench_move_avx512(void)
{
    return move;
}

#else

bench_move_fn *bench_move_avx512(void)
{
    return NULL;
}

#endif
