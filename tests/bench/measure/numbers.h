/* Compares the server's reader and printer of JSON numbers with other libraries on the same text.
 * The other libraries are linked into build/bench/numbers.so, which is built from peers/numbers.cpp
 * and loaded by the benchmark only. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct bench_numbers;

/* `task` is "read" for reading a request with an input of `count` numbers, or "print" for printing
 * the numbers. `kind` says which numbers; numbers.c has the names. `library` is "-" for none. Ends
 * the process if there is no memory or no such kind. */
struct bench_numbers *bench_numbers_create(const char *task, const char *kind, size_t count,
                                           const char *library);
void bench_numbers_destroy(struct bench_numbers *numbers); /* NULL is fine */

/* Returns how many bytes of text are read, or were printed by the last run. */
size_t bench_numbers_bytes(const struct bench_numbers *numbers);

/* Runs the task once by `name`: "quantd", "libc" (strtof and strtoll, or printf's %.9g), or a name
 * of the library. Returns false if the name is unknown. */
bool bench_numbers_run(struct bench_numbers *numbers, const char *name);

/* Returns true if the last run gave the right numbers. Printed numbers are read again by strtof. */
bool bench_numbers_same(const struct bench_numbers *numbers);

/* Prints each float whose bits are from `first` to `last`, which are between 0 and 2^32 - 1, and
 * reads the text again. Returns how many floats came back with other bits, or were printed with
 * other digits than the library's std::to_chars prints. Reports the first of these on standard
 * error. Skips NaN and infinities. */
size_t bench_numbers_check(const char *library, size_t first, size_t last);
