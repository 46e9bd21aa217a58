#include "server/json/number.h"

#include <fenv.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/json/powers.h"

/* How many digits the mantissa holds. */
enum { MANTISSA_DIGITS = 19 };

/* Larger exponents are clamped to this. No text in memory has enough digits to make up for it. */
#define EXPONENT_MAX INT64_C(1000000000000000)

/* ---- Digits ------------------------------------------------------------------------------ */

static const uint64_t tens[MANTISSA_DIGITS + 1] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,
                                                   1e7,  1e8,  1e9,  1e10, 1e11, 1e12, 1e13,
                                                   1e14, 1e15, 1e16, 1e17, 1e18, 1e19};

#define EACH_BYTE UINT64_C(0x0101010101010101)

static inline bool is_digit(const char *at, const char *end)
{
    return at < end && *at >= '0' && *at <= '9';
}

/* Loads eight characters, the first one in the lowest byte, and subtracts '0' from each. The
 * machine is little-endian. */
static inline uint64_t load_eight(const char *at)
{
    uint64_t word;
    memcpy(&word, at, sizeof(word));
    return word ^ EACH_BYTE * '0';
}

/* Returns how many of the eight are digits, before the first that is none. */
static inline unsigned count_digits(uint64_t eight)
{
    const uint64_t above_9 = ((eight & EACH_BYTE * 0x7f) + EACH_BYTE * (0x7f - 9)) | eight;
    const uint64_t others = above_9 & EACH_BYTE * 0x80;
    return others == 0 ? 8 : (unsigned)__builtin_ctzll(others) / 8;
}

/* Returns the number that the first `count` of the eight digits make. Shifts them behind leading
 * zeros, then joins 2, 4 and 8 digits at a time. */
static inline uint64_t sum_digits(uint64_t eight, unsigned count)
{
    eight = eight << (32 - 4 * count)
                  << (32 - 4 * count); /* in two steps, because a shift by 64 is undefined */
    eight = (eight * 10 + (eight >> 8)) & UINT64_C(0x00ff00ff00ff00ff);
    eight = (eight * 100 + (eight >> 16)) & UINT64_C(0x0000ffff0000ffff);
    return (eight * 10000 + (eight >> 32)) & UINT64_C(0xffffffff);
}

enum { READ_DIGITS = 16 };

/* Reads up to 16 digits at `at`, where 16 bytes must be readable. Returns how many digits there
 * are. */
static inline unsigned read_digits(const char *at, uint64_t *value)
{
    const uint64_t first = load_eight(at);
    const unsigned count = count_digits(first);
    *value = sum_digits(first, count);
    if (count < 8)
        return count;
    const uint64_t second = load_eight(at + 8);
    const unsigned more = count_digits(second);
    *value = *value * tens[more] + sum_digits(second, more);
    return 8 + more;
}

/* Reads digits into the mantissa. `step` is 0 before the decimal point and -1 behind it. */
__attribute__((always_inline)) static inline const char *
scan_digits(const char *at, const char *end, int step, struct qd_json_number *number)
{
    uint64_t value;
    while (end - at >= READ_DIGITS) { /* many digits at once, while they fit into the mantissa */
        const unsigned count = read_digits(at, &value);
        if (number->mantissa >= tens[MANTISSA_DIGITS - count])
            break;
        number->mantissa = number->mantissa * tens[count] + value;
        number->exponent += (int)count * step;
        at += count;
        if (count < READ_DIGITS)
            return at;
    }
    for (; is_digit(at, end); at++) {
        if (number->mantissa < tens[MANTISSA_DIGITS - 1]) {
            number->mantissa = number->mantissa * 10 + (uint64_t)(*at - '0');
            number->exponent += step;
        } else {
            number->exponent += step + 1;
            number->more |= *at != '0';
        }
    }
    return at;
}

/* Reads the exponent behind the 'e'. Returns its end. If the end is `at` or just behind a sign,
 * there is no digit. */
