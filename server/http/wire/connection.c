#define _GNU_SOURCE
#include "server/http/wire/connection.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/http/wire/socket.h"

enum {
    EVENTS_MAX = 64,
    DISCARD_BYTES = 64 << 10,
    DISCARDS_MAX = 16, /* in one iteration of the loop, so that other connections are served, too */
};

/* How long a kept-alive connection may stay silent during a drain, because its next request may be
 * on its way, and how long one lingers then: we take an answer that was sent this long ago for
 * read. */
#define DRAIN_GRACE_NS (500 * QD_NS_PER_MS)
#define DRAIN_SWEEP_NS (20 * QD_NS_PER_MS)

/* The age at which a connection is added to the epoll. Most connections of clients without
 * keep-alive end earlier, and are never added. It is also how long nothing is done about a client
 * that sends no more. */
#define FRESH_NS (250 * QD_NS_PER_MS)

/* How long the library may take to close a connection by itself, and how long a client over quota
 * has to send the head of a request, which is then refused. */
#define CUT_NS (2 * QD_NS_PER_S)

/* ---- Queues ------------------------------------------------------------------------------- */

static void link_init(struct qd_link *link)
{
    link->next = link->previous = link;
}

static void unlink_it(struct qd_link *link)
{
    link->previous->next = link->next;
    link->next->previous = link->previous;
    link_init(link);
}

static void append(struct qd_links *line, struct qd_link *link)
{
    unlink_it(link);
    link->previous = line->ends.previous;
    link->next = &line->ends;
    link->previous->next = link;
    line->ends.previous = link;
}

static bool is_empty(const struct qd_links *line)
{
    return line->ends.next == &line->ends;
}

static struct qd_connection *waiting(struct qd_link *link)
{
    return (struct qd_connection *)((char *)link - offsetof(struct qd_connection, wait));
}

static struct qd_connection *watched(struct qd_link *link)
{
    return (struct qd_connection *)((char *)link - offsetof(struct qd_connection, watch));
}

/* ---- Life --------------------------------------------------------------------------------- */

/* Sets how many bytes must move in which time. A window in which not even one byte is due is made
 * longer. Without --min-rate it is the longer one of the other two timeouts. */
static void set_window(struct qd_connections *all, const struct qd_config *config)
{
    const uint64_t receive_ns = config->receive_timeout_ns;
    const uint64_t idle_ns = config->idle_timeout_ns;
    const uint64_t rate = config->min_rate_bytes;
    uint64_t window_ns = QD_PACE_WINDOW_NS < receive_ns ? QD_PACE_WINDOW_NS : receive_ns;
    if (rate == 0)
        window_ns = receive_ns > idle_ns ? receive_ns : idle_ns;
    else if (window_ns < QD_NS_PER_S / rate)
        window_ns = QD_NS_PER_S / rate;
    all->window_ns = window_ns < QD_NS_PER_MS ? QD_NS_PER_MS : window_ns;
    const double bytes = (double)rate * (double)all->window_ns / (double)QD_NS_PER_S;
    all->window_bytes = bytes < 1 ? 1 : (uint64_t)bytes;
}

bool qd_connections_init(struct qd_connections *all, const struct qd_config *config)
{
    *all = (struct qd_connections){.config = config, .look = 1};
    all->wide_max = (size_t)(QD_WIDE_COUNT_MAX / config->io_threads);
    set_window(all, config);
    for (unsigned i = 0; i < QD_WAIT_COUNT; i++)
        link_init(&all->waits[i].ends);
    link_init(&all->fresh.ends);
    link_init(&all->ended.ends);
    all->hangups = epoll_create1(EPOLL_CLOEXEC);
    return all->hangups >= 0;
}

static enum qd_wait wait_of(enum qd_connection_state state)
{
    static const enum qd_wait waits[] = {
        [QD_CONNECTION_NEW] = QD_WAIT_RECEIVE,        [QD_CONNECTION_IDLE] = QD_WAIT_IDLE,
        [QD_CONNECTION_HEAD] = QD_WAIT_RECEIVE,       [QD_CONNECTION_BODY] = QD_WAIT_PACE,
        [QD_CONNECTION_PROCESSING] = QD_WAIT_COMPUTE, [QD_CONNECTION_ANSWER] = QD_WAIT_PACE,
        [QD_CONNECTION_CLOSING] = QD_WAIT_CLOSING,    [QD_CONNECTION_LINGERING] = QD_WAIT_LINGER,
    };
    return waits[state];
}

