#define _GNU_SOURCE
#include "tests/bench/measure/exchange.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "tests/bench/measure/buffer.h"
#include "tests/bench/measure/reach.h"
#include "tests/bench/measure/times.h"
#include "tests/support/random.h"

enum {
    HEAD_BYTES_MAX = 4096,
    ROOM_BYTES = 256 << 10, /* bytes that one call may read */
    ANSWERS_MIN = 3,
    WARM_SHARE = 5, /* one part in WARM_SHARE of the time warms up */
    EVENTS_MAX = 64,
};

struct connection {
    int fd;
    bool wants_to_send; /* the socket did not take the whole request */
    size_t sent;
    double start_ns;
    size_t head_bytes; /* bytes of the answer's head; the head is complete once `left` counts */
    bool has_head;
    size_t left; /* bytes of the answer's body that are missing */
    char head[HEAD_BYTES_MAX + 1];
};

struct client {
    const struct bench_exchange *exchange;
    int poll_fd;
    struct connection *connections;
    struct connection **idle; /* used if requests have a rate */
    size_t idle_count;
    double due_ns; /* when the next request is due */
    uint64_t random;
    size_t waiting; /* number of connections with a request under way */
    bool ending;
    double warm_until_ns;
    double first_ns, last_ns; /* number of answers that count */
    size_t count;
    double *took_ns; /* the duration of each of these answers */
    size_t capacity;
    char room[ROOM_BYTES];
};

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
            bench_fail("%s: send: %s", exchange->address, strerror(errno));
        connection->sent += (size_t)count;
    }
    const bool wants_to_send = connection->sent < exchange->request_bytes;
    if (wants_to_send != connection->wants_to_send)
        watch(client, connection, EPOLL_CTL_MOD, EPOLLIN | (wants_to_send ? EPOLLOUT : 0));
    connection->wants_to_send = wants_to_send;
}

static void start(struct client *client, struct connection *connection, double start_ns)
{
    connection->sent = 0;
    connection->head_bytes = 0;
    connection->has_head = false;
    connection->start_ns = start_ns;
    client->waiting++;
    send_more(client, connection);
}

/* Returns the time until the next request. Requests come independently of each other, so these
 * times are exponentially distributed. */
static double pause_ns(struct client *client)
{
    return -log((double)(random_next(&client->random) >> 11 | 1) * 0x1p-53) * 1e9 /
           client->exchange->rate;
}

/* Sends the due requests on idle connections. A request for which no connection is idle waits. */
static void start_due(struct client *client)
{
    while (client->idle_count > 0 && client->due_ns <= bench_clock_ns()) {
        start(client, client->idle[--client->idle_count], client->due_ns);
        client->due_ns += pause_ns(client);
    }
}

static void go_on(struct client *client, struct connection *connection)
{
    if (client->exchange->rate > 0)
        client->idle[client->idle_count++] = connection;
    else
        start(client, connection, bench_clock_ns());
}

/* Opens the connections one after the other. In servers of several processes, the busy processes
 * leave a new connection to an idle one. */
static void open_connections(struct client *client)
{
    const struct bench_exchange *exchange = client->exchange;
    for (size_t i = 0; i < exchange->connection_count; i++) {
        struct connection *connection = &client->connections[i];
        connection->fd = bench_connect(exchange->address);
        if (fcntl(connection->fd, F_SETFL, O_NONBLOCK) != 0)
            bench_fail("%s: %s", exchange->address, strerror(errno));
        watch(client, connection, EPOLL_CTL_ADD, EPOLLIN);
        go_on(client, connection);
    }
}

/* ---- Answers ----------------------------------------------------------------------------- */

/* Reads what the complete head says of the body. */
static void read_head(const struct client *client, struct connection *connection)
{
    static const char field[] = "\r\nContent-Length:";
    connection->head[connection->head_bytes] = '\0';
    const char *length = strcasestr(connection->head, field);
    if (strncmp(connection->head, "HTTP/1.1 200 ", 13) != 0 || !length)
        bench_fail("%s: expected 200 and Content-Length, got: %s", client->exchange->address,
                   connection->head);
    connection->left = strtoull(length + sizeof(field) - 1, NULL, 10);
    connection->has_head = true;
}

