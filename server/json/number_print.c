#include "server/json/number.h"

#include <string.h>

#include "server/json/powers.h"

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

/* ---- Floats: which decimal --------------------------------------------------------------- */

/* For |e| below 200: floor(log10(2^e)), floor(log10(3/4 * 2^e)). */
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

/* For c * 2^q of any kind; `narrow`: the float below is half as far as the one above. After
 * R. Giulietti, "The Schubfach way to render doubles" (2022), for floats: 10^k scaled into 64 bits
 * instead of his 126, and 32-bit estimates instead of 64. */
static struct decimal shortest(uint32_t c, int q, bool narrow)
{
    int k = narrow ? floor_log10_three_quarters_pow2(q) : floor_log10_pow2(q);
    int h = q + qd_floor_log2_pow10(-k) + 1;
    uint64_t power = qd_powers_of_ten[-k - QD_POWER_FIRST];
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

/* The same for most floats, those of 24 bits that have their neighbours at the same distance, with
 * one product and without branches: the value in units of 10^(k+1), where the float's neighbours
 * are less than 1 away, so that one whole number at most is among what reads back to it. Otherwise
 * there is one digit more. V. Zverovich's zmij has the idea; that 64 bits of the power suffice is
 * known for each float by trial: make bench A=--every-float. */
static struct decimal shortest_of_most(uint32_t c, int q)
{
    enum { FRACTION_BITS = 34 };
    const uint64_t one = UINT64_C(1) << FRACTION_BITS;
    const int k = floor_log10_pow2(q) + 1;
    const int shift = q + qd_floor_log2_pow10(-k) + 1 + FRACTION_BITS;
    const uint64_t power = qd_powers_of_ten[-k - QD_POWER_FIRST];
    const uint64_t scaled = qd_multiply_high(power, (uint64_t)c << shift);
    const uint64_t fraction = scaled & (one - 1);
    const uint64_t half_gap = (power >> (65 - shift)) + (c % 2 == 0); /* an even c owns the ends */
    const uint32_t above = (uint32_t)((fraction + half_gap) >> FRACTION_BITS);
    const bool is_whole = above != 0 || half_gap > fraction;
    uint32_t digit = (uint32_t)((fraction * 10 + one / 2) >> FRACTION_BITS);
    digit -= fraction == one / 4; /* 2.5 is a tie, of which 2 is even; at 7.5, 8 is */
    const uint32_t whole = (uint32_t)(scaled >> FRACTION_BITS) + above;
    return (struct decimal){whole * 10 + (is_whole ? 0 : digit), k - 1};
}

/* Below this a whole number is written with all its digits, which are as many as with zeros. */
enum { WHOLE_MAX = 1000000000 };

/* Seven to nine digits, zeros at their end among them. value: finite and not 0. */
static inline struct decimal float_to_decimal(uint32_t fraction, uint32_t biased)
{
    const uint32_t c = fraction | 0x800000;
    const int q = (int)biased - 150;
    if (q > 0 && q <= 6 && c << q < WHOLE_MAX)
        return (struct decimal){c << q, 0};
    if (fraction != 0 && biased != 0)
        return shortest_of_most(c, q);
    struct decimal decimal =
        biased == 0 ? shortest(fraction, 1 - 150, false) : shortest(c, q, biased > 1);
    for (; decimal.digits < 1000000; decimal.exponent--)
        decimal.digits *= 10;
    return decimal;
}

/* ---- Floats: the text -------------------------------------------------------------------- */

/* Up to 16 characters, the first one in the lowest byte; the machine is little-endian. */
struct characters {
    uint64_t low;
    uint64_t high;
};

/* The eight digits of a number below 10^8, each in a byte: halves, quarters, eighths. */
static uint64_t spread_digits(uint64_t value)
{
    uint64_t part = value / 10000;
    uint64_t digits = part | (value - part * 10000) << 32;
    part = (digits * 10486 >> 20) & UINT64_C(0x0000007f0000007f); /* by 100 */
    digits = part | (digits - part * 100) << 16;
    part = (digits * 103 >> 10) & UINT64_C(0x000f000f000f000f); /* by 10 */
    return part | (digits - part * 10) << 8;
}

/* Where the digits go: `before` of them stay, `fill` is between, the others stand `gap_bits` later.
 */
struct layout {
    struct characters before;
    struct characters fill;
    uint8_t gap_bits;
    uint8_t prefix_bytes; /* "0.00" */
    uint8_t count_before;
    bool has_point; /* where digits follow */
};

#define SMALL(zeros, text)                                          \
    {                                                               \
        {0, 0}, {text, 0}, 8 * (2 + (zeros)), 2 + (zeros), 0, false \
    }
#define POINT(n)                                                                        \
    {                                                                                   \
        {(UINT64_C(1) << 8 * (n)) - 1, 0}, {(uint64_t)'.' << 8 * (n), 0}, 8, 0, n, true \
    }

/* By how many digits are before the decimal point: -3 to 9. */
enum { POINT_MIN = -3, POINT_MAX = 9 };
static const struct layout layouts[] = {
    SMALL(3, UINT64_C(0x3030302e30)),
    SMALL(2, 0x30302e30),
    SMALL(1, 0x302e30),
    SMALL(0, 0x2e30),
    POINT(1),
    POINT(2),
    POINT(3),
    POINT(4),
    POINT(5),
    POINT(6),
    POINT(7),
    {{UINT64_MAX, 0}, {0, '.'}, 8, 0, 8, true},
    {{UINT64_MAX, 0xff}, {0, '.' << 8}, 8, 0, 9, true},
};

/* digits[0..count), and '0' behind them. Writes 16 bytes. */
static inline char *lay_out(char *out, struct characters digits, uint32_t count,
                            const struct layout *layout)
{
    const struct characters behind = {digits.low & ~layout->before.low,
                                      digits.high & ~layout->before.high};
    const unsigned gap_bits = layout->gap_bits;
    struct characters text = {(digits.low ^ behind.low) | behind.low << gap_bits, 0};
    text.low |= layout->fill.low;
    text.high = (digits.high ^ behind.high) | behind.high << gap_bits |
                behind.low >> (64 - gap_bits) | layout->fill.high;
    memcpy(out, &text, sizeof(text));
    const uint32_t before = layout->count_before;
    const uint32_t bytes = count + (layout->has_point && count > before);
    return out + layout->prefix_bytes + (bytes > before ? bytes : before);
}

/* "e-45"; writes 4 bytes. */
static char *print_exponent(char *out, int exponent)
{
    const uint32_t magnitude = (uint32_t)(exponent < 0 ? -exponent : exponent);
    *out++ = 'e';
    *out = '-';
    out += exponent < 0;
    memcpy(out, digit_pairs + magnitude * 2 + (magnitude < 10), 2);
    return out + 1 + (magnitude >= 10);
}

/* In the shorter of the two notations people expect. value: finite and not 0. Writes up to
 * QD_PRINT_BYTES_MAX bytes, of which those behind the end are nothing. */
static inline char *print_number(char *out, uint32_t bits)
{
    *out = '-';
    out += bits >> 31;
    const struct decimal decimal = float_to_decimal(bits & 0x7fffff, bits >> 23 & 0xff);
    const uint32_t first = decimal.digits / 100000000;
    const uint64_t others = spread_digits(decimal.digits - first * 100000000);
    struct characters digits = {others << 8 | first, others >> 56};
    const uint32_t zeros = decimal.digits < 10000000 ? 2 : decimal.digits < 100000000;
    const uint32_t end = digits.high != 0 ? 9 : 8 - (uint32_t)__builtin_clzll(digits.low) / 8;
    const int point = decimal.exponent + 9 - (int)zeros;
    const uint64_t all_zeros = UINT64_C(0x0101010101010101) * '0';
    /* In two steps, since no shift is by 64. */
    digits.low = (digits.low >> 8 * zeros | digits.high << 1 << (63 - 8 * zeros)) | all_zeros;
    digits.high = digits.high >> 8 * zeros | all_zeros;
    if (point >= POINT_MIN && point <= POINT_MAX)
        return lay_out(out, digits, end - zeros, &layouts[point - POINT_MIN]);
    out = lay_out(out, digits, end - zeros, &layouts[1 - POINT_MIN]);
    return print_exponent(out, point - 1);
}

char *qd_print_float(char *out, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    if (bits << 1 != 0)
        return print_number(out, bits);
    /* "-0" would be read as an integer, which has no sign at 0 */
    memcpy(out, bits == 0 ? "0" : "-0.0", bits == 0 ? 1 : 4);
    return out + (bits == 0 ? 1 : 4);
}

size_t qd_print_floats(char **out, const float *values, size_t count)
{
    char *at = *out;
    size_t index = 0;
    for (; index < count; index++) {
        uint32_t bits;
        memcpy(&bits, &values[index], sizeof(bits));
        if ((bits >> 23 & 0xff) == 0xff)
            break;
        *at++ = ',';
        at = bits << 1 != 0 ? print_number(at, bits) : qd_print_float(at, values[index]);
    }
    *out = at;
    return index;
}