static uint64_t deadline_of(const struct qd_connections *all, enum qd_wait wait, uint64_t now_ns)
{
    switch (wait) {
    case QD_WAIT_RECEIVE:
    case QD_WAIT_LINGER:
        return now_ns + all->config->receive_timeout_ns;
    case QD_WAIT_IDLE:
        return now_ns + all->config->idle_timeout_ns;
    case QD_WAIT_PACE:
        return now_ns + all->window_ns;
    case QD_WAIT_CLOSING:
        return now_ns + CUT_NS;
    default:
        return UINT64_MAX;
    }
}

/* Moves the connection to the end of a queue and sets its deadline. */
static void join_line(struct qd_connection *connection, enum qd_wait wait, uint64_t now_ns)
{
    connection->deadline_ns = deadline_of(connection->all, wait, now_ns);
    append(&connection->all->waits[wait], &connection->wait);
}

static void start_to_wait(struct qd_connection *connection, uint64_t now_ns)
{
    join_line(connection, wait_of(connection->state), now_ns);
}

/* Adds the connection to the epoll, or changes the events that it waits for. */
static void set_watch(struct qd_connection *connection)
{
    const bool counts = connection->pace.measured && connection->pace.counts_room;
    const bool lingers = connection->state == QD_CONNECTION_LINGERING;
    struct epoll_event event = {.events = lingers ? EPOLLIN
                                                  : EPOLLRDHUP | EPOLLET | (counts ? EPOLLOUT : 0u),
                                .data.ptr = connection};
    const int operation = connection->socket.is_watched ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
    connection->socket.is_watched =
        epoll_ctl(connection->all->hangups, operation, connection->socket.fd, &event) == 0;
}

struct qd_connection *qd_connection_open(struct qd_connections *all, int fd, bool is_unix,
                                         struct MHD_Connection *http)
{
    struct qd_connection *connection = calloc(1, sizeof(*connection));
    if (connection == NULL)
        return NULL;
    connection->all = all;
    connection->socket.fd = fd;
    connection->socket.is_unix = is_unix;
    connection->framing.body_bytes_max = all->config->max_body_bytes;
    connection->http = http;
    connection->accepted_ns = connection->since_ns = qd_clock_ns();
    link_init(&connection->wait);
    link_init(&connection->watch);
    append(&all->fresh, &connection->watch);
    start_to_wait(connection, connection->since_ns);
    atomic_fetch_add(&all->count, 1);
    return connection;
}

void qd_connection_hurry(struct qd_connection *connection)
{
    assert(connection->state == QD_CONNECTION_NEW);
    join_line(connection, QD_WAIT_CLOSING, connection->since_ns);
}

static int send_bytes(const struct qd_connection *connection)
{
    if (connection->socket.is_wide)
        return QD_WIDE_SEND_BYTES;
    return connection->socket.is_unix ? QD_UNIX_SEND_BYTES : QD_TCP_SEND_BYTES;
}

/* Returns the size that the kernel really uses: twice the size that we set. */
static uint64_t buffer_bytes(const struct qd_connection *connection)
{
    return 2 * (uint64_t)send_bytes(connection);
}

/* Returns a place for one more wide connection: a free place, or the place of a connection that is
 * no longer wide and has no more bytes in the kernel than a narrow buffer holds. Returns NULL if
 * there is none. */
static struct qd_connection **find_place(struct qd_connections *all)
{
    for (size_t i = 0; i < all->wide_max; i++) {
        const struct qd_connection *there = all->wide[i];
        if (there == NULL ||
            (!there->socket.is_wide && qd_socket_unread(there->socket.fd) <= buffer_bytes(there)))
            return &all->wide[i];
    }
    return NULL;
}

/* Returns the connection's place, or NULL if it has none. */
static struct qd_connection **place_of(const struct qd_connection *connection)
{
    for (size_t i = 0; i < connection->all->wide_max; i++)
        if (connection->all->wide[i] == connection)
            return &connection->all->wide[i];
    return NULL;
}

void qd_connection_widen(struct qd_connection *connection, size_t answer_bytes)
{
    if (connection->socket.is_wide || answer_bytes < QD_WIDE_ANSWER_BYTES)
        return;
    if (place_of(connection) == NULL) {
        struct qd_connection **place = find_place(connection->all);
        if (place == NULL)
            return;
        *place = connection;
    }
    qd_connection_make_room(connection);
}

/* Needs no place, because a connection that gets its last answer sends nothing else through the
 * wide buffer. */
