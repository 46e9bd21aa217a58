/* What build/bench/numbers.so has: readers and printers of other projects, by name. */
#ifndef TESTS_BENCH_PEERS_NUMBERS_H
#define TESTS_BENCH_PEERS_NUMBERS_H

#include <stdbool.h>
#include <stddef.h>

/* Readable bytes behind a text. */
#define BENCH_PEER_PADDING_BYTES 256

#ifdef __cplusplus
extern "C" {
#endif

/* "yyjson", "simdjson": reads the request's inputs[0].data into so many numbers: 'f' floats, 'i' of
 * 32 bits, 'b' bytes. False: there is no such reader here, or it read something else. */
bool bench_peer_read(const char *name, const char *text, size_t bytes, char kind, void *out,
                     size_t count);

/* "to_chars", "fmt", "dragonbox", "double-conversion", "zmij", "xjb", and "scientific", which is
 * to_chars with an exponent: each float with a comma behind it. Returns the bytes; 0: there is no
 * such printer here. */
size_t bench_peer_print(const char *name, const float *values, size_t count, char *out);

typedef bool bench_peer_read_fn(const char *, const char *, size_t, char, void *, size_t);
typedef size_t bench_peer_print_fn(const char *, const float *, size_t, char *);

#ifdef __cplusplus
}
#endif

#endif
