/* A client that only measures: it posts the same request again and again, on some connections of
 * HTTP/1.1 that stay open, each with one request at a time, and looks at no more of an answer than
 * its status and its length. And the least that a server could do with the same bytes, and with
 * libmicrohttpd. */
#ifndef TESTS_BENCH_MEASURE_EXCHANGE_H
#define TESTS_BENCH_MEASURE_EXCHANGE_H

#include <stddef.h>
#include <stdint.h>

struct bench_exchange {
    const char *request; /* head and body */
    size_t request_bytes;
    const char *address; /* as in reach.h */
    size_t connection_count;
    uint64_t for_ns; /* and until there are three answers, and as many as connections */
    double rate;     /* of requests that come, whether or not there are answers, in a second, at
                        random times; 0: each connection's next one as soon as it has its answer */
};

struct bench_exchanged {
    size_t count;  /* of answers, after those that warm up */
    double ns;     /* from the first of them to the last */
    double p50_ns; /* from the request's first byte sent, or from when it came where there is a
                      rate, to the answer's last byte there */
    double p99_ns;
};

/* Ends the process where an answer is no 200, or a connection ends. */
struct bench_exchanged bench_exchange(const struct bench_exchange *exchange);

/* Threads that take so many bytes for a request, and answer so many behind a short head, on any
 * number of connections: nothing else is done with them. The address is one of reach.h. */
struct bench_echo;
struct bench_echo *bench_echo_create(size_t request_bytes, size_t answer_bytes, size_t thread_count,
                                     const char *address);
uint16_t bench_echo_port(const struct bench_echo *echo);
void bench_echo_destroy(struct bench_echo *echo); /* NULL is fine */

/* libmicrohttpd, set up as quantd does it, on one thread: it reads a request, and answers always
 * the same. `answer`: head and body of an answer; what the library adds itself is left out. */
struct bench_constant_server;
struct bench_constant_server *bench_constant_server_create(const char *answer, size_t bytes);
uint16_t bench_constant_server_port(const struct bench_constant_server *server);
void bench_constant_server_destroy(struct bench_constant_server *server); /* NULL is fine */

#endif
