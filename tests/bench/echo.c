#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/bench/buffer.h"
#include "tests/bench/exchange.h"

enum { BACKLOG = 64, EVENTS_MAX = 64, HEAD_BYTES_MAX = 128 };

struct peer {
    struct bench_echo *echo;
    struct peer *next;
    int fd;
    size_t received;
    size_t sent;
    bool answering;
    struct bench_buffer request;
};

struct bench_echo {
    pthread_t thread;
    int poll_fd;
    int listen_fd;
    int end_fd;
    uint16_t port;
    size_t request_bytes;
    size_t answer_bytes; /* with its head */
    struct bench_buffer answer;
    struct peer *peers;
};

static void watch(int poll_fd, int operation, int fd, uint32_t events, void *what)
{
    struct epoll_event event = {.events = events, .data.ptr = what};
    if (epoll_ctl(poll_fd, operation, fd, &event) != 0)
        bench_fail("epoll_ctl: %s", strerror(errno));
}

static void accept_peer(struct bench_echo *echo)
{
    const int on = 1;
    const int fd = accept4(echo->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    struct peer *peer = calloc(1, sizeof(*peer));
    if (fd < 0 || !peer)
        bench_fail("echo: %s", strerror(errno));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    *peer = (struct peer){.echo = echo, .next = echo->peers, .fd = fd};
    bench_buffer_reserve(&peer->request, echo->request_bytes);
    echo->peers = peer;
    watch(echo->poll_fd, EPOLL_CTL_ADD, fd, EPOLLIN, peer);
}

/* Gone, or what it sent cannot be taken. */
static void leave(struct peer *peer)
{
    struct peer **link = &peer->echo->peers;
    while (*link != peer)
        link = &(*link)->next;
    *link = peer->next;
    close(peer->fd);
    free(peer->request.data);
    free(peer);
}

static bool send_more(struct peer *peer)
{
    const struct bench_echo *echo = peer->echo;
    while (peer->sent < echo->answer_bytes) {
        const ssize_t count = send(peer->fd, echo->answer.data + peer->sent,
                                   echo->answer_bytes - peer->sent, MSG_NOSIGNAL);
        if (count < 0 && errno != EAGAIN)
            return false;
        if (count < 0)
            break;
        peer->sent += (size_t)count;
    }
    const bool answering = peer->sent < echo->answer_bytes;
    if (answering != peer->answering)
        watch(echo->poll_fd, EPOLL_CTL_MOD, peer->fd, answering ? EPOLLOUT : EPOLLIN, peer);
    peer->answering = answering;
    if (!answering)
        peer->received = peer->sent = 0;
    return true;
}

static bool receive(struct peer *peer)
{
    const size_t left = peer->echo->request_bytes - peer->received;
    const ssize_t count = recv(peer->fd, peer->request.data + peer->received, left, 0);
    if (count <= 0)
        return count < 0 && errno == EAGAIN;
    peer->received += (size_t)count;
    return peer->received < peer->echo->request_bytes || send_more(peer);
}

static void *serve(void *context)
{
    struct bench_echo *echo = context;
    struct epoll_event events[EVENTS_MAX];
    for (;;) {
        const int count = epoll_wait(echo->poll_fd, events, EVENTS_MAX, -1);
        for (int i = 0; i < count; i++) {
            struct peer *peer = events[i].data.ptr;
            if (events[i].data.ptr == &echo->end_fd)
                return NULL;
            if (events[i].data.ptr == &echo->listen_fd)
                accept_peer(echo);
            else if (!(peer->answering ? send_more(peer) : receive(peer)))
                leave(peer);
        }
    }
}

static void open_port(struct bench_echo *echo)
{
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t name_bytes = sizeof(name);
    echo->listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (echo->listen_fd < 0 ||
        bind(echo->listen_fd, (const struct sockaddr *)&name, sizeof(name)) != 0 ||
        listen(echo->listen_fd, BACKLOG) != 0 ||
        getsockname(echo->listen_fd, (struct sockaddr *)&name, &name_bytes) != 0)
        bench_fail("echo: %s", strerror(errno));
    echo->port = ntohs(name.sin_port);
}

struct bench_echo *bench_echo_create(size_t request_bytes, size_t answer_bytes)
{
    struct bench_echo *echo = calloc(1, sizeof(*echo));
    char head[HEAD_BYTES_MAX];
    if (!echo)
        bench_fail("echo: no memory");
    const int head_bytes = snprintf(head, sizeof(head),
                                    "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n", answer_bytes);
    echo->request_bytes = request_bytes;
    echo->answer_bytes = (size_t)head_bytes + answer_bytes;
    bench_buffer_reserve(&echo->answer, echo->answer_bytes);
    memcpy(echo->answer.data, head, (size_t)head_bytes);
    open_port(echo);
    echo->poll_fd = epoll_create1(EPOLL_CLOEXEC);
    echo->end_fd = eventfd(0, EFD_CLOEXEC);
    watch(echo->poll_fd, EPOLL_CTL_ADD, echo->listen_fd, EPOLLIN, &echo->listen_fd);
    watch(echo->poll_fd, EPOLL_CTL_ADD, echo->end_fd, EPOLLIN, &echo->end_fd);
    if (pthread_create(&echo->thread, NULL, serve, echo) != 0)
        bench_fail("echo: no thread");
    return echo;
}

uint16_t bench_echo_port(const struct bench_echo *echo)
{
    return echo->port;
}

void bench_echo_destroy(struct bench_echo *echo)
{
    if (!echo)
        return;
    eventfd_write(echo->end_fd, 1);
    pthread_join(echo->thread, NULL);
    while (echo->peers)
        leave(echo->peers);
    close(echo->listen_fd);
    close(echo->end_fd);
    close(echo->poll_fd);
    free(echo->answer.data);
    free(echo);
}
