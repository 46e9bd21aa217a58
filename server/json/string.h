/* JSON strings, as strictly as RFC 8259 has them: valid UTF-8, no control character, known escapes,
 * paired surrogates. One rule more: no \u0000, where C strings (and many a client) would end. */
#ifndef SERVER_JSON_STRING_H
#define SERVER_JSON_STRING_H

#include <stdbool.h>
#include <stddef.h>

/* Moves *at, inside a string, to behind its closing quote (*closed), or not far behind `pause`,
 * where the next call goes on, and returns NULL; or moves it to the first fault and returns what
 * was expected there. The text goes up to `end`. */
const char *qd_json_string_scan(const char **at, const char *pause, const char *end, bool *closed);

/* Copies the string that goes on at `at`, where it is short and ASCII that stands for itself, with
 * a NUL behind it, into room for QD_JSON_PLAIN_BYTES, of which the rest is undefined. Returns its
 * closing quote. NULL: it is another string, for the functions before and behind this. */
#define QD_JSON_PLAIN_BYTES 64
const char *qd_json_string_copy_plain(const char *at, const char *end, char *out);

/* Copies what the valid string text[0..bytes), without its quotes, means. Returns its bytes, which
 * are not more; there is no NUL among them. */
size_t qd_json_string_decode(const char *text, size_t bytes, char *out);

/* The value of the four hexadecimal digits at `at`, all before `end`; -1: there are none. */
long qd_json_hex4(const char *at, const char *end);

#endif
