/* JSON's numbers: the server's reader and printer beside others that do the same with the same
 * text. Those others are in a library of their own, build/bench/numbers.so, which peers/numbers.cpp
 * makes and nothing but the benchmark loads. */
#ifndef TESTS_BENCH_MEASURE_NUMBERS_H
#define TESTS_BENCH_MEASURE_NUMBERS_H

#include <stdbool.h>
#include <stddef.h>

struct bench_numbers;

/* `task`: "read" a request with an input of so many numbers, or "print" them. `kind`: which
 * numbers; the names are in numbers.c. `library`: "-" for none. Ends the process where there is no
 * memory, or no such kind. */
struct bench_numbers *bench_numbers_create(const char *task, const char *kind, size_t count,
                                           const char *library);
void bench_numbers_destroy(struct bench_numbers *numbers); /* NULL is fine */

/* Bytes of the text that is read, or that the last run printed. */
size_t bench_numbers_bytes(const struct bench_numbers *numbers);

/* Has `name` do it once: "quantd", "libc" (strtof and strtoll, or printf's %.9g), or one of the
 * library's. False: there is no such name here. */
bool bench_numbers_run(struct bench_numbers *numbers, const char *name);

/* Of the last run: were these the numbers? Printed ones are read again by strtof. */
bool bench_numbers_same(const struct bench_numbers *numbers);

/* Prints each float from `first` to `last`, bits between 0 and 2^32 - 1, and reads it again. How
 * many did not come back with the same bits, or are other digits than std::to_chars has, the
 * library's; the first of them is said on standard error. NaN and infinities are left out. */
size_t bench_numbers_check(const char *library, size_t first, size_t last);

#endif
