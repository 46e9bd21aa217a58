#define _GNU_SOURCE
#include "tests/bench/exchange.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "tests/bench/buffer.h"

enum {
    HEAD_BYTES_MAX = 4096,
    ROOM_BYTES = 256 << 10, /* for what one call reads */
    ANSWERS_MIN = 3,        /* of each connection */
    WARM_SHARE = 5,         /* the first of so many parts of the time */
    EVENTS_MAX = 64,
};

struct connection {
    int fd;
    bool wants_to_send; /* more than the socket took */
    size_t sent;
    double start_ns;
    size_t head_bytes; /* of the answer; all of it is there once `left` counts */
    bool has_head;
    size_t left; /* of the answer's body */
    char head[HEAD_BYTES_MAX + 1];
};

struct client {
    const struct bench_exchange *exchange;
    int poll_fd;
    struct connection *connections;
    size_t waiting; /* connections with a request under way */
    bool ending;
    double warm_until_ns;
    double first_ns, last_ns; /* answers that count */
    size_t count;
    double *took_ns; /* each of them */
    size_t capacity;
    char room[ROOM_BYTES];
};

static double clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return 1e9 * (double)now.tv_sec + (double)now.tv_nsec;
}

static void watch(const struct client *client, struct connection *connection, int operation,
                  uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = connection};
    if (epoll_ctl(client->poll_fd, operation, connection->fd, &event) != 0)
        bench_fail("epoll_ctl: %s", strerror(errno));
}

/* ---- Requests ---------------------------------------------------------------------------- */

static void send_more(const struct client *client, struct connection *connection)
{
    const struct bench_exchange *exchange = client->exchange;
    while (connection->sent < exchange->request_bytes) {
        const ssize_t count = send(connection->fd, exchange->request + connection->sent,
                                   exchange->request_bytes - connection->sent, MSG_NOSIGNAL);
        if (count < 0 && errno == EAGAIN)
            break;
        if (count < 0)
            bench_fail("port %u: send: %s", exchange->port, strerror(errno));
        connection->sent += (size_t)count;
    }
    const bool wants_to_send = connection->sent < exchange->request_bytes;
    if (wants_to_send != connection->wants_to_send)
        watch(client, connection, EPOLL_CTL_MOD, EPOLLIN | (wants_to_send ? EPOLLOUT : 0));
    connection->wants_to_send = wants_to_send;
}

static void start(struct client *client, struct connection *connection)
{
    connection->sent = 0;
    connection->head_bytes = 0;
    connection->has_head = false;
    connection->start_ns = clock_ns();
    client->waiting++;
    send_more(client, connection);
}

/* One after the other: servers of several processes, whose other connections are at work, take the
 * new one where nothing is to do. */