void qd_connection_make_room(struct qd_connection *connection)
{
    connection->socket.is_wide = true;
    qd_socket_set_send_bytes(connection->socket.fd, send_bytes(connection));
}

/* Makes the buffer narrow again. The connection keeps its place, because bytes that the client has
 * not read stay in the kernel. */
static void narrow(struct qd_connection *connection)
{
    connection->socket.is_wide = false;
    qd_socket_set_send_bytes(connection->socket.fd, send_bytes(connection));
}

/* Gives up what the connection has because of its descriptor. */
static void forget_socket(struct qd_connection *connection)
{
    struct qd_connection **place = place_of(connection);
    if (place != NULL)
        *place = NULL;
    /* A duplicate of the descriptor would keep the entry on the epoll. */
    if (connection->socket.is_watched)
        epoll_ctl(connection->all->hangups, EPOLL_CTL_DEL, connection->socket.fd, NULL);
    connection->socket.is_watched = false;
    unlink_it(&connection->watch);
}

static void destroy(struct qd_connection *connection)
{
    forget_socket(connection);
    unlink_it(&connection->wait);
    if (connection->state == QD_CONNECTION_LINGERING) {
        close(connection->socket.fd);
        connection->all->lingering_count--;
    }
    atomic_fetch_sub(&connection->all->count, 1);
    free(connection);
}

void qd_connections_deinit(struct qd_connections *all)
{
    struct qd_links *lingering = &all->waits[QD_WAIT_LINGER];
    while (!is_empty(lingering))
        destroy(waiting(lingering->ends.next));
    assert(atomic_load(&all->count) == 0);
    if (all->hangups >= 0)
        close(all->hangups);
}

static bool has_decrypted(const struct qd_connection *connection)
{
    const struct qd_connections *all = connection->all;
    return all->decrypted_bytes != NULL && all->decrypted_bytes(connection) > 0;
}

static bool socket_has_unread(const struct qd_connection *connection)
{
    int bytes = 0;
    return ioctl(connection->socket.fd, FIONREAD, &bytes) == 0 && bytes > 0;
}

/* Returns true if the client has sent bytes that the library has not read. They are in the socket
 * or, over TLS, already decrypted. */
static bool has_unread(const struct qd_connection *connection)
{
    return has_decrypted(connection) || socket_has_unread(connection);
}

/* Returns true if the connection ends after one more answer: during a drain, or without hooks. */
static bool ends_after_answer(const struct qd_connection *connection)
{
    return connection->all->draining || !connection->io.is_hooked;
}

void qd_connection_advance(struct qd_connection *connection, enum qd_connection_state to)
{
    qd_connection_advance_at(connection, to, qd_clock_ns());
}

void qd_connection_advance_at(struct qd_connection *connection, enum qd_connection_state to,
                              uint64_t now_ns)
{
#define BIT(state) (1u << QD_CONNECTION_##state)
    static const unsigned allowed[] = {
        [QD_CONNECTION_NEW] = BIT(HEAD) | BIT(ANSWER) | BIT(CLOSING),
        [QD_CONNECTION_IDLE] = BIT(HEAD) | BIT(ANSWER) | BIT(CLOSING) | BIT(LINGERING),
        [QD_CONNECTION_HEAD] = BIT(BODY) | BIT(ANSWER) | BIT(CLOSING),
        [QD_CONNECTION_BODY] = BIT(PROCESSING) | BIT(ANSWER) | BIT(CLOSING),
        [QD_CONNECTION_PROCESSING] = BIT(ANSWER),
        [QD_CONNECTION_ANSWER] = BIT(IDLE) | BIT(CLOSING),
        [QD_CONNECTION_CLOSING] = BIT(LINGERING),
        [QD_CONNECTION_LINGERING] = 0,
    };
    assert(allowed[connection->state] & (1u << to));
#undef BIT
    /* The time for a first head runs from the accept, so the first line does not restart it. */
    const bool goes_on = connection->state == QD_CONNECTION_NEW && to == QD_CONNECTION_HEAD;
    connection->since_ns = now_ns;
    connection->state = to;
    connection->pace.moved_bytes = 0;
    if (connection->pace.measured) {
        connection->pace.measured = false;
        connection->pace.freed_bytes = 0;
        if (connection->pace.counts_room)
            set_watch(connection);
    }
    if (connection->socket.is_wide)
        narrow(connection);
    if (to == QD_CONNECTION_HEAD)
        connection->current.first_line_ns = connection->since_ns;
    else if (to == QD_CONNECTION_BODY)
        connection->current.chunks = connection->pace.waited_look = connection->io.continue_left =
            0;
    else if (to == QD_CONNECTION_PROCESSING && connection->peer == QD_PEER_ASKED)
        connection->peer = QD_PEER_ENDED; /* on_doubt comes once for each request */
    else if (to == QD_CONNECTION_IDLE) {
        connection->current.first_line_ns = 0;
        connection->tls.leaves_decrypted =
            ends_after_answer(connection) && has_decrypted(connection);
    }
    if (!goes_on)
        start_to_wait(connection, connection->since_ns);
}

