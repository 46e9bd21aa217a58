#include "server/json/number.h"

#include <string.h>

static const char digit_pairs[] = "00010203040506070809101112131415161718192021222324"
                                  "25262728293031323334353637383940414243444546474849"
                                  "50515253545556575859606162636465666768697071727374"
                                  "75767778798081828384858687888990919293949596979899";

static char *print_uint64(char *out, uint64_t value)
{
    char digits[20];
    char *at = digits + sizeof(digits);
    for (; value >= 100; value /= 100) {
        at -= 2;
        memcpy(at, digit_pairs + value % 100 * 2, 2);
    }
    if (value >= 10) {
        at -= 2;
        memcpy(at, digit_pairs + value * 2, 2);
    } else {
        *--at = (char)('0' + value);
    }
    size_t count = (size_t)(digits + sizeof(digits) - at);
    memcpy(out, at, count);
    return out + count;
}

char *qd_print_int64(char *out, int64_t value)
{
    uint64_t magnitude = (uint64_t)value;
    if (value < 0) {
        *out++ = '-';
        magnitude = 0 - magnitude;
    }
    return print_uint64(out, magnitude);
}

/* Shortest decimals after R. Giulietti, "The Schubfach way to render doubles" (2022), for floats:
 * 10^k scaled into 64 bits instead of his 126, and 32-bit estimates instead of 64.
 *
 * powers[k - POWER_FIRST] = floor(10^k * 2^(63 - floor(log2(10^k)))), plus 1 when that is not
 * exact. */
enum { POWER_FIRST = -31 };
static const uint64_t powers_of_ten[] = {
    0x81ceb32c4b43fcf5, 0xa2425ff75e14fc32, 0xcad2f7f5359a3b3f, 0xfd87b5f28300ca0e,
    0x9e74d1b791e07e49, 0xc612062576589ddb, 0xf79687aed3eec552, 0x9abe14cd44753b53,
    0xc16d9a0095928a28, 0xf1c90080baf72cb2, 0x971da05074da7bef, 0xbce5086492111aeb,
    0xec1e4a7db69561a6, 0x9392ee8e921d5d08, 0xb877aa3236a4b44a, 0xe69594bec44de15c,
    0x901d7cf73ab0acda, 0xb424dc35095cd810, 0xe12e13424bb40e14, 0x8cbccc096f5088cc,
    0xafebff0bcb24aaff, 0xdbe6fecebdedd5bf, 0x89705f4136b4a598, 0xabcc77118461cefd,
    0xd6bf94d5e57a42bd, 0x8637bd05af6c69b6, 0xa7c5ac471b478424, 0xd1b71758e219652c,
    0x83126e978d4fdf3c, 0xa3d70a3d70a3d70b, 0xcccccccccccccccd, 0x8000000000000000,
    0xa000000000000000, 0xc800000000000000, 0xfa00000000000000, 0x9c40000000000000,
    0xc350000000000000, 0xf424000000000000, 0x9896800000000000, 0xbebc200000000000,
    0xee6b280000000000, 0x9502f90000000000, 0xba43b74000000000, 0xe8d4a51000000000,
    0x9184e72a00000000, 0xb5e620f480000000, 0xe35fa931a0000000, 0x8e1bc9bf04000000,
    0xb1a2bc2ec5000000, 0xde0b6b3a76400000, 0x8ac7230489e80000, 0xad78ebc5ac620000,
    0xd8d726b7177a8000, 0x878678326eac9000, 0xa968163f0a57b400, 0xd3c21bcecceda100,
    0x84595161401484a0, 0xa56fa5b99019a5c8, 0xcecb8f27f4200f3a, 0x813f3978f8940985,
    0xa18f07d736b90be6, 0xc9f2c9cd04674edf, 0xfc6f7c4045812297, 0x9dc5ada82b70b59e,
    0xc5371912364ce306, 0xf684df56c3e01bc7, 0x9a130b963a6c115d, 0xc097ce7bc90715b4,
    0xf0bdc21abb48db21, 0x96769950b50d88f5, 0xbc143fa4e250eb32, 0xeb194f8e1ae525fe,
    0x92efd1b8d0cf37bf, 0xb7abc627050305ae, 0xe596b7b0c643c71a, 0x8f7e32ce7bea5c70,
    0xb35dbf821ae4f38c,
};

/* For |e| below 200: floor(log2(10^e)), floor(log10(2^e)), floor(log10(3/4 * 2^e)). Shifts of
 * negative numbers are arithmetic in gcc and clang. */
