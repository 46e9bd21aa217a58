/* Measures the limit of code that only moves bytes: a loop that reads and writes the same numbers
 * of bytes with the widest loads and stores of the CPU, and does nothing else. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BENCH_MOVE_READS (-5) /* instead of doublings: nothing is written */

/* Reads x_bytes from x and, unless `second` is NULL, as many from there. Writes 2^doublings as many
 * bytes as it reads from both, where doublings is from -4 to 4, or at most 3 with a `second`.
 * Stores bypass the caches if `stream`. All buffers are 64-byte aligned. A last group of vectors
 * that is not whole is left out. */
typedef void bench_move_fn(const uint8_t *x, const uint8_t *second, uint8_t *y, size_t x_bytes,
                           int doublings, bool stream);

/* Returns the function with the widest vectors that this CPU has. Sets *name to its name. */
bench_move_fn *bench_move_pick(const char **name);

/* Returns NULL if the function was compiled for another architecture. The CPU may still lack the
 * instructions. */
bench_move_fn *bench_move_avx2(void);
bench_move_fn *bench_move_avx512(void);