/* ---- The end ------------------------------------------------------------------------------ */

/* Returns true if the last answer (with `Connection: close`) has been sent, but the client has
 * already pipelined more requests. */
static bool leaves_unread(const struct qd_connection *connection)
{
    return connection->state == QD_CONNECTION_IDLE && ends_after_answer(connection) &&
           (connection->tls.leaves_decrypted || socket_has_unread(connection));
}

void qd_connection_close(struct qd_connection *connection)
{
    if (connection == NULL)
        return;
    int own = -1;
    if (connection->final_answer != QD_LAST_NONE || leaves_unread(connection)) {
        shutdown(connection->socket.fd, SHUT_WR);
        own = fcntl(connection->socket.fd, F_DUPFD_CLOEXEC, 0);
    }
    if (own < 0) {
        destroy(connection);
        return;
    }
    struct qd_connections *all = connection->all;
    if (all->lingering_count == QD_LINGERING_COUNT_MAX)
        destroy(waiting(all->waits[QD_WAIT_LINGER].ends.next));
    qd_connection_advance(connection, QD_CONNECTION_LINGERING);
    all->lingering_count++;
    forget_socket(connection);
    connection->socket.fd = own;
    connection->http = NULL;
    set_watch(connection);
    if (!connection->socket.is_watched)
        destroy(connection);
}

/* Discards what the client of a connection in LINGERING has sent. Frees the connection if the
 * client has closed its end, or has sent too much. */
