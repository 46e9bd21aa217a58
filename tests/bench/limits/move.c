#include "kernels/cpu.h"
#include "tests/bench/limits/move_loop.h"

#if defined(__x86_64__)
#include <emmintrin.h>
#define IN_REGISTER "x"
#else
#define IN_REGISTER "w" /* ARM */
#endif

/* 16 bytes, which every 64-bit machine supports. Only x86 has streaming stores here. */
typedef long long vector __attribute__((vector_size(16)));

BENCH_INLINE void step(const uint8_t *from, const uint8_t *second, uint8_t *to, size_t loads,
                       size_t stores, bool stream)
{
    vector v;
    (void)stream;
    for (size_t i = 0; i < loads; i++) {
        v = *((const vector *)from + i);
        __asm__ volatile("" : "+" IN_REGISTER(v)); /* keeps the load; avoids memcpy */
    }
    for (size_t i = 0; second && i < loads; i++) {
        v = *((const vector *)second + i);
        __asm__ volatile("" : "+" IN_REGISTER(v));
    }
    for (size_t i = 0; i < stores; i++) {
#if defined(__x86_64__)
        if (stream) {
            _mm_stream_si128((__m128i *)to + i, v);
            continue;
        }
#endif
        *((vector *)to + i) = v;
    }
}

static void move(const uint8_t *x, const uint8_t *second, uint8_t *y, size_t x_bytes, int doublings,
                 bool stream)
{
    if (stream)
        bench_move_loop(step, sizeof(vector), x, second, y, x_bytes, doublings, true);
    else
        bench_move_loop(step, sizeof(vector), x, second, y, x_bytes, doublings, false);
}

bench_move_fn *bench_move_pick(const char **name)
{
#if defined(__x86_64__)
    if (bench_move_avx512() && qk_cpu_flags() & QK_CPU_AVX512) {
        *name = "avx512";
        return bench_move_avx512();
    }
    if (bench_move_avx2() && qk_cpu_flags() & QK_CPU_AVX2) {
        *name = "avx2";
        return bench_move_avx2();
    }
#endif
    *name = "16-byte";
    return move;
}
