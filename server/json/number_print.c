#include "server/json/number.h"

#include <math.h>
#include <string.h>

#include "server/json/powers.h"
#include "server/memory/text.h"

/* Two digits of each number below 50, as no exponent of a float is larger. */
static const char digit_pairs[] = "00010203040506070809101112131415161718192021222324"
                                  "25262728293031323334353637383940414243444546474849";

char *qd_print_int64(char *out, int64_t value)
{
    uint64_t magnitude = (uint64_t)value;
    if (value < 0) {
        *out++ = '-';
        magnitude = 0 - magnitude;
    }
    return qd_print_decimal(magnitude, out);
}

/* ---- Floats: which decimal --------------------------------------------------------------- */

/* Returns floor(log10(2^e)) for |e| < 200. */
static int floor_log10_pow2(int e)
{
    return (e * 1262611) >> 22;
}

/* value = (whole + tenths / 10) * 10^exponent. `whole` has seven to nine digits, including trailing
 * zeros. */
struct decimal {
    uint32_t whole;
    uint32_t tenths;
    int exponent;
};

/* Splits digits that are not 0. */
static struct decimal split_decimal(uint32_t digits, int exponent)
{
    for (; digits < 1000000; exponent--)
        digits *= 10;
    return (struct decimal){digits / 10, digits % 10, exponent + 1};
}

/* Returns the shortest decimal that reads back as c * 2^q and, of several, the closest one. The
 * neighbouring floats must both be 2^q away, so powers of two are excluded. After V. Zverovich's
 * zmij (2025), with one product and without branches: the value is computed in units of
 * 10^exponent, which are larger than 2^q, so at most one whole number reads back as the float. If
 * none does, the decimal has tenths. That 64 bits of the power of ten are enough was checked for
 * every float: make bench A=--every-float. */
__attribute__((always_inline)) static inline struct decimal shortest_of_most(uint32_t c, int q)
{
    enum { FRACTION_BITS = 34 };
    const uint64_t one = UINT64_C(1) << FRACTION_BITS;
    const int exponent = floor_log10_pow2(q) + 1;
    const int shift = q + qd_floor_log2_pow10(-exponent) + 1 + FRACTION_BITS;
    const uint64_t power = qd_powers_of_ten[-exponent - QD_POWER_FIRST];
    const uint64_t scaled = qd_multiply_high(power, (uint64_t)c << shift);
    const uint64_t fraction = scaled & (one - 1);
    const uint64_t half_gap =
        (power >> (65 - shift)) + (c % 2 == 0); /* the ends of an even c's interval belong to it */
    const uint64_t above = (fraction + half_gap) >> FRACTION_BITS;
    const uint64_t below = (fraction - half_gap) >> 63;
    uint64_t tenths = (fraction * 10 + one / 2) >> FRACTION_BITS;
    tenths -= fraction == one / 4; /* 2.5 is a tie that rounds to the even 2; 7.5 rounds to 8 */
    tenths &=
        (above | below) - 1; /* a mask, because the compiler would turn a condition into a branch */
    return (struct decimal){(uint32_t)((scaled >> FRACTION_BITS) + above), (uint32_t)tenths,
                            exponent};
}

/* Returns the upper bits of power * x. The lowest bit is also set if any bit below it is. */
static uint32_t round_to_odd(uint64_t power, uint32_t x)
{
    uint64_t low = (power & 0xffffffff) * x;
    uint64_t high = (power >> 32) * x + (low >> 32);
    return (uint32_t)(high >> 32) | ((uint32_t)high > 1);
}

/* Like shortest_of_most, for 2^(q + 23), whose lower neighbour is half as far away as the upper
 * one. After R. Giulietti, "The Schubfach way to render doubles" (2022), with 10^k scaled to 64
 * bits instead of 126, and 32-bit estimates instead of 64-bit ones. */
static struct decimal shortest_of_power_of_two(int q)
{
    const int k = (q * 1262611 - 524031) >> 22; /* floor(log10(3/4 * 2^q)) */
    const int h = q + qd_floor_log2_pow10(-k) + 1;
    const uint64_t power = qd_powers_of_ten[-k - QD_POWER_FIRST];
    /* Four times the value and the ends of its interval, which belong to it, in units of 10^k. */
    const uint32_t c = 0x800000;
    const uint32_t at = round_to_odd(power, (4 * c) << h);
    const uint32_t lower = round_to_odd(power, (4 * c - 1) << h);
    const uint32_t upper = round_to_odd(power, (4 * c + 2) << h);
    const uint32_t tens = at / 40;
    if ((lower <= 40 * tens) != (40 * tens + 40 <= upper)) /* one digit less is enough */
        return split_decimal(tens + (lower > 40 * tens), k + 1);
    const uint32_t s = at / 4;
    if ((lower <= 4 * s) != (4 * s + 4 <= upper))
        return split_decimal(s + (lower > 4 * s), k);
    const uint32_t middle =
        4 * s + 2; /* both candidates are inside: takes the closer one, ties to even */
    return split_decimal(s + (at > middle || (at == middle && s % 2 == 1)), k);
}

