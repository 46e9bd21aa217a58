/* Measures the limit of computing from one shared-memory region into another: a loop that only
 * moves the bytes (move.h) between the same regions. */
#pragma once

#include <stddef.h>

#include "tests/bench/limits/move.h"

/* Returns the nanoseconds in which `threads` threads read all of the file `from` and write all of
 * the file `to`. Both are mapped. The result is the median of some runs, with or without stores
 * that bypass the caches, whichever is faster. Sizes are powers of two and at least 64 KiB. Ends
 * the process on failure. */
double bench_region_move_ns(bench_move_fn *move, const char *from, const char *to,
                            size_t thread_count);