static int floor_log2_pow10(int e)
{
    return (e * 1741647) >> 19;
}

static int floor_log10_pow2(int e)
{
    return (e * 1262611) >> 22;
}

static int floor_log10_three_quarters_pow2(int e)
{
    return (e * 1262611 - 524031) >> 22;
}

/* The upper bits of power * x, with the lowest bit set when anything below it is. */
static uint32_t round_to_odd(uint64_t power, uint32_t x)
{
    uint64_t low = (power & 0xffffffff) * x;
    uint64_t high = (power >> 32) * x + (low >> 32);
    return (uint32_t)(high >> 32) | ((uint32_t)high > 1);
}

struct decimal {
    uint32_t digits; /* value = digits * 10^exponent */
    int exponent;
};

/* The paper's algorithm for c * 2^q; `narrow`: the float below is half as far as the one above. */
static struct decimal shortest(uint32_t c, int q, bool narrow)
{
    int k = narrow ? floor_log10_three_quarters_pow2(q) : floor_log10_pow2(q);
    int h = q + floor_log2_pow10(-k) + 1;
    uint64_t power = powers_of_ten[-k - POWER_FIRST];
    /* Four times the value and its interval's ends, in units of 10^k. An even c owns the ends. */
    uint32_t at = round_to_odd(power, (4 * c) << h);
    uint32_t lower = round_to_odd(power, (4 * c - 2 + narrow) << h) + c % 2;
    uint32_t upper = round_to_odd(power, (4 * c + 2) << h) - c % 2;
    uint32_t s = at / 4;
    if (s >= 10) { /* one digit less, if exactly one such decimal is inside */
        uint32_t tens = s / 10;
        bool below = lower <= 40 * tens;
        bool above = 40 * tens + 40 <= upper;
        if (below != above)
            return (struct decimal){tens + above, k + 1};
    }
    bool below = lower <= 4 * s;
    bool above = 4 * s + 4 <= upper;
    if (below != above)
        return (struct decimal){s + above, k};
    uint32_t middle = 4 * s + 2; /* both are inside: the closer one, ties to even */
    bool up = at > middle || (at == middle && s % 2 == 1);
    return (struct decimal){s + up, k};
}

static struct decimal float_to_decimal(uint32_t fraction, uint32_t biased)
{
    if (biased == 0)
        return shortest(fraction, 1 - 150, false);
    uint32_t c = fraction | 0x800000;
    int q = (int)biased - 150;
    if (q <= 0 && q > -24 && (c & ((UINT32_C(1) << -q) - 1)) == 0)
        return (struct decimal){c >> -q, 0}; /* an integer below 2^24 */
    return shortest(c, q, fraction == 0 && biased > 1);
}

/* digits[0..count) * 10^exponent, in the shorter of the two notations people expect. */
static char *print_decimal(char *out, const char *digits, int count, int exponent)
{
    int point = count + exponent; /* digits before the decimal point */
    if (exponent >= 0 && point <= 9) {
        memcpy(out, digits, (size_t)count);
        memset(out + count, '0', (size_t)exponent);
        return out + point;
    }
    if (point > 0 && point <= 9) {
        memcpy(out, digits, (size_t)point);
        out[point] = '.';
        memcpy(out + point + 1, digits + point, (size_t)(count - point));
        return out + count + 1;
    }
    if (point <= 0 && point > -4) {
        memcpy(out, "0.000", 5);
        memcpy(out + 2 - point, digits, (size_t)count);
        return out + 2 - point + count;
    }
    *out++ = digits[0];
    if (count > 1) {
        *out++ = '.';
        memcpy(out, digits + 1, (size_t)(count - 1));
        out += count - 1;
    }
    *out++ = 'e';
    return qd_print_int64(out, point - 1);
}

char *qd_print_float(char *out, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    if (bits >> 31 != 0)
        *out++ = '-';
    uint32_t fraction = bits & 0x7fffff;
    uint32_t biased = bits >> 23 & 0xff;
    if (fraction == 0 && biased == 0) {
        *out++ = '0';
        if (bits != 0) { /* "-0" would be read as an integer, which has no sign at 0 */
            memcpy(out, ".0", 2);
            out += 2;
        }
        return out;
    }
    struct decimal decimal = float_to_decimal(fraction, biased);
    while (decimal.digits % 10 == 0) {
        decimal.digits /= 10;
        decimal.exponent++;
    }
    char digits[QD_PRINT_BYTES_MAX];
    int count = (int)(print_uint64(digits, decimal.digits) - digits);
    return print_decimal(out, digits, count, decimal.exponent);
}
