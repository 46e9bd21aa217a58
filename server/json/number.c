#include "server/json/number.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Text to number ---------------------------------------------------------------------- */

/* The mantissa takes this many digits, and below MANTISSA_ROOM it takes one more. */
enum { MANTISSA_DIGITS = 19 };
#define MANTISSA_ROOM UINT64_C(1000000000000000000)

/* Explicit exponents stop here: no literal in memory has enough digits to outweigh it. */
#define EXPONENT_MAX INT64_C(1000000000000000)

static bool is_digit(const char *at, const char *end)
{
    return at < end && *at >= '0' && *at <= '9';
}

/* The value of eight digits; false: they are not all digits. */
static inline bool read_eight(const char *at, uint64_t *value)
{
    const uint64_t ones = UINT64_C(0x0101010101010101);
    uint64_t word;
    memcpy(&word, at, sizeof(word));
    word ^= ones * '0';
    if (((word | (word + ones * 6)) & ones * 0xf0) != 0)
        return false;
    word = (word * 10 + (word >> 8)) & UINT64_C(0x00ff00ff00ff00ff); /* 2, 4, 8 in one sum */
    word = (word * 100 + (word >> 16)) & UINT64_C(0x0000ffff0000ffff);
    *value = (word * 10000 + (word >> 32)) & UINT64_C(0xffffffff);
    return true;
}

/* Takes digits into the mantissa. `step`: 0 before the point, -1 behind it. */
static inline const char *scan_digits(const char *at, const char *end, int step,
                                      struct qd_json_number *number)
{
    uint64_t eight;
    while (end - at >= 8 && number->mantissa < MANTISSA_ROOM / 10000000 && read_eight(at, &eight)) {
        number->mantissa = number->mantissa * 100000000 + eight;
        number->exponent += 8 * step;
        at += 8;
    }
    for (; is_digit(at, end); at++) {
        if (number->mantissa < MANTISSA_ROOM) {
            number->mantissa = number->mantissa * 10 + (uint64_t)(*at - '0');
            number->exponent += step;
        } else {
            number->exponent += step + 1;
            number->more |= *at != '0';
        }
    }
    number->bytes = (size_t)(at - number->text);
    return at;
}

static const char *scan_exponent(const char *at, const char *end, struct qd_json_number *number)
{
    bool negative = at < end && *at == '-';
    if (at < end && (*at == '-' || *at == '+'))
        at++;
    const char *digits = at;
    int64_t exponent = 0;
    for (; is_digit(at, end); at++)
        exponent = exponent < EXPONENT_MAX ? exponent * 10 + (*at - '0') : EXPONENT_MAX;
    number->exponent += negative ? -exponent : exponent;
    number->bytes = (size_t)(at - number->text);
    return at == digits ? NULL : at;
}

const char *qd_json_number_scan(const char *at, const char *end, struct qd_json_number *number)
{
    *number = (struct qd_json_number){.text = at, .whole = true};
    if (at < end && *at == '-') {
        number->negative = true;
        number->bytes = 1;
        at++;
    }
    if (!is_digit(at, end))
        return NULL;
    /* No digit may follow a leading zero. */
    at = scan_digits(at, *at == '0' ? at + 1 : end, 0, number);
    if (at < end && *at == '.') {
        number->whole = false;
        const char *fraction = at + 1;
        at = scan_digits(fraction, end, -1, number);
        if (at == fraction)
            return NULL;
    }
    if (at < end && (*at == 'e' || *at == 'E')) {
        number->whole = false;
        return scan_exponent(at + 1, end, number);
    }
    return at;
}

bool qd_json_number_to_int64(const struct qd_json_number *number, int64_t *value)
{
    uint64_t limit = (uint64_t)INT64_MAX + number->negative;
    bool negative_zero = number->negative && number->mantissa == 0;
    if (!number->whole || number->exponent != 0 || negative_zero || number->mantissa > limit)
        return false;
    *value = (int64_t)(number->negative ? 0 - number->mantissa : number->mantissa);
    return true;
}

/* Midway between two floats lies a number of at most 113 significant digits (an odd number below
 * 2^25, times 2^-150), and a float has fewer. So the first DIGITS_KEPT digits, with a 1 behind them
 * when anything but zeros follows, lie on the same side of all of these as the whole number does,
 * and strtof, which rounds correctly, gives the float of the whole number. */
enum { DIGITS_KEPT = 128 };

struct digits {
    char text[DIGITS_KEPT + 32]; /* the digits, and "e" with the exponent of the last one */
    int count;
    int exponent;
};

static void collect(const struct qd_json_number *number, struct digits *digits)
{
    bool more = false;
    const char *end = number->text + number->bytes;
    digits->count = 0;
    for (const char *at = number->text; at < end && *at != 'e' && *at != 'E'; at++) {
        bool significant = is_digit(at, end) && (digits->count > 0 || *at != '0');
        if (significant && digits->count < DIGITS_KEPT)
            digits->text[digits->count++] = *at;
        else if (significant && *at != '0')
            more = true;
    }
    int64_t exponent = number->exponent; /* of the digits in the mantissa */
    exponent -= digits->count > MANTISSA_DIGITS ? digits->count - MANTISSA_DIGITS : 0;
    if (more) {
        digits->text[digits->count++] = '1';
        exponent--;
    }
    digits->exponent = exponent > 9999 ? 9999 : exponent < -9999 ? -9999 : (int)exponent;
    snprintf(digits->text + digits->count, sizeof(digits->text) - (size_t)digits->count, "e%d",
             digits->exponent);
}