static const char *scan_exponent(const char *at, const char *end, int64_t *exponent)
{
    const bool negative = at < end && *at == '-';
    int64_t magnitude = 0;
    if (at < end && (*at == '-' || *at == '+'))
        at++;
    for (; is_digit(at, end); at++)
        magnitude = magnitude < EXPONENT_MAX ? magnitude * 10 + (*at - '0') : EXPONENT_MAX;
    *exponent = negative ? -magnitude : magnitude;
    return at;
}

/* Reads a number. It is inline so that loops over rows of numbers keep it in registers. */
__attribute__((always_inline)) static inline const char *scan(const char *at, const char *end,
                                                              struct qd_json_number *number)
{
    *number = (struct qd_json_number){.text = at, .whole = true};
    number->negative = at < end && *at == '-';
    const char *digits = at + number->negative; /* no branch, because signs are unpredictable */
    at = scan_digits(digits, end, 0, number);
    bool is_complete = at != digits;
    if (is_complete && *digits == '0' && at != digits + 1) { /* no digit may follow a leading 0 */
        at = digits + 1;
        number->mantissa = 0;
        number->exponent = 0;
        number->more = false;
    } else if (is_complete && at < end && *at == '.') {
        const char *fraction = at + 1;
        at = scan_digits(fraction, end, -1, number);
        number->whole = false;
        is_complete = at != fraction;
    }
    if (is_complete && at < end && (*at == 'e' || *at == 'E')) {
        int64_t exponent;
        at = scan_exponent(at + 1, end, &exponent);
        number->exponent += exponent;
        number->whole = false;
        is_complete = is_digit(at - 1, end);
    }
    number->bytes = (size_t)(at - number->text);
    return is_complete ? at : NULL;
}

const char *qd_json_number_scan(const char *at, const char *end, struct qd_json_number *number)
{
    return scan(at, end, number);
}

/* ---- Integers ---------------------------------------------------------------------------- */

bool qd_json_number_to_int64(const struct qd_json_number *number, int64_t *value)
{
    uint64_t limit = (uint64_t)INT64_MAX + number->negative;
    bool negative_zero = number->negative && number->mantissa == 0;
    if (!number->whole || number->exponent != 0 || negative_zero || number->mantissa > limit)
        return false;
    *value = (int64_t)(number->negative ? 0 - number->mantissa : number->mantissa);
    return true;
}

bool qd_json_number_to_uint64(const struct qd_json_number *number, uint64_t *value)
{
    *value = number->mantissa;
    if (!number->whole || number->negative)
        return false;
    if (number->exponent == 0)
        return true;
    /* The largest integers have one digit more than the mantissa. */
    const uint64_t last = (uint64_t)(number->text[number->bytes - 1] - '0');
    return number->exponent == 1 && !__builtin_mul_overflow(*value, UINT64_C(10), value) &&
           !__builtin_add_overflow(*value, last, value);
}

/* ---- Floats, in any case ------------------------------------------------------------------ */

/* The midpoint of two floats has at most 113 significant digits (an odd number below 2^25, times
 * 2^-150), and a float has fewer. The first DIGITS_KEPT digits of a number, with a 1 appended if
 * other digits than zeros follow, therefore lie on the same side of every midpoint as the whole
 * number. strtof, which rounds correctly, gives the float of the whole number for them. */
enum { DIGITS_KEPT = 128 };

struct digits {
    char text[DIGITS_KEPT + 32]; /* the digits, then "e" and the exponent of the last digit */
};

static struct digits collect(const struct qd_json_number *number)
{
    struct digits digits;
    bool more = false;
    int count = 0;
    const char *end = number->text + number->bytes;
    for (const char *at = number->text; at < end && *at != 'e' && *at != 'E'; at++) {
        bool significant = is_digit(at, end) && (count > 0 || *at != '0');
        if (significant && count < DIGITS_KEPT)
            digits.text[count++] = *at;
        else if (significant && *at != '0')
            more = true;
    }
    int64_t exponent = number->exponent; /* the exponent of the mantissa's last digit */
    exponent -= count > MANTISSA_DIGITS ? count - MANTISSA_DIGITS : 0;
    if (more) {
        digits.text[count++] = '1';
        exponent--;
    }
    snprintf(digits.text + count, sizeof(digits.text) - (size_t)count, "e%d",
             exponent > 9999    ? 9999
             : exponent < -9999 ? -9999
                                : (int)exponent);
    return digits;
}

