/* The loop of bench_move_fn, for vectors of any width. */
#pragma once

#include "tests/bench/limits/move.h"

#define BENCH_INLINE static inline __attribute__((always_inline))

/* Loads `loads` vectors from `from`, and as many from `second` unless it is NULL. Stores the last
 * of them `stores` times, beginning at `to`. */
typedef void bench_step_fn(const uint8_t *from, const uint8_t *second, uint8_t *to, size_t loads,
                           size_t stores, bool stream);

BENCH_INLINE void bench_move_steps(bench_step_fn *step, size_t vector_bytes, const uint8_t *x,
                                   const uint8_t *second, uint8_t *y, size_t x_bytes, size_t loads,
                                   size_t stores, bool stream)
{
    for (size_t n = x_bytes / (loads * vector_bytes); n > 0; n--) {
        step(x, second, y, loads, stores, stream);
        x += loads * vector_bytes;
        second = second ? second + loads * vector_bytes : NULL;
        y += stores * vector_bytes;
    }
}

/* Writes x_bytes * 2^doublings. */
BENCH_INLINE void bench_move_doubled(bench_step_fn *step, size_t vector_bytes, const uint8_t *x,
                                     const uint8_t *second, uint8_t *y, size_t x_bytes,
                                     int doublings, bool stream)
{
    switch (doublings) {
    case BENCH_MOVE_READS:
        bench_move_steps(step, vector_bytes, x, second, y, x_bytes, 8, 0, stream);
        break;
    case -4:
        bench_move_steps(step, vector_bytes, x, second, y, x_bytes, 16, 1, stream);
        break;
    case -3:
        bench_move_steps(step, vector_bytes, x, second, y, x_bytes, 8, 1, stream);
        break;
    case -2:
        bench_move_steps(step, vector_bytes, x, second, y, x_bytes, 4, 1, stream);
        break;
    case -1:
        bench_move_steps(step, vector_bytes, x, second, y, x_bytes, 2, 1, stream);
        break;
    case 0:
        bench_move_steps(step, vector_bytes, x, second, y, x_bytes, 1, 1, stream);
        break;
    case 1:
        bench_move_steps(step, vector_bytes, x, second, y, x_bytes, 1, 2, stream);
        break;
    case 2:
        bench_move_steps(step, vector_bytes, x, second, y, x_bytes, 1, 4, stream);
        break;
    case 3:
        bench_move_steps(step, vector_bytes, x, second, y, x_bytes, 1, 8, stream);
        break;
    case 4:
        bench_move_steps(step, vector_bytes, x, second, y, x_bytes, 1, 16, stream);
        break;
    default:
        break;
    }
}

/* Two sources have twice the bytes of x. */
BENCH_INLINE void bench_move_loop(bench_step_fn *step, size_t vector_bytes, const uint8_t *x,
                                  const uint8_t *second, uint8_t *y, size_t x_bytes, int doublings,
                                  bool stream)
{
    if (second)
        bench_move_doubled(step, vector_bytes, x, second, y, x_bytes, doublings + 1, stream);
    else
        bench_move_doubled(step, vector_bytes, x, NULL, y, x_bytes, doublings, stream);
}