/* Whole numbers below this are printed with all digits, which takes no more bytes than trailing
 * zeros. */
enum { WHOLE_MAX = 1000000000 };

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static uint32_t biased_exponent(uint32_t bits)
{
    return bits >> 23 & 0xff;
}

/* Returns the decimal of |value|. Undefined for 0, infinities and NaN. */
static struct decimal float_to_decimal(float value)
{
    const uint32_t fraction = bits_of(value) & 0x7fffff;
    const uint32_t biased = biased_exponent(bits_of(value));
    const uint32_t c = fraction | 0x800000;
    const int q = (int)biased - 150;
    if (q > 0 && q <= 6 && c << q < WHOLE_MAX)
        return split_decimal(c << q, 0);
    if (fraction == 0 && biased > 1)
        return shortest_of_power_of_two(q);
    if (biased != 0)
        return shortest_of_most(c, q);
    if (fraction == 0)
        return (struct decimal){0};
    const struct decimal decimal = shortest_of_most(fraction, 1 - 150);
    return split_decimal(decimal.whole * 10 + decimal.tenths, decimal.exponent - 1);
}

/* ---- Floats: the digits ------------------------------------------------------------------- */

/* How many floats are printed at once. The loops have as many iterations, so that the compiler
 * vectorizes them; a few floats use loops of FEW iterations. The number of instructions decides the
 * printer's speed: it has few branches, and the CPU predicts them well. */
enum { BATCH = 16, FEW = 4, TEN_MILLION = 10000000 };

struct batch {
    int32_t whole[BATCH];
    int32_t tenths[BATCH];
    int32_t exponent[BATCH];
};

/* Aligns each decimal to eight digits in `whole`, the first of them not 0, and a ninth in `tenths`.
 * The exponent then says how many digits are before the decimal point. */
__attribute__((always_inline)) static inline void align_digits(struct batch *batch, int rounds)
{
    for (int i = 0; i < rounds; i++) {
        const int32_t whole = batch->whole[i];
        const int32_t tenths = batch->tenths[i];
        const int32_t short_mask =
            -(whole < TEN_MILLION); /* a mask of all bits, as vector compares give */
        const int32_t longer = (whole & ~short_mask) | ((whole * 10 + tenths) & short_mask);
        const int32_t shorter_mask = -(longer < TEN_MILLION);
        batch->whole[i] = (longer & ~shorter_mask) | (longer * 10 & shorter_mask);
        batch->tenths[i] = tenths & ~short_mask;
        batch->exponent[i] += 8 + short_mask + shorter_mask;
    }
}

/* Spreads the digits of each number to bytes, the first digit in the lowest byte, by halving three
 * times. The machine is little-endian. */
__attribute__((always_inline)) static inline void spread_digits(const int32_t *numbers, int rounds,
                                                                uint64_t *digits)
{
    uint16_t halves[2 * BATCH];
    uint8_t quarters[4 * BATCH];
    for (int i = 0; i < rounds; i++) {
        const uint32_t number = (uint32_t)numbers[i];
        const uint32_t high = (uint32_t)(number * UINT64_C(3518437209) >> 32) >> 13; /* / 10^4 */
        const uint32_t both = high | (number - high * 10000) << 16;
        memcpy(halves + 2 * i, &both, sizeof(both));
    }
    for (int i = 0; i < 2 * rounds; i++) {
        const uint16_t high = (uint16_t)(halves[i] * UINT32_C(5243) >> 16) >> 3; /* / 100 */
        const uint16_t both = (uint16_t)(high | (halves[i] - high * 100) << 8);
        memcpy(quarters + 2 * i, &both, sizeof(both));
    }
    for (int i = 0; i < 4 * rounds; i++) {
        const uint16_t high = (uint16_t)(quarters[i] * 103) >> 10; /* / 10 */
        const uint16_t both = (uint16_t)(high | (quarters[i] - high * 10) << 8);
        memcpy((char *)digits + 2 * i, &both, sizeof(both));
    }
}

/* ---- Floats: the text -------------------------------------------------------------------- */

/* How the decimal point gets into the digits: the digits in the mask `head` stay, the other digits
 * move back by `gap_bytes`, and `fill` is put into the gap. */
