/* The limit of whatever only moves bytes: a loop that reads as many and writes as many, with the
 * widest loads and stores that the CPU has, and does nothing with them. */
#ifndef TESTS_BENCH_LIMITS_MOVE_H
#define TESTS_BENCH_LIMITS_MOVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Reads x_bytes and writes x_bytes * 2^doublings, from -4 to 4, with stores that go past the caches
 * if `stream`. Both buffers are 64-byte aligned; a last group of vectors that is not whole is left
 * out. */
typedef void bench_move_fn(const uint8_t *x, uint8_t *y, size_t x_bytes, int doublings,
                           bool stream);

/* The widest that this CPU has, and its name. */
bench_move_fn *bench_move_pick(const char **name);

/* NULL: not of this machine's kind. The CPU may lack it still. */
bench_move_fn *bench_move_avx2(void);
bench_move_fn *bench_move_avx512(void);

#endif
