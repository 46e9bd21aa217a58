/* The loop of bench_move_fn, for vectors of any width. */
#ifndef TESTS_BENCH_LIMITS_MOVE_LOOP_H
#define TESTS_BENCH_LIMITS_MOVE_LOOP_H

#include "tests/bench/limits/move.h"

#define BENCH_INLINE static inline __attribute__((always_inline))

/* Loads `loads` vectors from `from`, and stores the last of them `stores` times, beginning at
 * `to`. */
typedef void bench_step_fn(const uint8_t *from, uint8_t *to, size_t loads, size_t stores,
                           bool stream);

BENCH_INLINE void bench_move_steps(bench_step_fn *step, size_t vector_bytes, const uint8_t *x,
                                   uint8_t *y, size_t x_bytes, size_t loads, size_t stores,
                                   bool stream)
{
    for (size_t n = x_bytes / (loads * vector_bytes); n > 0; n--) {
        step(x, y, loads, stores, stream);
        x += loads * vector_bytes;
        y += stores * vector_bytes;
    }
}

BENCH_INLINE void bench_move_loop(bench_step_fn *step, size_t vector_bytes, const uint8_t *x,
                                  uint8_t *y, size_t x_bytes, int doublings, bool stream)
{
    switch (doublings) {
    case -4:
        bench_move_steps(step, vector_bytes, x, y, x_bytes, 16, 1, stream);
        break;
    case -3:
        bench_move_steps(step, vector_bytes, x, y, x_bytes, 8, 1, stream);
        break;
    case -2:
        bench_move_steps(step, vector_bytes, x, y, x_bytes, 4, 1, stream);
        break;
    case -1:
        bench_move_steps(step, vector_bytes, x, y, x_bytes, 2, 1, stream);
        break;
    case 0:
        bench_move_steps(step, vector_bytes, x, y, x_bytes, 1, 1, stream);
        break;
    case 1:
        bench_move_steps(step, vector_bytes, x, y, x_bytes, 1, 2, stream);
        break;
    case 2:
        bench_move_steps(step, vector_bytes, x, y, x_bytes, 1, 4, stream);
        break;
    case 3:
        bench_move_steps(step, vector_bytes, x, y, x_bytes, 1, 8, stream);
        break;
    case 4:
        bench_move_steps(step, vector_bytes, x, y, x_bytes, 1, 16, stream);
        break;
    default:
        break;
    }
}

#endif
