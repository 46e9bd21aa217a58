#define _GNU_SOURCE
#include "server/http/connection.h"

#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "server/base/clock.h"
#include "server/base/limits.h"

/* How long a kept connection may stay silent while we drain: its next request may be on its way. */
#define DRAIN_GRACE_NS (500 * QD_NS_PER_MS)

struct qd_connection *qd_connection_open(struct qd_connections *all, int fd, void *http)
{
    struct qd_connection *connection = calloc(1, sizeof(*connection));
    if (connection == NULL)
        return NULL;
    connection->all = all;
    connection->fd = fd;
    connection->http = http;
    connection->since_ns = qd_clock_ns();
    connection->deadline_ns = connection->since_ns + all->config->receive_timeout_ns;
    connection->next = all->first;
    if (all->first != NULL)
        all->first->previous = connection;
    all->first = connection;
    all->count++;
    return connection;
}

void qd_connection_close(struct qd_connection *connection)
{
    if (connection == NULL)
        return;
    if (connection->previous != NULL)
        connection->previous->next = connection->next;
    else
        connection->all->first = connection->next;
    if (connection->next != NULL)
        connection->next->previous = connection->previous;
    connection->all->count--;
    free(connection);
}

void qd_connection_on_request_line(struct qd_connection *connection)
{
    connection->first_byte_ns = qd_clock_ns();
    if (connection->kept) { /* a first request has had its time since the accept */
        connection->deadline_ns =
            connection->first_byte_ns + connection->all->config->receive_timeout_ns;
    }
}

void qd_connection_on_head(struct qd_connection *connection)
{
    connection->deadline_ns = qd_clock_ns() + connection->all->config->receive_timeout_ns;
}

void qd_connection_on_body_end(struct qd_connection *connection)
{
    connection->deadline_ns = 0;
}

void qd_connection_on_answer(struct qd_connection *connection, size_t bytes)
{
    uint64_t seconds = bytes / QD_ANSWER_BYTES_PER_S;
    connection->deadline_ns =
        qd_clock_ns() + connection->all->config->receive_timeout_ns + seconds * QD_NS_PER_S;
}

void qd_connection_on_request_end(struct qd_connection *connection)
{
    connection->kept = true;
    connection->first_byte_ns = 0;
    connection->since_ns = qd_clock_ns();
    connection->deadline_ns = connection->since_ns + connection->all->config->idle_timeout_ns;
}

/* Between requests, and the client had time enough to send its next. */
static bool is_idle(const struct qd_connection *connection, uint64_t now_ns)
{
    int pending = 0;
    return connection->first_byte_ns == 0 && now_ns - connection->since_ns > DRAIN_GRACE_NS &&
           ioctl(connection->fd, FIONREAD, &pending) == 0 && pending == 0;
}

/* The client has left in the middle of a request. libmicrohttpd 0.9.75 does not notice an end that
 * comes together with the last bytes: it waits for an event, and there was only the one. */
static bool has_left(const struct qd_connection *connection)
{
    char byte;
    return recv(connection->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

/* Then it may have shut its sending side. */
static bool takes_answer(const struct qd_connection *connection)
{
    return connection->request != NULL && connection->request->state == QD_REPLYING;
}

static bool has_to_go(const struct qd_connection *connection, uint64_t now_ns)
{
    const struct qd_connections *all = connection->all;
    if (connection->suspended)
        return false;
    if (all->cutting || (all->draining && is_idle(connection, now_ns)))
        return true;
    bool its_turn = connection->deadline_ns != 0;
    return its_turn && (now_ns >= connection->deadline_ns ||
                        (!takes_answer(connection) && has_left(connection)));
}

void qd_connections_sweep(struct qd_connections *all)
{
    uint64_t now_ns = qd_clock_ns();
    for (struct qd_connection *c = all->first; c != NULL; c = c->next) {
        if (has_to_go(c, now_ns)) {
            shutdown(c->fd, SHUT_RDWR);
            c->deadline_ns = 0; /* once is enough */
        }
    }
}
