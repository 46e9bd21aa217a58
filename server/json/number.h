/* Converts numbers between JSON text and binary, exactly. Pure. Independent of the locale, except
 * that strtof needs the C locale. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A parsed number. Its magnitude is mantissa * 10^exponent, or larger by less than 10^exponent if
 * not all digits fit into the mantissa. */
struct qd_json_number {
    const char *text; /* borrowed */
    size_t bytes;
    uint64_t mantissa; /* the first 19 significant digits */
    int64_t exponent;
    bool more; /* a digit that is not 0 did not fit */
    bool negative;
    bool whole; /* the text has no fraction and no exponent */
};

/* Reads the RFC 8259 number at the start of [at, end). Returns its end, or NULL if there is none;
 * number->bytes is then the offset at which a digit is missing. */
const char *qd_json_number_scan(const char *at, const char *end, struct qd_json_number *number);

static inline bool qd_json_is_space(char byte)
{
    return byte == ' ' || byte == '\n' || byte == '\r' || byte == '\t';
}

#define QD_DIGITS_MAX 18

/* Reads 1 to 18 digits, such as those of a size. A leading 0 must be the only digit. Returns their
 * end, or NULL if there are no digits or too many. */
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

/* Returns false if the number has a fraction or an exponent, is "-0", or is outside int64. */
bool qd_json_number_to_int64(const struct qd_json_number *number, int64_t *value);

/* Returns false if the number has a fraction, an exponent or a sign, or is outside uint64. */
bool qd_json_number_to_uint64(const struct qd_json_number *number, uint64_t *value);

/* Returns the nearest float, ties to even, or an infinity if the number is out of range. */
float qd_json_number_to_float(const struct qd_json_number *number);

/* Sets *value to the float that equals the number. Returns false if no float does. It is exact for
 * numbers of at most 19 significant digits that are 0 or have a magnitude in [1e-9, 1e18]. For
 * other numbers it may return false although a float is equal. */
bool qd_json_number_exact(const struct qd_json_number *number, float *value);

/* Returns the number rounded to odd: the number itself if it is a float, otherwise the one of the
 * two floats around it whose lowest bit is set, or an infinity. Rounding the result to a type with
 * at least two significant bits less at all magnitudes, such as FP16 and BF16, gives the same as
 * rounding the number once. */
float qd_json_number_to_odd(const struct qd_json_number *number);

/* Reads at most `count` floats separated by commas, with optional spaces before each. Stops after a
 * float that is followed by "]". Stops before a number that is followed by other text, before one
 * that is out of range, and before anything that is not a number. Returns how many floats it read,
 * and sets *at to the end of the last one. */
size_t qd_json_floats_read(const char **at, const char *end, float *values, size_t count);

/* Like qd_json_floats_read, for integers in [min, max]. Stores their lowest 32 bits. */
size_t qd_json_integers_read(const char **at, const char *end, int64_t min, int64_t max,
                             uint32_t *values, size_t count);

/* Like qd_json_floats_read, for integers. Also stops before an integer of more than 16 digits,
 * which is rare. */
size_t qd_json_int64s_read(const char **at, const char *end, int64_t *values, size_t count);

/* How many bytes a print function may write. That may be more than the length it returns. */
#define QD_PRINT_BYTES_MAX 24

/* Prints without a NUL. Returns the end. */
char *qd_print_int64(char *out, int64_t value);

/* Prints the shortest decimal that reads back as the same float. Of several such decimals it prints
 * the one that is closest to the float. Whole numbers below 10^9 are printed with all digits and no
 * exponent, which never makes them longer. A reader that reads a double and rounds it to float gets
 * the same float. "NaN", "Infinity" and "-Infinity" are in quotes, as in protobuf's JSON mapping.
 */
char *qd_print_float(char *out, float value);

/* Prints several floats, each followed by a comma. From 16 floats on it is much faster than
 * qd_print_float. `out` needs QD_PRINT_BYTES_MAX bytes for each float. */
char *qd_print_floats(char *out, const float *values, size_t count);
