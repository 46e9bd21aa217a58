/* Converts one element of a float type, of INT64 or of BOOL between JSON text and bits. Pure.
 *
 *   FP32, FP16, BF16   The decimal is rounded once, to nearest even. It is refused if the result is
 *                      infinite.
 *   FP4*, FP8*         Only values that the type has exactly are accepted. "-0" is refused if the
 *                      type has no -0.
 *   FP8E8M0            As FP8*, but the number is first rounded to FP32: all values of the type are
 *                      powers of two, which have up to 89 digits, and clients write only as many
 *                      digits as a float or a double needs.
 *   all float types    "NaN", "Infinity" and "-Infinity" (protobuf's JSON mapping), if the type has
 *                      the value. Input may also be without quotes.
 *   INT64              An integer, with or without quotes. protobuf's JSON mapping writes quotes,
 *                      because doubles do not hold all of them. Printed without quotes.
 *   BOOL               true or false. Input may also be 1 or 0.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/qk.h"
#include "server/json/number.h"

/* Returns whether a number or a word may end at `at`. */
static inline bool qd_json_element_ends(const char *at, const char *end)
{
    return at == end || *at == ',' || *at == ']' || qd_json_is_space(*at);
}

/* Reads a number or a word that begins at `at`. Returns its end, or NULL if there is none or the
 * type cannot represent it. */
const char *qd_json_float_read(enum qk_type type, const char *at, const char *end, uint32_t *bits);

/* Prints what was expected instead of the value at `at`, for an error: "a value of FP4E2M1, such as
 * 3 or 4". */
void qd_json_float_expected(enum qk_type type, const char *at, const char *end, char *text,
                            size_t size);

/* Read an element of INT64 or BOOL that begins at `at`. Return its end, or NULL if there is none.
 */
const char *qd_json_int64_read(const char *at, const char *end, int64_t *value);
const char *qd_json_bool_read(const char *at, const char *end, bool *value);

/* Prints the element as the shortest decimal of its FP32 value, or as a word in quotes. FP4* and
 * FP8* are printed with all digits, so that they can be read again. Returns the end. Writes at most
 * QD_PRINT_BYTES_MAX bytes. */
char *qd_json_float_print(enum qk_type type, uint32_t bits, char *out);
