/* A client that only measures. It posts the same request again and again on persistent HTTP/1.1
 * connections, with one request at a time on each, and checks only the status and length of an
 * answer. There are also two servers for comparison, which do the least that is possible with the
 * same bytes, without and with libmicrohttpd. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct bench_exchange {
    const char *request; /* head and body */
    size_t request_bytes;
    const char *address; /* as in reach.h */
    size_t connection_count;
    uint64_t for_ns; /* but at least until there are three answers, and as many as connections */
    double rate;     /* requests per second, due at random times; 0: send one after each answer */
};

struct bench_exchanged {
    size_t count;  /* number of answers after the warm-up */
    double ns;     /* from the first of these answers to the last */
    double p50_ns; /* from the first byte sent, or the due time, to the last byte received */
    double p99_ns;
};

/* Ends the process if an answer's status is not 200, or if a connection ends. */
struct bench_exchanged bench_exchange(const struct bench_exchange *exchange);

/* Threads that read requests of a fixed number of bytes and answer each with a short head and a
 * fixed number of bytes, on any number of connections. They do nothing else with the bytes. The
 * address is one of reach.h. */
struct bench_echo;
struct bench_echo *bench_echo_create(size_t request_bytes, size_t answer_bytes, size_t thread_count,
                                     const char *address);
uint16_t bench_echo_port(const struct bench_echo *echo);
void bench_echo_destroy(struct bench_echo *echo); /* NULL is fine */

/* libmicrohttpd, configured like in quantd, on one thread. It reads a request and always gives the
 * same answer. `answer` holds the head and body of an answer; headers that the library adds itself
 * are left out. */
struct bench_constant_server;
struct bench_constant_server *bench_constant_server_create(const char *answer, size_t bytes);
uint16_t bench_constant_server_port(const struct bench_constant_server *server);
void bench_constant_server_destroy(struct bench_constant_server *server); /* NULL is fine */