static float slow_float(const struct qd_json_number *number)
{
    const struct digits digits = collect(number);
    const float value = strtof(digits.text, NULL);
    return number->negative ? -value : value;
}

/* Returns the number rounded to odd: strtof rounds it toward zero and says whether that was exact.
 */
static float slow_odd(const struct qd_json_number *number)
{
    const struct digits digits = collect(number);
    const int mode = fegetround();
    uint32_t bits;
    feclearexcept(FE_INEXACT);
    fesetround(FE_TOWARDZERO);
    float value = strtof(digits.text, NULL);
    fesetround(mode);
    memcpy(&bits, &value, sizeof(bits));
    bits |= fetestexcept(FE_INEXACT) != 0;
    memcpy(&value, &bits, sizeof(value));
    return number->negative ? -value : value;
}

/* ---- Floats, in most cases --------------------------------------------------------------- */

/* Below the first power of ten, a mantissa of 19 digits is less than half the smallest float. Above
 * the last one it is more than the largest float. */
enum { EXPONENT_FIRST = QD_POWER_FIRST, EXPONENT_LAST = 38 };

/* A number as the bits of a float without sign, followed by 40 more bits of precision. */
struct extended {
    uint32_t bits;
    uint64_t fraction;
};
#define INFINITY_BITS UINT32_C(0x7f800000)
#define FRACTION_ONE (UINT64_C(1) << 40)

/* The error of the fraction is less than this. The rounded power adds up to 1, the rounded product
 * up to 1, and digits that the mantissa lacks up to 16. Doubling the product doubles all of these.
 */
enum { NEAR = 40 };

/* Computes mantissa * 10^exponent. The mantissa is not 0, the exponent is in the range above. After
 * D. Lemire, "Number parsing at a gigabyte per second" (2021), but with 64 bits of the power
 * instead of 128. The rare numbers for which 64 bits do not decide are left to strtof. */
static inline struct extended extend(uint64_t mantissa, int exponent)
{
    const int zeros = __builtin_clzll(mantissa);
    uint64_t high =
        qd_multiply_high(mantissa << zeros, qd_powers_of_ten[exponent - QD_POWER_FIRST]);
    const int shift = high >> 63 == 0;
    high <<= shift;
    int biased = qd_floor_log2_pow10(exponent) + 64 - zeros - shift + 127;
    if (biased < 1) { /* a subnormal float */
        high = biased > -63 ? high >> (1 - biased) : 0;
        biased = 1;
    }
    /* The leading bit of a normal float is implicit, so adding it increments the exponent. */
    return (struct extended){((uint32_t)(biased - 1) << 23) + (uint32_t)(high >> 40),
                             high & (FRACTION_ONE - 1)};
}

/* Makes a float of bits without sign. Bits beyond infinity's give infinity. */
static inline float make_float(uint32_t bits, bool negative)
{
    float value;
    bits = (bits < INFINITY_BITS ? bits : INFINITY_BITS) | (uint32_t)negative << 31;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static inline float to_float(const struct qd_json_number *number)
{
    if (number->exponent == 0 && !number->more) {
        const float value = (float)number->mantissa;
        uint32_t bits;
        memcpy(&bits, &value, sizeof(bits));
        return make_float(bits, number->negative);
    }
    if (number->mantissa == 0 || number->exponent < EXPONENT_FIRST)
        return make_float(0, number->negative);
    if (number->exponent > EXPONENT_LAST)
        return make_float(INFINITY_BITS, number->negative);
    const struct extended extended = extend(number->mantissa, (int)number->exponent);
    if (extended.fraction - FRACTION_ONE / 2 + NEAR <= 2 * NEAR) {
        const struct qd_json_number copy =
            *number; /* a copy, so that the original stays in registers */
        return slow_float(&copy);
    }
    return make_float(extended.bits + (extended.fraction > FRACTION_ONE / 2), number->negative);
}

float qd_json_number_to_float(const struct qd_json_number *number)
{
    return to_float(number);
}

/* 5^27 is the largest power of five in 64 bits. */
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
    /* M * 10^e = M * 5^e * 2^e. For e < 0, M / 5^-e is either a whole number or not a binary
     * fraction. */
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
    float exact;
    if (number->mantissa != 0 && number->exponent > EXPONENT_LAST)
        return make_float(INFINITY_BITS, number->negative);
    if (number->mantissa != 0 && number->exponent >= EXPONENT_FIRST) {
        const struct extended extended = extend(number->mantissa, (int)number->exponent);
        if (extended.fraction > NEAR && extended.fraction < FRACTION_ONE - NEAR)
            return make_float(extended.bits | 1, number->negative);
    }
    /* The number is so close to a float that the fraction does not decide. */
    return qd_json_number_exact(number, &exact) ? exact : slow_odd(number);
}

