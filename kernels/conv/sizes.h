/* Arithmetic of sizes. Private to conv/. */
#ifndef KERNELS_CONV_SIZES_H
#define KERNELS_CONV_SIZES_H

#include <stddef.h>

static inline size_t qk_size_min(size_t a, size_t b)
{
    return a < b ? a : b;
}

static inline size_t qk_size_max(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* The least number of parts of at most `b`, which is not 0, that `a` can be cut into. */
static inline size_t qk_divide_up(size_t a, size_t b)
{
    return a == 0 ? 0 : (a - 1) / b + 1;
}

/* The size of these parts where all but the last are equal. At least 1, so that it divides. */
static inline size_t qk_even_part(size_t total, size_t most)
{
    return total == 0 ? 1 : qk_divide_up(total, qk_divide_up(total, most));
}

#endif
