/* Compares and divides sizes. Private to kernels/. */
#pragma once

#include <stddef.h>

static inline size_t qk_size_min(size_t a, size_t b)
{
    return a < b ? a : b;
}

static inline size_t qk_size_max(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Returns the least number of parts of at most `b` into which `a` can be cut. `b` must not be 0. */
static inline size_t qk_divide_up(size_t a, size_t b)
{
    return a == 0 ? 0 : (a - 1) / b + 1;
}

/* Cuts `total` into the least number of parts of at most `most`, all of one size but the last,
 * which may be smaller. Returns that size. It is at least 1, so that the caller may divide by it.
 */
static inline size_t qk_even_part(size_t total, size_t most)
{
    return total == 0 ? 1 : qk_divide_up(total, qk_divide_up(total, most));
}
