/* Numbers between JSON text and machine, exactly. Pure, locale-free but for strtof's C locale. */
#ifndef SERVER_JSON_NUMBER_H
#define SERVER_JSON_NUMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A number's text, taken apart: its value is mantissa * 10^exponent, and a little more (less than
 * one unit of the mantissa) when not all digits fit. */
struct qd_json_number {
    const char *text; /* borrowed */
    size_t bytes;
    uint64_t mantissa; /* the first 19 significant digits */
    int64_t exponent;
    bool more; /* a digit other than 0 did not fit */
    bool negative;
    bool whole; /* written without fraction and exponent */
};

/* Reads the RFC 8259 number at the start of [at, end). Returns its end, or NULL: there is none;
 * number->bytes is then where a digit was missing. */
const char *qd_json_number_scan(const char *at, const char *end, struct qd_json_number *number);

static inline bool qd_json_is_space(char byte)
{
    return byte == ' ' || byte == '\n' || byte == '\r' || byte == '\t';
}

#define QD_DIGITS_MAX 18

/* Reads digits as a number has them before its point, as far as they are few, at most 18, as those
 * of sizes are: none may stand behind a first 0. Returns their end; NULL: there are none, or more.
 */
static inline const char *qd_json_digits_read(const char *at, const char *end, uint64_t *value)
{
    const char *begin = at;
    const char *stop = end - at > QD_DIGITS_MAX + 1 ? at + QD_DIGITS_MAX + 1 : end;
    *value = 0;
    for (; at < stop; at++) {
        const unsigned digit = (unsigned)*at - '0';
        if (digit > 9)
            break;
        *value = *value * 10 + digit;
    }
    const ptrdiff_t count = at - begin;
    return count == 0 || count > QD_DIGITS_MAX || (count > 1 && *begin == '0') ? NULL : at;
}

/* false: fraction, exponent, "-0", or beyond int64. */
bool qd_json_number_to_int64(const struct qd_json_number *number, int64_t *value);

/* false: fraction, exponent, a sign, or beyond uint64. */
bool qd_json_number_to_uint64(const struct qd_json_number *number, uint64_t *value);

/* The nearest float, ties to even; +-infinity beyond the range. */
float qd_json_number_to_float(const struct qd_json_number *number);

/* The number itself; false: no float is equal to it. Finds each float of at most 19 significant
 * digits that is 0 or has a magnitude in [1e-9, 1e18]; beyond these it may say false, too. */
bool qd_json_number_exact(const struct qd_json_number *number, float *value);

/* Rounded to odd: the number itself if it is a float, otherwise that of the two floats around it
 * whose lowest bit is set (or an infinity). Rounding that again to a type with at least two
 * significant bits less, at all magnitudes, such as FP16 and BF16, is one rounding of the number.
 */
float qd_json_number_to_odd(const struct qd_json_number *number);

/* Reads an integer of at most 18 digits: who calls judges what stands behind it. Returns its end;
 * NULL: there is none, such as "-0". */
const char *qd_json_integer_read(const char *at, const char *end, int64_t *value);

/* Reads floats in a row, with commas between and perhaps spaces before them, up to one with a
 * bracket behind it, or before whatever else comes, an infinite one among it. Returns how many; *at
 * becomes the end of the last one. */
size_t qd_json_floats_read(const char **at, const char *end, float *values, size_t count);

/* The same of integers in [min, max], of which the lowest 32 bits are kept. */
size_t qd_json_integers_read(const char **at, const char *end, int64_t min, int64_t max,
                             uint32_t *values, size_t count);

/* Enough for what one of the print functions writes, which may be more than it returns. */
#define QD_PRINT_BYTES_MAX 24

/* Print without a NUL, and return the end. */
char *qd_print_int64(char *out, int64_t value);

/* The shortest decimal that reads back to the same float, of these the closest; but a whole number
 * below 10^9 with all its digits, which are no more. Who reads it as a double and rounds that to a
 * float gets the same, too. "NaN", "Infinity" and "-Infinity" are in quotes, as in protobuf's JSON
 * mapping. */
char *qd_print_float(char *out, float value);

/* The same of several, each with a comma behind it. Much faster a float, from 16 on. Room:
 * QD_PRINT_BYTES_MAX for each. */
char *qd_print_floats(char *out, const float *values, size_t count);

#endif