/* Returns how many of the bytes belong to the head. */
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
        bench_fail("%s: the answer's head is too long", client->exchange->address);
    return connection->head_bytes - before;
}

static void on_answer(struct client *client, struct connection *connection)
{
    const double now_ns = bench_clock_ns();
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
        go_on(client, connection);
}

static void receive(struct client *client, struct connection *connection)
{
    const ssize_t received = recv(connection->fd, client->room, ROOM_BYTES, 0);
    if (received < 0 && errno == EAGAIN)
        return;
    if (received <= 0)
        bench_fail("%s: recv: %s", client->exchange->address,
                   received < 0 ? strerror(errno) : "the server has closed the connection");
    size_t count = (size_t)received;
    if (!connection->has_head)
        count -= take_head(client, connection, client->room, count);
    if (!connection->has_head)
        return;
    if (count > connection->left)
        bench_fail("%s: the answer is longer than it says", client->exchange->address);
    connection->left -= count;
    if (connection->left == 0)
        on_answer(client, connection);
}

/* ---- A run ------------------------------------------------------------------------------- */

/* Sleeps until bytes have arrived, or until the next request is due. */
static void sleep_until_due(const struct client *client)
{
    const double left_ns = client->due_ns - bench_clock_ns();
    const struct timespec pause = {.tv_sec = (time_t)(left_ns / 1e9),
                                   .tv_nsec = (long)fmod(left_ns, 1e9)};
    struct pollfd events = {.fd = client->poll_fd, .events = POLLIN};
    if (left_ns > 0)
        ppoll(&events, 1, &pause, NULL);
}

static void turn(struct client *client)
{
    struct epoll_event events[EVENTS_MAX];
    const bool waits_for_due = client->idle_count > 0 && !client->ending;
    if (waits_for_due)
        sleep_until_due(client);
    const int count = epoll_wait(client->poll_fd, events, EVENTS_MAX, waits_for_due ? 0 : -1);
    if (count < 0 && errno != EINTR)
        bench_fail("epoll_wait: %s", strerror(errno));
    for (int i = 0; i < count; i++) {
        struct connection *connection = events[i].data.ptr;
        if (events[i].events & EPOLLOUT)
            send_more(client, connection);
        if (events[i].events & ~(uint32_t)EPOLLOUT)
            receive(client, connection);
    }
    if (!client->ending)
        start_due(client);
}

static void close_all(struct client *client)
{
    for (size_t i = 0; i < client->exchange->connection_count; i++)
        close(client->connections[i].fd);
    close(client->poll_fd);
    free(client->connections);
    free(client->idle);
    free(client->took_ns);
    free(client);
}

static struct client *create_client(const struct bench_exchange *exchange)
{
    struct client *client = calloc(1, sizeof(*client));
    if (client) {
        client->connections = calloc(exchange->connection_count, sizeof(*client->connections));
        client->idle = calloc(exchange->connection_count, sizeof(*client->idle));
    }
    if (!client || !client->connections || !client->idle)
        bench_fail("no memory for %zu connections", exchange->connection_count);
    client->exchange = exchange;
    client->random = 0x9e3779b97f4a7c15;
    client->poll_fd = epoll_create1(EPOLL_CLOEXEC);
    prctl(PR_SET_TIMERSLACK, 1ul); /* otherwise the kernel adds 50 µs to each sleep */
    return client;
}

struct bench_exchanged bench_exchange(const struct bench_exchange *exchange)
{
    struct client *client = create_client(exchange);
    const double start_ns = bench_clock_ns();
    const size_t least =
        exchange->connection_count > ANSWERS_MIN ? exchange->connection_count : ANSWERS_MIN;
    client->warm_until_ns = start_ns + (double)exchange->for_ns / WARM_SHARE;
    client->due_ns = start_ns;
    open_connections(client);
    while (bench_clock_ns() < start_ns + (double)exchange->for_ns || client->count < least)
        turn(client);
    client->ending = true;
    while (client->waiting > 0) /* leave the server idle */
        turn(client);
    bench_sort(client->took_ns, client->count);
    const struct bench_exchanged exchanged = {
        .count = client->count,
        .ns = client->last_ns - client->first_ns,
        .p50_ns = client->took_ns[client->count / 2],
        .p99_ns = client->took_ns[client->count * 99 / 100],
    };
    close_all(client);
    return exchanged;
}