/* ---- Rows -------------------------------------------------------------------------------- */

/* Skips spaces, to the number behind a comma. */
static inline const char *skip_space(const char *at, const char *end)
{
    while (at < end && qd_json_is_space(*at))
        at++;
    return at;
}

size_t qd_json_floats_read(const char **at, const char *end, float *values, size_t count)
{
    const char *next = *at;
    size_t index = 0;
    for (char separator = ','; separator == ',' && index < count; next++) {
        struct qd_json_number number;
        next = scan(skip_space(next, end), end, &number);
        if (next == NULL || next == end)
            break;
        separator = *next;
        if (separator != ',' && separator != ']')
            break;
        const float value = to_float(&number);
        if (isinf(value))
            break;
        values[index++] = value;
        *at = next;
    }
    return index;
}

/* Like read_digits, but one digit at a time, near the end of the text, where 16 bytes cannot be
 * read. Returns 0 if the digits reach the end of the text. */
static unsigned read_last_digits(const char *at, const char *end, uint64_t *value)
{
    const char *begin = at;
    for (*value = 0; is_digit(at, end); at++)
        *value = *value * 10 + (uint64_t)(*at - '0');
    return at == end ? 0 : (unsigned)(at - begin);
}

/* Reads integers. The end of a number is known late, and the next number waits for it. If is_signed
 * is false, it does not also wait for a sign. Stores the lowest value_bytes bytes of each, 4 or 8.
 */
__attribute__((always_inline)) static inline size_t read_integers(const char **at, const char *end,
                                                                  bool is_signed, int64_t min,
                                                                  int64_t max, char *values,
                                                                  size_t value_bytes, size_t count)
{
    const uint64_t range = (uint64_t)max - (uint64_t)min;
    const char *next = *at;
    size_t index = 0;
    for (char separator = ','; separator == ',' && index < count; next++) {
        uint64_t magnitude;
        next = skip_space(next, end);
        const bool negative = is_signed && next < end && *next == '-'; /* no branch, as in scan() */
        const char *digits = next + negative;
        const unsigned digit_count = end - digits > READ_DIGITS
                                         ? read_digits(digits, &magnitude)
                                         : read_last_digits(digits, end, &magnitude);
        const uint64_t value = negative ? 0 - magnitude : magnitude;
        next = digits + digit_count;
        if (digit_count == 0 || (*digits == '0' && (digit_count > 1 || negative)) ||
            value - (uint64_t)min > range)
            break;
        separator = *next;
        if (separator != ',' && separator != ']')
            break;
        memcpy(values + index++ * value_bytes, &value, value_bytes);
        *at = next;
    }
    return index;
}

size_t qd_json_integers_read(const char **at, const char *end, int64_t min, int64_t max,
                             uint32_t *values, size_t count)
{
    return min < 0 ? read_integers(at, end, true, min, max, (char *)values, 4, count)
                   : read_integers(at, end, false, min, max, (char *)values, 4, count);
}

size_t qd_json_int64s_read(const char **at, const char *end, int64_t *values, size_t count)
{
    return read_integers(at, end, true, INT64_MIN, INT64_MAX, (char *)values, 8, count);
}
