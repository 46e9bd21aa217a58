/* JSON strings, strictly as in RFC 8259: valid UTF-8, no control characters, known escapes, paired
 * surrogates. One more rule: no \u0000, because C strings, and those of many clients, would end
 * there. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "server/memory/text.h"

/* Scans a string from *at, which is inside the string, to its closing quote or to `pause`. Returns
 * NULL and moves *at behind the closing quote (*closed is then true), or not far behind `pause`
 * (*closed is then false, and the next call continues there). If the string is invalid, moves *at
 * to the first fault and returns what was expected there. The text ends at `end`. */
const char *qd_json_string_scan(const char **at, const char *pause, const char *end, bool *closed);

/* Copies a string that begins at `at` if it is short and plain ASCII without escapes. *out must
 * have room for QD_JSON_PLAIN_BYTES. Appends at least one NUL, up to a multiple of eight bytes, and
 * sets *out to their end. Returns the closing quote, or NULL for any other string; the caller then
 * uses qd_json_string_scan and qd_json_string_decode. It is inline because keys and names are
 * short. */
#define QD_JSON_PLAIN_BYTES 64
static inline const char *qd_json_string_copy_plain(const char *at, const char *end, char **out)
{
    const char *last = end - at > QD_JSON_PLAIN_BYTES ? at + QD_JSON_PLAIN_BYTES : end;
    for (; last - at >= 8; at += 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        const uint64_t odd = qd_json_find_odd(word);
        if (odd != 0)
            word &= ((odd & (0 - odd)) >> 7) - 1; /* keeps the bytes before the quote */
        memcpy(*out, &word, 8);
        *out += 8;
        if (odd != 0) {
            at += __builtin_ctzll(odd) / 8;
            return *at == '"' ? at : NULL;
        }
    }
    return NULL;
}

/* Decodes the valid string text[0..bytes), given without its quotes, into `out`. Returns the length
 * of the result, which is at most `bytes` and contains no NUL. */
size_t qd_json_string_decode(const char *text, size_t bytes, char *out);

/* Returns the value of the four hexadecimal digits at `at`, or -1 if there are not four before
 * `end`. */
long qd_json_hex4(const char *at, const char *end);