struct layout {
    uint64_t head;
    uint64_t fill;
    uint8_t gap_bytes;
    uint8_t head_count;
};

#define SMALL(zeros, text)      \
    {                           \
        0, text, 2 + (zeros), 0 \
    }
#define POINT(n)                                                     \
    {                                                                \
        (UINT64_C(1) << 8 * (n)) - 1, (uint64_t)'.' << 8 * (n), 1, n \
    }

/* The layouts, by the number of digits before the decimal point, from -3 to 9. Floats with 8 or 9
 * such digits have no digits after it. */
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
    {UINT64_MAX, 0, 0, 8},
    {UINT64_MAX, 0, 0, 9},
};

/* Writes eight digits and a ninth, given as bytes, without trailing zeros: `count` digits are left.
 * Writes up to 14 bytes. */
static inline char *lay_out(char *out, uint64_t digits, uint32_t ninth, uint32_t count,
                            const struct layout *layout)
{
    const uint32_t gap_bytes = layout->gap_bytes;
    digits |= UINT64_C(0x0101010101010101) * '0';
    memcpy(out + gap_bytes, &digits, sizeof(digits));
    out[gap_bytes + 8] = (char)('0' + ninth);
    digits = (digits & layout->head) | layout->fill | (digits & ~layout->head) << 8 * gap_bytes;
    memcpy(out, &digits, sizeof(digits));
    return out + (count > layout->head_count ? count + gap_bytes : layout->head_count);
}

/* Prints an exponent such as "e-45". Writes 4 bytes. */
static inline char *print_exponent(char *out, int exponent)
{
    const uint32_t magnitude = (uint32_t)(exponent < 0 ? -exponent : exponent);
    *out++ = 'e';
    *out = '-';
    out += exponent < 0;
    memcpy(out, digit_pairs + magnitude * 2 + (magnitude < 10), 2);
    return out + 1 + (magnitude >= 10);
}

/* Prints in the shorter one of plain and exponent notation. */
static inline char *print_digits(char *out, uint64_t digits, uint32_t ninth, int point)
{
    /* The digits in reverse: the ninth in the lowest four bits, then one digit in each byte. */
    const uint64_t backwards = __builtin_bswap64(digits) << 4 | ninth;
    const uint32_t count = 9 - (uint32_t)(__builtin_ctzll(backwards) + 4) / 8;
    if (point >= POINT_MIN && point <= POINT_MAX)
        return lay_out(out, digits, ninth, count, &layouts[point - POINT_MIN]);
    out = lay_out(out, digits, ninth, count, &layouts[1 - POINT_MIN]);
    return print_exponent(out, point - 1);
}

/* Prints 0, infinities and NaN. */
static char *print_special(char *out, float value)
{
    if (isnan(value))
        return stpcpy(out, "\"NaN\"");
    if (isinf(value))
        return stpcpy(out, value > 0 ? "\"Infinity\"" : "\"-Infinity\"");
    /* "-0" would be read as an integer, which has no sign at 0 */
    return stpcpy(out, signbit(value) ? "-0.0" : "0");
}

static char *print_batch(char *out, struct batch *batch, const float *values, size_t count)
{
    uint64_t digits[BATCH];
    if (count <= FEW) {
        align_digits(batch, FEW);
        spread_digits(batch->whole, FEW, digits);
    } else {
        align_digits(batch, BATCH);
        spread_digits(batch->whole, BATCH, digits);
    }
    for (size_t i = 0; i < count; i++) {
        const uint32_t bits = bits_of(values[i]);
        if (bits << 1 == 0 || biased_exponent(bits) == 255) {
            out = print_special(out, values[i]);
        } else {
            *out = '-';
            out += bits >> 31;
            out = print_digits(out, digits[i], (uint32_t)batch->tenths[i], batch->exponent[i]);
        }
        *out++ = ',';
    }
    return out;
}

char *qd_print_floats(char *out, const float *values, size_t count)
{
    struct batch batch = {0};
    for (size_t begin = 0; begin < count; begin += BATCH) {
        const size_t left = count - begin;
        const size_t now = left < BATCH ? left : BATCH;
        for (size_t i = 0; i < now; i++) {
            const struct decimal decimal = float_to_decimal(values[begin + i]);
            batch.whole[i] = (int32_t)decimal.whole;
            batch.tenths[i] = (int32_t)decimal.tenths;
            batch.exponent[i] = decimal.exponent;
        }
        out = print_batch(out, &batch, values + begin, now);
    }
    return out;
}

char *qd_print_float(char *out, float value)
{
    return qd_print_floats(out, &value, 1) - 1;
}
