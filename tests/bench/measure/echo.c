#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/bench/measure/buffer.h"
#include "tests/bench/measure/exchange.h"
#include "tests/bench/measure/reach.h"

enum { EVENTS_MAX = 64, HEAD_BYTES_MAX = 128, THREADS_MAX = 64 };

/* The kernel's default is slower: 8 connections that receive 256 MiB get a third of the speed. For
 * a Unix socket the default is fast enough. */
static const int tcp_send_bytes = 512 << 10;

/* A thread and its connections. The first thread accepts for all threads, in turn. */
struct lane {
    struct bench_echo *echo;
    pthread_t thread;
    int poll_fd;
};

struct peer {
    struct lane *lane;
    struct peer *next;
    int fd;
    size_t received;
    size_t sent;
    bool answering;
    struct bench_buffer request;
};

struct bench_echo {
    struct lane lanes[THREADS_MAX];
    size_t lane_count;
    size_t accepted;
    int listen_fd;
    int end_fd;
    size_t request_bytes;
    size_t answer_bytes; /* including the head */
    struct bench_buffer answer;
    pthread_mutex_t lock; /* protects the list */
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
    const int fd = bench_accept(echo->listen_fd);
    if (fd < 0)
        return;
    if (bench_port(echo->listen_fd) != 0)
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &tcp_send_bytes, sizeof(tcp_send_bytes));
    struct peer *peer = calloc(1, sizeof(*peer));
    if (!peer)
        bench_fail("echo: no memory");
    struct lane *lane = &echo->lanes[echo->accepted++ % echo->lane_count];
    *peer = (struct peer){.lane = lane, .fd = fd};
    bench_buffer_reserve(&peer->request, echo->request_bytes);
    pthread_mutex_lock(&echo->lock);
    peer->next = echo->peers;
    echo->peers = peer;
    pthread_mutex_unlock(&echo->lock);
    watch(lane->poll_fd, EPOLL_CTL_ADD, fd, EPOLLIN, peer);
}

/* Closes a connection whose client has disconnected or sent bytes that cannot be taken. */
static void leave(struct bench_echo *echo, struct peer *peer)
{
    pthread_mutex_lock(&echo->lock);
    struct peer **link = &echo->peers;
    while (*link != peer)
        link = &(*link)->next;
    *link = peer->next;
    pthread_mutex_unlock(&echo->lock);
    close(peer->fd);
    free(peer->request.data);
    free(peer);
}

static bool send_more(struct peer *peer)
{
    const struct bench_echo *echo = peer->lane->echo;
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
        watch(peer->lane->poll_fd, EPOLL_CTL_MOD, peer->fd, answering ? EPOLLOUT : EPOLLIN, peer);
    peer->answering = answering;
    if (!answering)
        peer->received = peer->sent = 0;
    return true;
}

static bool receive(struct peer *peer)
{
    const size_t request_bytes = peer->lane->echo->request_bytes;
    const size_t left = request_bytes - peer->received;
    const ssize_t count = recv(peer->fd, peer->request.data + peer->received, left, 0);
    if (count <= 0)
        return count < 0 && errno == EAGAIN;
    peer->received += (size_t)count;
    return peer->received < request_bytes || send_more(peer);
}

static void *serve(void *context)
{
    const struct lane *lane = context;
    struct bench_echo *echo = lane->echo;
    struct epoll_event events[EVENTS_MAX];
    for (;;) {
        const int count = epoll_wait(lane->poll_fd, events, EVENTS_MAX, -1);
        for (int i = 0; i < count; i++) {
            struct peer *peer = events[i].data.ptr;
            if (events[i].data.ptr == &echo->end_fd)
                return NULL;
            if (events[i].data.ptr == &echo->listen_fd)
                accept_peer(echo);
            else if (!(peer->answering ? send_more(peer) : receive(peer)))
                leave(echo, peer);
        }
    }
}

static void start_lane(struct bench_echo *echo, struct lane *lane)
{
    lane->echo = echo;
    lane->poll_fd = epoll_create1(EPOLL_CLOEXEC);
    watch(lane->poll_fd, EPOLL_CTL_ADD, echo->end_fd, EPOLLIN, &echo->end_fd);
    if (lane == echo->lanes)
        watch(lane->poll_fd, EPOLL_CTL_ADD, echo->listen_fd, EPOLLIN, &echo->listen_fd);
}

struct bench_echo *bench_echo_create(size_t request_bytes, size_t answer_bytes, size_t thread_count,
                                     const char *address)
{
    struct bench_echo *echo = calloc(1, sizeof(*echo));
    char head[HEAD_BYTES_MAX];
    if (!echo || thread_count < 1 || thread_count > THREADS_MAX)
        bench_fail("echo: no memory, or not so many threads");
    const int head_bytes = snprintf(head, sizeof(head),
                                    "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n", answer_bytes);
    echo->request_bytes = request_bytes;
    echo->answer_bytes = (size_t)head_bytes + answer_bytes;
    echo->lane_count = thread_count;
    pthread_mutex_init(&echo->lock, NULL);
    bench_buffer_reserve(&echo->answer, echo->answer_bytes);
    memcpy(echo->answer.data, head, (size_t)head_bytes);
    echo->listen_fd = bench_listen(address);
    echo->end_fd = eventfd(0, EFD_CLOEXEC);
    for (size_t i = 0; i < thread_count; i++)
        start_lane(echo, &echo->lanes[i]);
    for (size_t i = 0; i < thread_count; i++)
        if (pthread_create(&echo->lanes[i].thread, NULL, serve, &echo->lanes[i]) != 0)
            bench_fail("echo: no thread");
    return echo;
}

uint16_t bench_echo_port(const struct bench_echo *echo)
{
    return bench_port(echo->listen_fd);
}

void bench_echo_destroy(struct bench_echo *echo)
{
    if (!echo)
        return;
    eventfd_write(echo->end_fd, 1);
    for (size_t i = 0; i < echo->lane_count; i++) {
        pthread_join(echo->lanes[i].thread, NULL);
        close(echo->lanes[i].poll_fd);
    }
    while (echo->peers)
        leave(echo, echo->peers);
    close(echo->listen_fd);
    close(echo->end_fd);
    pthread_mutex_destroy(&echo->lock);
    free(echo->answer.data);
    free(echo);
}
