/* Sockets of the bench's own servers and clients. An address is a port of 127.0.0.1, or the path of
 * a Unix socket, which has a '/'. */
#ifndef TESTS_BENCH_MEASURE_REACH_H
#define TESTS_BENCH_MEASURE_REACH_H

#include <stdint.h>

/* Both end the process where it cannot be done. They block; what is accepted does not. */
int bench_connect(const char *address);
int bench_listen(const char *address); /* "0": any port; a path's old socket is replaced */
uint16_t bench_port(int listen_fd);    /* 0: a Unix socket */
int bench_accept(int listen_fd);       /* -1: nobody waits any more */

#endif
