/* The contents of build/bench/numbers.so: readers and printers of other projects, by name. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* How many readable bytes must follow a text. */
#define BENCH_PEER_PADDING_BYTES 256

#ifdef __cplusplus
extern "C" {
#endif

/* Reads the request's inputs[0].data into `count` numbers with the reader `name`, "yyjson" or
 * "simdjson". The kinds are 'f' for floats, 'i' for integers of 32 bits and 'b' for bytes. Returns
 * false if there is no such reader, or if it read something else. */
bool bench_peer_read(const char *name, const char *text, size_t bytes, char kind, void *out,
                     size_t count);

/* Prints each float with a comma after it, with the printer `name`: "to_chars", "fmt", "dragonbox",
 * "double-conversion", "zmij", "xjb", or "scientific", which is to_chars with an exponent. Returns
 * how many bytes were printed, or 0 if there is no such printer. */
size_t bench_peer_print(const char *name, const float *values, size_t count, char *out);

typedef bool bench_peer_read_fn(const char *, const char *, size_t, char, void *, size_t);
typedef size_t bench_peer_print_fn(const char *, const float *, size_t, char *);

#ifdef __cplusplus
}
#endif
