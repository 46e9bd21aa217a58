#define _GNU_SOURCE
#include "tests/bench/measure/reach.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/bench/measure/buffer.h"

enum { BACKLOG = 1024 };

union name {
    struct sockaddr any;
    struct sockaddr_in tcp;
    struct sockaddr_un local;
};

static socklen_t resolve(const char *address, union name *name)
{
    memset(name, 0, sizeof(*name));
    if (strchr(address, '/') != NULL) {
        name->local.sun_family = AF_UNIX;
        snprintf(name->local.sun_path, sizeof(name->local.sun_path), "%s", address);
        return sizeof(name->local);
    }
    name->tcp.sin_family = AF_INET;
    name->tcp.sin_port = htons((uint16_t)strtoul(address, NULL, 10));
    name->tcp.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return sizeof(name->tcp);
}

/* Makes the socket send small messages at once. A Unix socket has no such option. */
static int hurry(int fd)
{
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    return fd;
}

int bench_connect(const char *address)
{
    union name name;
    const socklen_t bytes = resolve(address, &name);
    const int fd = socket(name.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, &name.any, bytes) != 0)
        bench_fail("%s: connect: %s", address, strerror(errno));
    return hurry(fd);
}

int bench_listen(const char *address)
{
    union name name;
    const socklen_t bytes = resolve(address, &name);
    const int fd = socket(name.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (name.any.sa_family == AF_UNIX)
        unlink(name.local.sun_path);
    if (fd < 0 || bind(fd, &name.any, bytes) != 0 || listen(fd, BACKLOG) != 0)
        bench_fail("%s: listen: %s", address, strerror(errno));
    return fd;
}

uint16_t bench_port(int listen_fd)
{
    union name name;
    socklen_t bytes = sizeof(name);
    if (getsockname(listen_fd, &name.any, &bytes) != 0)
        bench_fail("getsockname: %s", strerror(errno));
    return name.any.sa_family == AF_INET ? ntohs(name.tcp.sin_port) : 0;
}

int bench_accept(int listen_fd)
{
    const int fd = accept4(listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0 && errno != EAGAIN)
        bench_fail("accept: %s", strerror(errno));
    return fd < 0 ? fd : hurry(fd);
}
