/* JSON strings, as strictly as RFC 8259 has them: valid UTF-8, no control character, known escapes,
 * paired surrogates. One rule more: no \u0000, where C strings (and many a client) would end. */
#ifndef SERVER_JSON_STRING_H
#define SERVER_JSON_STRING_H

#include <stdbool.h>

/* Moves *at from an opening quote to behind the closing one and returns NULL; or moves it to the
 * first fault and returns what was expected there. */
const char *qd_json_string_scan(const char **at, const char *end);

/* Does the valid JSON string at `string` spell `name` (ASCII letters)? Escapes may hide letters:
 * "d\u0061ta" is "data". */
bool qd_json_string_spells(const char *string, const char *name);
/* The same of its first characters. */
bool qd_json_string_begins(const char *string, const char *prefix);

/* The value of the four hexadecimal digits at `at`, all before `end`; -1: there are none. */
long qd_json_hex4(const char *at, const char *end);

#endif
