/* The files of tests/data that hold one case a line, as JSON. */
#ifndef TESTS_SUPPORT_CASES_H
#define TESTS_SUPPORT_CASES_H

#include <cjson/cJSON.h>
#include <stddef.h>

/* Calls `run` with each line of the file, and `context`. Returns how many lines there are. Fails
 * the test if the file cannot be opened, or if a line is not JSON. */
size_t cases_run(const char *path, void (*run)(const cJSON *line, const void *context),
                 const void *context);

/* Returns the string at `key`. Fails the test if there is none. */
const char *cases_string(const cJSON *object, const char *key);

/* Writes the bytes that the digits of `hex` mean to `out`. Returns how many these are. */
size_t cases_read_hex(const char *hex, void *out);

#endif
