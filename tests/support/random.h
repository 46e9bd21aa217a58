/* Random numbers for tests, fuzzers and measurements: the same on every machine. */
#pragma once

#include <stdint.h>

/* Returns the next number of xorshift64* (S. Vigna). The state must not be 0. */
static inline uint64_t random_next(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * UINT64_C(2685821657736338717);
}