static void open_connections(struct client *client)
{
    const struct bench_exchange *exchange = client->exchange;
    const struct sockaddr_in name = {.sin_family = AF_INET,
                                     .sin_port = htons(exchange->port),
                                     .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int on = 1;
    for (size_t i = 0; i < exchange->connection_count; i++) {
        struct connection *connection = &client->connections[i];
        const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        connection->fd = fd;
        if (fd < 0 || connect(fd, (const struct sockaddr *)&name, sizeof(name)) != 0)
            bench_fail("port %u: connect: %s", exchange->port, strerror(errno));
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        if (fcntl(fd, F_SETFL, O_NONBLOCK) != 0)
            bench_fail("port %u: %s", exchange->port, strerror(errno));
        watch(client, connection, EPOLL_CTL_ADD, EPOLLIN);
        start(client, connection);
    }
}

/* ---- Answers ----------------------------------------------------------------------------- */

/* The head is there: what it says of the body. */
static void read_head(const struct client *client, struct connection *connection)
{
    static const char field[] = "\r\nContent-Length:";
    connection->head[connection->head_bytes] = '\0';
    const char *length = strcasestr(connection->head, field);
    if (strncmp(connection->head, "HTTP/1.1 200 ", 13) != 0 || !length)
        bench_fail("port %u: expected 200 and Content-Length, got: %s", client->exchange->port,
                   connection->head);
    connection->left = strtoull(length + sizeof(field) - 1, NULL, 10);
    connection->has_head = true;
}

/* How many of the bytes are the head's. */
static size_t take_head(const struct client *client, struct connection *connection,
                        const char *bytes, size_t count)
{
    const size_t before = connection->head_bytes;
    const size_t room = HEAD_BYTES_MAX - before;
    const size_t copied = count < room ? count : room;
    memcpy(connection->head + before, bytes, copied);
    connection->head[before + copied] = '\0';
    const char *end = strstr(connection->head, "\r\n\r\n");
    connection->head_bytes = end ? (size_t)(end - connection->head) + 4 : before + copied;
    if (end)
        read_head(client, connection);
    else if (copied < count)
        bench_fail("port %u: the answer's head is too long", client->exchange->port);
    return connection->head_bytes - before;
}

static void on_answer(struct client *client, struct connection *connection)
{
    const double now_ns = clock_ns();
    client->waiting--;
    if (connection->start_ns >= client->warm_until_ns && !client->ending) {
        if (client->count == client->capacity) {
            client->capacity = client->capacity ? 2 * client->capacity : 4096;
            client->took_ns = realloc(client->took_ns, client->capacity * sizeof(double));
            if (!client->took_ns)
                bench_fail("no memory for %zu times", client->capacity);
        }
        client->took_ns[client->count++] = now_ns - connection->start_ns;
        client->last_ns = now_ns;
    } else if (client->count == 0) {
        client->first_ns = now_ns;
    }
    if (!client->ending)
        start(client, connection);
}

static void receive(struct client *client, struct connection *connection)
{
    const ssize_t received = recv(connection->fd, client->room, ROOM_BYTES, 0);
    if (received < 0 && errno == EAGAIN)
        return;
    if (received <= 0)
        bench_fail("port %u: recv: %s", client->exchange->port,
                   received < 0 ? strerror(errno) : "the server has closed the connection");
    size_t count = (size_t)received;
    if (!connection->has_head)
        count -= take_head(client, connection, client->room, count);
    if (!connection->has_head)
        return;
    if (count > connection->left)
        bench_fail("port %u: the answer is longer than it says", client->exchange->port);
    connection->left -= count;
    if (connection->left == 0)
        on_answer(client, connection);
}

/* ---- A run ------------------------------------------------------------------------------- */

static void turn(struct client *client)
{
    struct epoll_event events[EVENTS_MAX];
    const int count = epoll_wait(client->poll_fd, events, EVENTS_MAX, -1);
    if (count < 0 && errno != EINTR)
        bench_fail("epoll_wait: %s", strerror(errno));
    for (int i = 0; i < count; i++) {
        struct connection *connection = events[i].data.ptr;
        if (events[i].events & EPOLLOUT)
            send_more(client, connection);
        if (events[i].events & ~(uint32_t)EPOLLOUT)
            receive(client, connection);
    }
}

static int compare(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static void close_all(struct client *client)
{
    for (size_t i = 0; i < client->exchange->connection_count; i++)
        close(client->connections[i].fd);
    close(client->poll_fd);
    free(client->connections);
    free(client->took_ns);
    free(client);
}

struct bench_exchanged bench_exchange(const struct bench_exchange *exchange)
{
    struct client *client = calloc(1, sizeof(*client));
    if (client)
        client->connections = calloc(exchange->connection_count, sizeof(*client->connections));
    if (!client || !client->connections)
        bench_fail("no memory for %zu connections", exchange->connection_count);
    client->exchange = exchange;
    client->poll_fd = epoll_create1(EPOLL_CLOEXEC);
    const double start_ns = clock_ns();
    client->warm_until_ns = start_ns + (double)exchange->for_ns / WARM_SHARE;
    open_connections(client);
    while (clock_ns() < start_ns + (double)exchange->for_ns ||
           client->count < ANSWERS_MIN * exchange->connection_count)
        turn(client);
    client->ending = true;
    while (client->waiting > 0) /* the server has nothing left to do when we go */
        turn(client);
    qsort(client->took_ns, client->count, sizeof(double), compare);
    const struct bench_exchanged exchanged = {
        .count = client->count,
        .ns = client->last_ns - client->first_ns,
        .p50_ns = client->took_ns[client->count / 2],
        .p99_ns = client->took_ns[client->count * 99 / 100],
    };
    close_all(client);
    return exchanged;
}