static float slow_float(const struct qd_json_number *number)
{
    struct digits digits;
    collect(number, &digits);
    float value = strtof(digits.text, NULL);
    return number->negative ? -value : value;
}

/* Below 0, 0 or above 0, as the digits are less than, equal to or more than `value`, finite and
 * above 0. */
static int compare(const struct digits *digits, float value)
{
    char exact[DIGITS_KEPT + 32]; /* "d.ddd", all digits that a float can have, and "e-45" */
    snprintf(exact, sizeof(exact), "%.*e", DIGITS_KEPT - 1, (double)value);
    int place = digits->exponent + digits->count - 1; /* of the first digit */
    int value_place = atoi(exact + DIGITS_KEPT + 2);
    if (place != value_place)
        return place < value_place ? -1 : 1;
    exact[1] = exact[0]; /* the digits, without a point */
    for (int i = 0; i < digits->count || i < DIGITS_KEPT; i++) {
        char digit = i < digits->count ? digits->text[i] : '0';
        char value_digit = i < DIGITS_KEPT ? exact[1 + i] : '0';
        if (digit != value_digit)
            return digit < value_digit ? -1 : 1;
    }
    return 0;
}

/* The nearest float, or if it is another number and even, its neighbour beyond that number. */
static float slow_odd(const struct qd_json_number *number)
{
    struct digits digits;
    collect(number, &digits);
    float value = strtof(digits.text, NULL);
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    if (bits % 2 == 0 && isfinite(value)) {
        int side = bits == 0 ? 1 : compare(&digits, value);
        bits += (uint32_t)side;
        memcpy(&value, &bits, sizeof(value));
    }
    return number->negative ? -value : value;
}

/* A double that is `mantissa * 10^exponent` up to 16 units of its last place: one rounding of the
 * mantissa, up to three of products with exact powers, and the digits that the mantissa lacks,
 * together below 6. */
enum { POWER_MAX = 22, SCALE_MAX = 3 * POWER_MAX, NEAR = 16 };

static double approximate(uint64_t mantissa, int exponent)
{
    static const double powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                    1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                    1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    double value = (double)mantissa;
    for (; exponent > POWER_MAX; exponent -= POWER_MAX)
        value *= powers[POWER_MAX];
    for (; exponent < -POWER_MAX; exponent += POWER_MAX)
        value /= powers[POWER_MAX];
    return exponent < 0 ? value / powers[-exponent] : value * powers[exponent];
}

float qd_json_number_to_float(const struct qd_json_number *number)
{
    if (number->mantissa == 0)
        return number->negative ? -0.0f : 0.0f;
    if (number->exponent < -SCALE_MAX || number->exponent > SCALE_MAX)
        return slow_float(number);
    double value = approximate(number->mantissa, (int)number->exponent);
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    /* Rounding to float drops 29 bits. Unless they are near one half, a small error in `value`
     * changes nothing. Subnormal floats drop more, and beyond the range is strtof's to say. */
    uint64_t from_half = (bits & 0x1fffffff) - 0x10000000 + NEAR;
    if (from_half <= 2 * NEAR || value < (double)FLT_MIN || value > (double)FLT_MAX)
        return slow_float(number);
    return (float)(number->negative ? -value : value);
}

/* 5^27 is the last power of five in 64 bits. */
enum { FIVES_MAX = 27, TENS_MAX = 18 };

bool qd_json_number_exact(const struct qd_json_number *number, float *value)
{
    uint64_t whole = number->mantissa;
    if (whole == 0) {
        *value = number->negative ? -0.0f : 0.0f;
        return true;
    }
    if (number->more || number->exponent < -FIVES_MAX || number->exponent > TENS_MAX)
        return false;
    int exponent = (int)number->exponent;
    /* M * 10^e = M * 5^e * 2^e, and M / 5^-e is a whole number or no binary fraction at all. */
    uint64_t power = 1;
    for (int i = abs(exponent); i > 0; i--)
        power *= 5;
    if (exponent < 0 ? whole % power != 0 : __builtin_mul_overflow(whole, power, &whole))
        return false;
    if (exponent < 0)
        whole /= power;
    int zeros = __builtin_ctzll(whole);
    whole >>= zeros;
    if (whole >= UINT64_C(1) << FLT_MANT_DIG)
        return false;
    float magnitude = ldexpf((float)whole, exponent + zeros);
    *value = number->negative ? -magnitude : magnitude;
    return true;
}

float qd_json_number_to_odd(const struct qd_json_number *number)
{
    float result;
    if (qd_json_number_exact(number, &result))
        return result;
    if (number->exponent < -SCALE_MAX || number->exponent > SCALE_MAX)
        return slow_odd(number);
    double value = approximate(number->mantissa, (int)number->exponent);
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    /* Unless a float is near, the number is inexact, and between the same two floats as `value`. */
    uint64_t dropped = bits & 0x1fffffff;
    if (dropped < NEAR || dropped > 0x20000000 - NEAR || value < (double)FLT_MIN ||
        value > (double)FLT_MAX)
        return slow_odd(number);
    bits -= dropped;
    memcpy(&value, &bits, sizeof(value));
    result = (float)value;
    uint32_t odd;
    memcpy(&odd, &result, sizeof(odd));
    odd |= 1;
    memcpy(&result, &odd, sizeof(result));
    return number->negative ? -result : result;
}
