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

/* Returns how many of `count` items the busier of two threads computes. They take units of `unit`
 * items in turn, and the last unit may have fewer items. */
static inline size_t qk_longer_share(size_t count, size_t unit)
{
    const size_t units = qk_divide_up(count, unit);
    return units % 2 == 0 ? units / 2 * unit : count - units / 2 * unit;
}

/* Returns how many of `count` items each unit but the last should have: at most `most`, and at
 * least `least` or, if that is less, qk_even_part. Smaller units than necessary have to save a 32nd
 * of the time until the busier of two threads ends. The result is at least 1, so that the caller
 * may divide by it. Only some sizes are tried, because a plan may be made for each request. */
static inline size_t qk_unit_items(size_t count, size_t least, size_t most)
{
    size_t best = qk_even_part(count, most);
    const size_t smallest = best < count ? qk_size_max(least, most / 2 + 1) : best;
    const size_t step = best / 32 + 1;
    for (size_t unit = best; unit >= smallest && unit > 0; unit -= qk_size_min(step, unit)) {
        const size_t share = qk_longer_share(count, best);
        if (qk_longer_share(count, unit) < share - share / 32)
            best = unit;
    }
    return best;
}
