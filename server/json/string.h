/* JSON strings, as strictly as RFC 8259 has them: valid UTF-8, no control character, known escapes,
 * paired surrogates. One rule more: no \u0000, where C strings (and many a client) would end. */
#ifndef SERVER_JSON_STRING_H
#define SERVER_JSON_STRING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "server/memory/text.h"

/* Moves *at, inside a string, to behind its closing quote (*closed), or not far behind `pause`,
 * where the next call goes on, and returns NULL; or moves it to the first fault and returns what
 * was expected there. The text goes up to `end`. */
const char *qd_json_string_scan(const char **at, const char *pause, const char *end, bool *closed);

/* Copies the string that goes on at `at`, where it is short and ASCII that stands for itself, to
 * *out, where there is room for QD_JSON_PLAIN_BYTES, with NULs behind it up to a
 * multiple of eight bytes, one at the least: *out becomes their end. Returns its closing quote.
 * NULL: it is another string, for the functions before and behind this. Inline: keys and names are
 * so short. */
#define QD_JSON_PLAIN_BYTES 64
static inline const char *qd_json_string_copy_plain(const char *at, const char *end, char **out)
{
    const char *last = end - at > QD_JSON_PLAIN_BYTES ? at + QD_JSON_PLAIN_BYTES : end;
    for (; last - at >= 8; at += 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        const uint64_t odd = qd_json_find_odd(word);
        if (odd != 0)
            word &= ((odd & (0 - odd)) >> 7) - 1; /* the bytes before it */
        memcpy(*out, &word, 8);
        *out += 8;
        if (odd != 0) {
            at += __builtin_ctzll(odd) / 8;
            return *at == '"' ? at : NULL;
        }
    }
    return NULL;
}

/* Copies what the valid string text[0..bytes), without its quotes, means. Returns its bytes, which
 * are not more; there is no NUL among them. */
size_t qd_json_string_decode(const char *text, size_t bytes, char *out);

/* The value of the four hexadecimal digits at `at`, all before `end`; -1: there are none. */
long qd_json_hex4(const char *at, const char *end);

#endif