static void discard(struct qd_connection *connection)
{
    char waste[DISCARD_BYTES];
    for (unsigned i = 0; i < DISCARDS_MAX; i++) {
        const ssize_t count = recv(connection->socket.fd, waste, sizeof(waste), MSG_DONTWAIT);
        if (count < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        connection->pace.discarded_bytes += count > 0 ? (uint64_t)count : 0;
        if (count <= 0 || connection->pace.discarded_bytes > QD_DISCARD_BYTES_MAX) {
            destroy(connection);
            return;
        }
    }
}

void qd_connection_cut(struct qd_connection *connection)
{
    if (connection->state == QD_CONNECTION_LINGERING) {
        destroy(connection);
        return;
    }
    const bool is_fresh = connection->state == QD_CONNECTION_NEW && connection->tls.handshake_done;
    if ((is_fresh || connection->state == QD_CONNECTION_IDLE) &&
        connection->all->end_session != NULL)
        connection->all->end_session(connection);
    if (connection->state != QD_CONNECTION_CLOSING)
        qd_connection_advance(connection, QD_CONNECTION_CLOSING);
    shutdown(connection->socket.fd, SHUT_RDWR);
    unlink_it(&connection->wait); /* one shutdown is enough */
    connection->deadline_ns = UINT64_MAX;
}

/* ---- Late connections --------------------------------------------------------------------- */

/* Returns true if the server is late, not the client, for example because the loop was busy: bytes
 * of the client wait to be read, or the socket has room for ours. */
static bool waits_for_us(const struct qd_connection *connection)
{
    struct pollfd socket = {.fd = connection->socket.fd, .events = POLLOUT};
    if (connection->current.is_held || connection->io.placed_bytes > 0)
        return true;
    if (connection->state == QD_CONNECTION_BODY)
        return has_unread(connection);
    return connection->peer == QD_PEER_SENDS && poll(&socket, 1, 0) == 1 &&
           (socket.revents & POLLOUT) != 0;
}

/* Returns how many bytes of the body, of the answer or of what is discarded have moved so far. The
 * library does not report the progress of an answer. Over TCP the kernel does. For a Unix socket,
 * the kernel reports when its buffer has room again. The buffer is then a quarter full, and we fill
 * it up at once. The kernel also tells how many bytes the buffer holds, which decreases until then.
 * Only differences of the result count. UINT32_MAX keeps the sum above 0. */
static uint64_t moved(struct qd_connection *connection)
{
    uint64_t count;
    if (connection->state == QD_CONNECTION_BODY)
        return connection->request->body.count;
    if (connection->state == QD_CONNECTION_LINGERING)
        return connection->pace.discarded_bytes;
    connection->pace.counts_room = !qd_socket_acknowledged(connection->socket.fd, &count);
    if (!connection->pace.counts_room)
        return count;
    return UINT32_MAX + connection->pace.freed_bytes - qd_socket_unread(connection->socket.fd);
}

/* Ends a window of the pace. Returns true if enough bytes moved in it. */
static bool moved_enough(struct qd_connection *connection)
{
    const uint64_t bytes = moved(connection);
    const uint64_t since = bytes - connection->pace.moved_bytes;
    connection->pace.moved_bytes = bytes;
    return since >= connection->all->window_bytes;
}

/* Returns true if enough bytes moved in this window, or if the server is late. An answer's first
 * window only begins the measurement: most answers end within it and cost no system call. */
static bool keeps_pace(struct qd_connection *connection)
{
    const bool enough = moved_enough(connection);
    if (connection->state == QD_CONNECTION_ANSWER && !connection->pace.measured) {
        connection->pace.measured = true;
        set_watch(connection);
        return true;
    }
    return enough || waits_for_us(connection);
}

static void on_deadline(struct qd_connection *connection, uint64_t now_ns)
{
    switch (connection->state) {
    case QD_CONNECTION_BODY:
    case QD_CONNECTION_ANSWER:
        if (keeps_pace(connection))
            start_to_wait(connection, now_ns);
        else
            connection->all->on_slow(connection);
        return;
    case QD_CONNECTION_HEAD:
        connection->all->on_slow(connection);
        return;
    case QD_CONNECTION_LINGERING:
        if (moved_enough(connection))
            start_to_wait(connection, now_ns);
        else
            destroy(connection);
        return;
    default:
        qd_connection_cut(connection);
    }
}

static void sweep_deadlines(struct qd_connections *all, uint64_t now_ns)
{
    for (unsigned i = 0; i < QD_WAIT_COUNT; i++) {
        while (!is_empty(&all->waits[i])) {
            struct qd_connection *first = waiting(all->waits[i].ends.next);
            if (first->deadline_ns > now_ns)
                break;
            on_deadline(first, now_ns);
        }
    }
}

void qd_connections_look_for_stalled(struct qd_connections *all, bool rested)
{
    struct qd_links *links = &all->waits[QD_WAIT_PACE];
    struct qd_link *next;
    all->look += rested ? 2 : 1; /* after a rest, no body counts as waiting at the previous look */
    for (struct qd_link *link = links->ends.next; link != &links->ends; link = next) {
        struct qd_connection *connection = waiting(link);
        next = link->next;
        if (connection->state != QD_CONNECTION_BODY || connection->current.is_held ||
            !waits_for_us(connection))
            continue;
        const bool waited = connection->pace.waited_look + 1 == all->look;
        const uint64_t waited_bytes = connection->pace.waited_bytes;
        connection->pace.waited_look = all->look;
        connection->pace.waited_bytes = moved(connection);
        if (waited && waited_bytes == connection->pace.waited_bytes) {
            connection->pace.is_stalled = true;
            all->on_slow(connection);
        }
    }
}

void qd_connections_look_for_lost(struct qd_connections *all)
{
    struct qd_links *links = &all->waits[QD_WAIT_PACE];
    struct qd_link *next;
    for (struct qd_link *link = links->ends.next; link != &links->ends; link = next) {
        struct qd_connection *connection = waiting(link);
        next = link->next;
        if (connection->state == QD_CONNECTION_BODY && !connection->current.is_held &&
            qd_request_has_lost_body(connection->request))
            all->on_lost(connection);
    }
}

/* ---- Clients that have left --------------------------------------------------------------- */

void qd_connections_on_hangups(struct qd_connections *all)
{
    struct epoll_event events[EVENTS_MAX];
    int count = epoll_wait(all->hangups, events, EVENTS_MAX, 0);
    for (int i = 0; i < count; i++) {
        struct qd_connection *connection = events[i].data.ptr;
        if (connection->state == QD_CONNECTION_LINGERING) {
            discard(connection);
            continue;
        }
        if ((events[i].events & EPOLLOUT) != 0)
            connection->pace.freed_bytes += buffer_bytes(connection);
        const bool ends = (events[i].events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
        if (ends && connection->peer == QD_PEER_SENDS) {
            append(&all->ended, &connection->watch);
            connection->peer = QD_PEER_ENDED;
            connection->ended_ns = qd_clock_ns();
        }
        if ((events[i].events & (EPOLLHUP | EPOLLERR)) != 0)
            connection->peer = QD_PEER_GONE;
        if (connection->peer == QD_PEER_GONE && connection->state == QD_CONNECTION_PROCESSING)
            all->on_gone(connection);
    }
}

static bool is_doubtful(const struct qd_connection *connection, uint64_t now_ns)
{
    return !connection->socket.is_unix && connection->peer == QD_PEER_ENDED &&
           now_ns - connection->since_ns >= FRESH_NS && now_ns - connection->ended_ns >= FRESH_NS;
}

static void sweep_ended(struct qd_connections *all, uint64_t now_ns)
{
    struct qd_link *next;
    for (struct qd_link *link = all->ended.ends.next; link != &all->ended.ends; link = next) {
        struct qd_connection *connection = watched(link);
        next = link->next;
        switch (connection->state) {
        case QD_CONNECTION_PROCESSING:
            if (connection->peer == QD_PEER_GONE) {
                all->on_gone(connection);
            } else if (is_doubtful(connection, now_ns)) {
                connection->peer = QD_PEER_ASKED;
                all->on_doubt(connection);
            }
            break;
        case QD_CONNECTION_ANSWER: /* the client may have shut only its sending side */
            if (connection->peer == QD_PEER_GONE)
                qd_connection_cut(connection);
            break;
        case QD_CONNECTION_CLOSING:
            break;
        default: /* the library may still have requests in its buffer */
            if (connection->peer == QD_PEER_GONE ||
                (!connection->current.is_held && now_ns - connection->since_ns >= FRESH_NS &&
                 connection->io.placed_bytes == 0 && !has_unread(connection)))
                qd_connection_cut(connection);
        }
    }
}

/* ---- The sweep ---------------------------------------------------------------------------- */

static bool is_drained(const struct qd_connection *connection, uint64_t now_ns)
{
    if (now_ns - connection->since_ns <= DRAIN_GRACE_NS)
        return false;
    return connection->state == QD_CONNECTION_LINGERING ||
           (connection->current.first_line_ns == 0 && !has_unread(connection));
}

static void sweep_drained(struct qd_connections *all, uint64_t now_ns)
{
    static const enum qd_wait waits[] = {QD_WAIT_RECEIVE, QD_WAIT_IDLE, QD_WAIT_PACE,
                                         QD_WAIT_CLOSING, QD_WAIT_LINGER};
    for (size_t i = 0; i < sizeof(waits) / sizeof(*waits); i++) {
        struct qd_link *const end = &all->waits[waits[i]].ends;
        struct qd_link *next;
        for (struct qd_link *link = end->next; link != end; link = next) {
            next = link->next;
            if (all->cutting || is_drained(waiting(link), now_ns))
                qd_connection_cut(waiting(link));
        }
    }
}

static void watch_first(struct qd_connections *all)
{
    struct qd_connection *connection = watched(all->fresh.ends.next);
    unlink_it(&connection->watch);
    if (!connection->socket.is_watched)
        set_watch(connection);
}

void qd_connections_sweep(struct qd_connections *all)
{
    const uint64_t now_ns = qd_clock_ns();
    while (!is_empty(&all->fresh) &&
           watched(all->fresh.ends.next)->accepted_ns + FRESH_NS <= now_ns)
        watch_first(all);
    sweep_ended(all, now_ns);
    if (all->draining)
        sweep_drained(all, now_ns);
    sweep_deadlines(all, now_ns);
}

uint64_t qd_connections_next_ns(const struct qd_connections *all)
{
    if (all->draining)
        return qd_clock_ns() + DRAIN_SWEEP_NS;
    uint64_t next_ns = UINT64_MAX;
    for (unsigned i = 0; i < QD_WAIT_COUNT; i++) {
        uint64_t ns =
            is_empty(&all->waits[i]) ? UINT64_MAX : waiting(all->waits[i].ends.next)->deadline_ns;
        next_ns = ns < next_ns ? ns : next_ns;
    }
    if (!is_empty(&all->fresh)) {
        uint64_t ns = watched(all->fresh.ends.next)->accepted_ns + FRESH_NS;
        next_ns = ns < next_ns ? ns : next_ns;
    }
    if (!is_empty(&all->ended)) {
        uint64_t ns = qd_clock_ns() + FRESH_NS;
        next_ns = ns < next_ns ? ns : next_ns;
    }
    return next_ns;
}
