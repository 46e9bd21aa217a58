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

/* The least number of parts of at most `b`, which is not 0, that make up `a`. */
static inline size_t qk_divide_up(size_t a, size_t b)
{
    return a == 0 ? 0 : (a - 1) / b + 1;
}

#endif
