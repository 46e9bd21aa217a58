/* Sockets of the benchmark's own servers and clients. An address is a port of 127.0.0.1, or the
 * path of a Unix socket, which contains a '/'. */
#pragma once

#include <stdint.h>

/* Both functions end the process on failure. Their sockets block; accepted sockets do not. */
int bench_connect(const char *address);
int bench_listen(const char *address); /* "0": any port; an old socket at a path is replaced */
uint16_t bench_port(int listen_fd);    /* 0: a Unix socket */
int bench_accept(int listen_fd);       /* -1: no connection is waiting */
