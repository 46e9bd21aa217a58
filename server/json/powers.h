/* Powers of ten, for converting floats from and to text. */
#pragma once

#include <stdint.h>

/* The exponents of the powers in the table. Floats range from 10^-45 to 10^38. Reading one
 * multiplies its first 19 digits, as a whole number, by a power down to 10^-65. Printing the
 * smallest float needs 10^45. */
enum { QD_POWER_FIRST = -65, QD_POWER_LAST = 45 };

/* Entry k - QD_POWER_FIRST is the 64 highest bits of 10^k, rounded up: floor(10^k * 2^(63 -
 * floor(log2(10^k)))), plus 1 if that is not exact. */
extern const uint64_t qd_powers_of_ten[QD_POWER_LAST - QD_POWER_FIRST + 1];

/* Returns floor(log2(10^e)) for |e| < 200. gcc and clang shift negative numbers arithmetically. */
static inline int qd_floor_log2_pow10(int e)
{
    return (e * 1741647) >> 19;
}

__extension__ typedef unsigned __int128 qd_uint128; /* gcc and clang have it */

static inline uint64_t qd_multiply_high(uint64_t a, uint64_t b)
{
    return (uint64_t)((qd_uint128)a * b >> 64);
}
