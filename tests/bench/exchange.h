/* A client that only measures: it posts the same request again and again, on some connections of
 * HTTP/1.1 that stay open, each with one request at a time, and looks at no more of an answer than
 * its status and its length. And the least that a server could do with the same bytes. */
#ifndef TESTS_BENCH_EXCHANGE_H
#define TESTS_BENCH_EXCHANGE_H

#include <stddef.h>
#include <stdint.h>

struct bench_exchange {
    const char *request; /* head and body */
    size_t request_bytes;
    uint16_t port; /* of 127.0.0.1 */
    size_t connection_count;
    uint64_t for_ns; /* and until each connection has had a few answers */
};

struct bench_exchanged {
    size_t count;  /* of answers, after those that warm up */
    double ns;     /* from the first of them to the last */
    double p50_ns; /* from the request's first byte sent to the answer's last byte there */
    double p99_ns;
};

/* Ends the process where an answer is no 200, or a connection ends. */
struct bench_exchanged bench_exchange(const struct bench_exchange *exchange);

/* A thread that takes so many bytes for a request, and answers so many behind a short head, on any
 * number of connections: nothing else is done with them. */
struct bench_echo;
struct bench_echo *bench_echo_create(size_t request_bytes, size_t answer_bytes);
uint16_t bench_echo_port(const struct bench_echo *echo);
void bench_echo_destroy(struct bench_echo *echo); /* NULL is fine */

#endif
