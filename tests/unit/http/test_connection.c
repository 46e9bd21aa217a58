#include "server/http/wire/connection.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/base/clock.h"
#include "server/base/limits.h"
#include "server/http/wire/socket.h"

enum { RATE = 1000, FAR_S = 3600 };

/* A connection and the client's socket. */
struct desk {
    struct qd_config config;
    struct qd_connections all;
    struct qd_connection *connection;
    struct qd_request request;
    int client;
};

static unsigned slow_count;
static unsigned stalled_count; /* of these */
static unsigned gone_count;

static void on_slow(struct qd_connection *connection)
{
    slow_count++;
    stalled_count += connection->pace.is_stalled;
    qd_connection_cut(connection);
}

static void on_gone(struct qd_connection *connection)
{
    (void)connection;
    gone_count++;
}

static void desk_init_beside(struct desk *desk, unsigned io_threads)
{
    int ends[2];
    *desk = (struct desk){.config = {.io_threads = io_threads,
                                     .receive_timeout_ns = FAR_S * QD_NS_PER_S,
                                     .idle_timeout_ns = FAR_S * QD_NS_PER_S,
                                     .min_rate_bytes = RATE}};
    slow_count = stalled_count = gone_count = 0;
    cr_assert(qd_connections_init(&desk->all, &desk->config));
    desk->all.on_slow = on_slow;
    desk->all.on_gone = on_gone;
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    desk->client = ends[1];
    desk->connection = qd_connection_open(&desk->all, ends[0], true, NULL);
    cr_assert_eq(desk->all.count, 1);
}

static void desk_init(struct desk *desk)
{
    desk_init_beside(desk, 1);
}

static void desk_deinit(struct desk *desk)
{
    int fd = desk->connection->socket.fd;
    close(desk->client);
    qd_connection_close(desk->connection);
    close(fd);
    cr_assert_eq(desk->all.count, 0);
    cr_assert_eq(qd_connections_next_ns(&desk->all), UINT64_MAX);
    qd_connections_deinit(&desk->all);
}

static bool is_cut(struct desk *desk)
{
    char byte;
    qd_connections_on_hangups(&desk->all);
    qd_connections_sweep(&desk->all);
    return recv(desk->client, &byte, 1, MSG_DONTWAIT) == 0;
}

/* Makes the connection's time limit expire. */
static void let_time_pass(struct desk *desk)
{
    if (desk->connection->deadline_ns != UINT64_MAX)
        desk->connection->deadline_ns = qd_clock_ns();
}

/* Makes the connection old, so that the next sweep adds it to the epoll. */
static void make_old(struct desk *desk)
{
    desk->connection->accepted_ns -= QD_NS_PER_S;
    desk->connection->since_ns -= QD_NS_PER_S;
    qd_connections_sweep(&desk->all);
}

static void advance_to(struct desk *desk, enum qd_connection_state to)
{
    static const enum qd_connection_state way[] = {QD_CONNECTION_HEAD, QD_CONNECTION_BODY,
                                                   QD_CONNECTION_PROCESSING, QD_CONNECTION_ANSWER,
                                                   QD_CONNECTION_IDLE};
    desk->connection->request = &desk->request;
    for (size_t i = 0; desk->connection->state != to; i++)
        qd_connection_advance(desk->connection, way[i]);
}

Test(connection, each_state_has_its_time)
{
    static const enum qd_connection_state states[] = {QD_CONNECTION_NEW, QD_CONNECTION_HEAD,
                                                      QD_CONNECTION_BODY, QD_CONNECTION_IDLE};
    for (size_t i = 0; i < sizeof(states) / sizeof(*states); i++) {
        struct desk desk;
        desk_init(&desk);
        advance_to(&desk, states[i]);
        cr_assert_not(is_cut(&desk), "%zu", i);
        uint64_t next_ns = qd_connections_next_ns(&desk.all);
        cr_assert_leq(next_ns, desk.connection->deadline_ns);
        let_time_pass(&desk);
        cr_assert(is_cut(&desk), "%zu", i);
        cr_assert_eq(slow_count,
                     states[i] == QD_CONNECTION_HEAD || states[i] == QD_CONNECTION_BODY);
        cr_assert_eq(desk.connection->state, QD_CONNECTION_CLOSING);
        desk_deinit(&desk);
    }
}

Test(connection, who_is_one_too_many_has_little_time)
{
    struct desk desk;
    desk_init(&desk);
    qd_connection_hurry(desk.connection);
    cr_assert_leq(desk.connection->deadline_ns, qd_clock_ns() + 2 * QD_NS_PER_S);
    const uint64_t deadline_ns = desk.connection->deadline_ns;
    cr_assert_not(is_cut(&desk));
    advance_to(&desk, QD_CONNECTION_HEAD);
    cr_assert_eq(desk.connection->deadline_ns, deadline_ns, "a first line gives it no more");
    let_time_pass(&desk);
    cr_assert(is_cut(&desk));
    cr_assert_eq(slow_count, 1);
    desk_deinit(&desk);
}

Test(connection, the_table_holds, .signal = SIGABRT)
{
    struct desk desk;
    desk_init(&desk);
    qd_connection_advance(desk.connection, QD_CONNECTION_PROCESSING);
}

Test(connection, our_turn_takes_what_it_takes)
{
    struct desk desk;
    desk_init(&desk);
    make_old(&desk);
    advance_to(&desk, QD_CONNECTION_PROCESSING);
    let_time_pass(&desk);
    cr_assert_not(is_cut(&desk));
    shutdown(desk.client, SHUT_WR); /* the client still reads */
    cr_assert_not(is_cut(&desk));
    cr_assert_neq(desk.connection->peer, QD_PEER_SENDS);
    cr_assert_eq(gone_count, 0);
    desk.all.cutting = true;
    desk.all.draining = true;
    cr_assert_not(is_cut(&desk));
    qd_connection_advance(desk.connection, QD_CONNECTION_ANSWER);
    cr_assert(is_cut(&desk));
    desk.all.draining = false;
    desk_deinit(&desk);
}

Test(connection, who_goes_while_we_work_is_told)
{
    struct desk desk;
    desk_init(&desk);
    make_old(&desk);
    advance_to(&desk, QD_CONNECTION_PROCESSING);
    close(desk.client);
    qd_connections_on_hangups(&desk.all);
    qd_connections_sweep(&desk.all);
    cr_assert_geq(gone_count, 1);
    desk.client = dup(0);
    desk_deinit(&desk);
}

Test(connection, a_body_keeps_its_pace)
{
    struct desk desk;
    desk_init(&desk);
    cr_assert_eq(desk.all.window_bytes, RATE * (QD_PACE_WINDOW_NS / QD_NS_PER_S));
    advance_to(&desk, QD_CONNECTION_BODY);
    for (int i = 0; i < 5; i++) {
        desk.request.body.count += desk.all.window_bytes;
        let_time_pass(&desk);
        cr_assert_not(is_cut(&desk));
        cr_assert_gt(desk.connection->deadline_ns, qd_clock_ns() + QD_NS_PER_S);
    }
    desk.request.body.count += desk.all.window_bytes - 1;
    cr_assert_eq(write(desk.client, "x", 1), 1);
    let_time_pass(&desk);
    cr_assert_not(is_cut(&desk), "it is we who have not read");
    char byte;
    cr_assert_eq(read(desk.connection->socket.fd, &byte, 1), 1);
    let_time_pass(&desk);
    cr_assert(is_cut(&desk));
    cr_assert_eq(slow_count, 1);
    cr_assert_eq(stalled_count, 0);
    desk_deinit(&desk);
}

Test(connection, a_body_that_waits_unread_is_stalled)
{
    struct desk desk;
    desk_init(&desk);
    advance_to(&desk, QD_CONNECTION_BODY);
    cr_assert_eq(write(desk.client, "x", 1), 1);
    qd_connections_look_for_stalled(&desk.all, true);
    desk.request.body.count++;
    qd_connections_look_for_stalled(&desk.all, false);
    qd_connections_look_for_stalled(&desk.all, true);
    cr_assert_eq(slow_count, 0, "it has moved, and then the library has rested");
    qd_connections_look_for_stalled(&desk.all, false);
    cr_assert_eq(slow_count, 1);
    cr_assert_eq(stalled_count, 1);
    desk_deinit(&desk);
}

/* Checks that a body which waits for the server is never cut off, even if its client has sent all
 * bytes and shut down its side. */
static void expect_patience(struct desk *desk)
{
    let_time_pass(desk);
    cr_assert_not(is_cut(desk));
    shutdown(desk->client, SHUT_WR); /* the client has sent all bytes */
    cr_assert_not(is_cut(desk));
    cr_assert_eq(desk->connection->peer, QD_PEER_ENDED);
    desk->connection->since_ns -= QD_NS_PER_S;
    let_time_pass(desk);
    cr_assert_not(is_cut(desk));
}

/* The library has read all bytes that the client sent, and the socket is empty. */
Test(connection, a_body_that_is_held_is_not_late)
{
    struct desk desk;
    desk_init(&desk);
    make_old(&desk);
    advance_to(&desk, QD_CONNECTION_BODY);
    desk.connection->current.is_held = true;
    expect_patience(&desk);
    qd_connections_look_for_stalled(&desk.all, true);
    qd_connections_look_for_stalled(&desk.all, false);
    cr_assert_eq(slow_count, 0);
    desk.connection->current.is_held = false;
    cr_assert(is_cut(&desk));
    desk_deinit(&desk);
}

/* Like a_body_that_is_held_is_not_late, for bytes that are in their place but that the library has
 * not seen. */
Test(connection, a_body_that_is_not_taken_yet_is_not_late)
{
    struct desk desk;
    desk_init(&desk);
    make_old(&desk);
    advance_to(&desk, QD_CONNECTION_BODY);
    desk.connection->io.placed_bytes = 1;
    expect_patience(&desk);
    desk.connection->io.placed_bytes = 0;
    cr_assert(is_cut(&desk));
    desk_deinit(&desk);
}

Test(connection, the_next_body_is_another)
{
    struct desk desk;
    desk_init(&desk);
    advance_to(&desk, QD_CONNECTION_BODY);
    cr_assert_eq(write(desk.client, "x", 1), 1);
    qd_connections_look_for_stalled(&desk.all, true);
    qd_connection_advance(desk.connection, QD_CONNECTION_ANSWER);
    qd_connection_advance(desk.connection, QD_CONNECTION_IDLE);
    qd_connection_advance(desk.connection, QD_CONNECTION_HEAD);
    qd_connection_advance(desk.connection, QD_CONNECTION_BODY);
    qd_connections_look_for_stalled(&desk.all, false);
    cr_assert_eq(slow_count, 0, "as far as the one before it was, but it has just begun");
    qd_connections_look_for_stalled(&desk.all, false);
    cr_assert_eq(slow_count, 1);
    desk_deinit(&desk);
}

/* Fills the socket with as many bytes as it takes, like the library. */
static void fill(int fd)
{
    static const char bytes[64 << 10];
    while (send(fd, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
        ;
}

Test(connection, an_answer_is_taken_at_its_pace)
{
    struct desk desk;
    static char bytes[1 << 20];
    desk_init(&desk);
    advance_to(&desk, QD_CONNECTION_ANSWER);
    fill(desk.connection->socket.fd);
    for (int i = 0; i < 5; i++) { /* the first window starts the counting */
        let_time_pass(&desk);
        qd_connections_on_hangups(&desk.all);
        qd_connections_sweep(&desk.all);
        cr_assert_eq(slow_count, 0, "%d", i);
        while (recv(desk.client, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
            ;
        qd_connections_on_hangups(&desk.all);
        fill(desk.connection->socket.fd);
    }
    let_time_pass(&desk);
    qd_connections_sweep(&desk.all);
    cr_assert_eq(slow_count, 0);
    let_time_pass(&desk);
    qd_connections_on_hangups(&desk.all);
    qd_connections_sweep(&desk.all);
    cr_assert_eq(slow_count, 1, "it reads no more");
    desk_deinit(&desk);
}

/* This happens long before the buffer has so much room that the kernel reports it. */
Test(connection, an_answer_moves_while_its_buffer_is_full)
{
    struct desk desk;
    static char bytes[64 << 10];
    desk_init(&desk);
    advance_to(&desk, QD_CONNECTION_ANSWER);
    fill(desk.connection->socket.fd);
    let_time_pass(&desk);
    qd_connections_on_hangups(&desk.all);
    qd_connections_sweep(&desk.all);
    cr_assert_gt(recv(desk.client, bytes, sizeof(bytes), MSG_DONTWAIT), RATE);
    let_time_pass(&desk);
    qd_connections_on_hangups(&desk.all);
    cr_assert_eq(desk.connection->pace.freed_bytes, 0, "there is room again");
    qd_connections_sweep(&desk.all);
    cr_assert_eq(slow_count, 0, "it has read some");
    desk_deinit(&desk);
}

static int send_buffer_bytes(const struct desk *desk)
{
    int bytes = 0;
    socklen_t size = sizeof(bytes);
    getsockopt(desk->connection->socket.fd, SOL_SOCKET, SO_SNDBUF, &bytes, &size);
    return bytes;
}

static void check_wide_until_it_ends(bool is_unix)
{
    struct desk desk;
    desk_init(&desk);
    if (!is_unix) {
        const int fd = socket(AF_INET, SOCK_STREAM, 0);
        cr_assert_eq(dup2(fd, desk.connection->socket.fd), desk.connection->socket.fd);
        close(fd);
        desk.connection->socket.is_unix = false;
    }
    cr_assert_eq(qd_socket_bound_send(desk.connection->socket.fd), is_unix);
    const int narrow = send_buffer_bytes(&desk);
    advance_to(&desk, QD_CONNECTION_ANSWER);
    qd_connection_widen(desk.connection, QD_WIDE_ANSWER_BYTES - 1);
    cr_assert_eq(send_buffer_bytes(&desk), narrow);
    qd_connection_widen(desk.connection, QD_WIDE_ANSWER_BYTES);
    cr_assert_gt(send_buffer_bytes(&desk), narrow);
    qd_connection_advance(desk.connection, QD_CONNECTION_IDLE);
    cr_assert_eq(send_buffer_bytes(&desk), narrow);
    desk_deinit(&desk);
}

Test(connection, a_large_answer_has_a_wide_buffer_until_it_ends)
{
    check_wide_until_it_ends(true);
    check_wide_until_it_ends(false);
}

/* Only a limited number of connections whose clients do not read have wide buffers. A client that
 * has read everything leaves its place to the next. */
Test(connection, so_many_buffers_are_wide)
{
    enum { COUNT = QD_WIDE_COUNT_MAX + 1 };
    struct desk desk;
    struct qd_connection *others[COUNT];
    static char bytes[1 << 20];
    int ends[COUNT][2];
    desk_init(&desk);
    for (size_t i = 0; i < COUNT; i++) {
        cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, ends[i]), 0);
        others[i] = qd_connection_open(&desk.all, ends[i][0], true, NULL);
        qd_connection_advance(others[i], QD_CONNECTION_ANSWER);
        qd_connection_widen(others[i], QD_WIDE_ANSWER_BYTES);
        cr_assert_eq(others[i]->socket.is_wide, i < QD_WIDE_COUNT_MAX, "%zu", i);
        fill(ends[i][0]);
    }
    qd_connection_advance(others[3], QD_CONNECTION_IDLE);
    qd_connection_widen(others[COUNT - 1], QD_WIDE_ANSWER_BYTES);
    cr_assert_not(others[COUNT - 1]->socket.is_wide, "that client has much to read");
    while (recv(ends[3][1], bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
        ;
    qd_connection_widen(others[COUNT - 1], QD_WIDE_ANSWER_BYTES);
    cr_assert(others[COUNT - 1]->socket.is_wide);
    for (size_t i = 0; i < COUNT; i++) {
        qd_connection_close(others[i]);
        close(ends[i][0]);
        close(ends[i][1]);
    }
    for (size_t i = 0; i < QD_WIDE_COUNT_MAX; i++)
        cr_assert_null(desk.all.wide[i]);
    desk_deinit(&desk);
}

Test(connection, io_threads_share_the_wide_buffers)
{
    enum { IO_THREADS = 5, COUNT = QD_WIDE_COUNT_MAX / IO_THREADS + 1 };
    struct desk desk;
    struct qd_connection *others[COUNT];
    int ends[COUNT][2];
    desk_init_beside(&desk, IO_THREADS);
    for (size_t i = 0; i < COUNT; i++) {
        cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, ends[i]), 0);
        others[i] = qd_connection_open(&desk.all, ends[i][0], true, NULL);
        qd_connection_advance(others[i], QD_CONNECTION_ANSWER);
        qd_connection_widen(others[i], QD_WIDE_ANSWER_BYTES);
        cr_assert_eq(others[i]->socket.is_wide, i < COUNT - 1, "%zu", i);
        fill(ends[i][0]);
    }
    for (size_t i = 0; i < COUNT; i++) {
        qd_connection_close(others[i]);
        close(ends[i][0]);
        close(ends[i][1]);
    }
    desk_deinit(&desk);
}

Test(connection, a_first_head_counts_from_the_accept)
{
    struct desk desk;
    desk_init(&desk);
    uint64_t deadline_ns = desk.connection->deadline_ns;
    advance_to(&desk, QD_CONNECTION_HEAD);
    cr_assert_eq(desk.connection->deadline_ns, deadline_ns);
    qd_connection_advance(desk.connection, QD_CONNECTION_ANSWER);
    qd_connection_advance(desk.connection, QD_CONNECTION_IDLE);
    desk.config.receive_timeout_ns = 1;
    qd_connection_advance(desk.connection, QD_CONNECTION_HEAD);
    cr_assert_lt(desk.connection->deadline_ns, deadline_ns);
    desk_deinit(&desk);
}

Test(connection, who_leaves_in_the_middle_is_noticed)
{
    struct desk desk;
    desk_init(&desk);
    make_old(&desk);
    cr_assert_eq(write(desk.client, "P", 1), 1);
    shutdown(desk.client, SHUT_WR);
    cr_assert_not(is_cut(&desk), "a byte is still to be read");
    char byte;
    cr_assert_eq(read(desk.connection->socket.fd, &byte, 1), 1);
    cr_assert(is_cut(&desk));
    desk_deinit(&desk);
}

static size_t decrypted;

static size_t decrypted_bytes(const struct qd_connection *connection)
{
    (void)connection;
    return decrypted;
}

/* Over TLS the socket yields a whole record, and the library reads it in pieces. */
Test(connection, what_is_decrypted_already_is_still_to_be_read)
{
    struct desk desk;
    desk_init(&desk);
    desk.all.decrypted_bytes = decrypted_bytes;
    decrypted = 1;
    make_old(&desk);
    shutdown(desk.client, SHUT_WR);
    cr_assert_not(is_cut(&desk));
    advance_to(&desk, QD_CONNECTION_BODY);
    desk.connection->since_ns -= QD_NS_PER_S;
    cr_assert_not(is_cut(&desk), "an upload's end");
    let_time_pass(&desk);
    cr_assert_not(is_cut(&desk), "it is we who have not read");
    qd_connection_advance(desk.connection, QD_CONNECTION_ANSWER);
    qd_connection_advance(desk.connection, QD_CONNECTION_IDLE);
    desk.all.draining = true;
    desk.connection->since_ns -= QD_NS_PER_S;
    cr_assert_not(is_cut(&desk), "another request");
    decrypted = 0;
    cr_assert(is_cut(&desk));
    cr_assert_eq(slow_count, 0);
    desk.all.draining = false;
    desk_deinit(&desk);
}

Test(connection, a_body_is_read_up_although_its_client_has_shut_its_side)
{
    struct desk desk;
    desk_init(&desk);
    make_old(&desk);
    advance_to(&desk, QD_CONNECTION_BODY);
    cr_assert_eq(write(desk.client, "x", 1), 1);
    shutdown(desk.client, SHUT_WR);
    let_time_pass(&desk);
    cr_assert_not(is_cut(&desk), "it is we who have not read");
    char byte;
    cr_assert_eq(read(desk.connection->socket.fd, &byte, 1), 1);
    let_time_pass(&desk);
    cr_assert(is_cut(&desk));
    desk_deinit(&desk);
}

Test(connection, the_idle_cost_nothing)
{
    struct desk desk;
    desk_init(&desk);
    advance_to(&desk, QD_CONNECTION_IDLE);
    make_old(&desk);
    cr_assert(desk.connection->socket.is_watched);
    cr_assert_eq(qd_connections_next_ns(&desk.all), desk.connection->deadline_ns);
    cr_assert_gt(desk.connection->deadline_ns, qd_clock_ns() + (FAR_S - 60) * QD_NS_PER_S);
    desk_deinit(&desk);
}

Test(connection, draining_ends_the_silent)
{
    struct desk desk;
    desk_init(&desk);
    desk.all.draining = true;
    cr_assert_not(is_cut(&desk), "its request may be on the way");
    desk.connection->since_ns -= QD_NS_PER_S;
    cr_assert_eq(write(desk.client, "G", 1), 1);
    cr_assert_not(is_cut(&desk), "there it is");
    char byte;
    cr_assert_eq(read(desk.connection->socket.fd, &byte, 1), 1);
    advance_to(&desk, QD_CONNECTION_HEAD);
    cr_assert_not(is_cut(&desk));
    qd_connection_advance(desk.connection, QD_CONNECTION_ANSWER);
    qd_connection_advance(desk.connection, QD_CONNECTION_IDLE);
    cr_assert_not(is_cut(&desk));
    desk.connection->since_ns -= QD_NS_PER_S;
    cr_assert(is_cut(&desk));
    desk.all.draining = false;
    desk_deinit(&desk);
}

/* Closes the connection after a last answer, as the listener and libmicrohttpd do. */
static void close_refused(struct desk *desk)
{
    const int fd = desk->connection->socket.fd;
    desk->connection->final_answer = QD_LAST_DELIVERED;
    qd_connection_advance(desk->connection, QD_CONNECTION_CLOSING);
    qd_connection_close(desk->connection);
    close(fd);
    cr_assert_eq(desk->all.count, 1);
}

/* Checks that no connection is left. */
static void check_all_closed(struct desk *desk)
{
    cr_assert_eq(desk->all.count, 0);
    cr_assert_eq(desk->all.lingering_count, 0);
    cr_assert_eq(qd_connections_next_ns(&desk->all), UINT64_MAX);
    close(desk->client);
    qd_connections_deinit(&desk->all);
}

Test(connection, after_a_refusal_it_lingers_until_its_client_closes)
{
    for (unsigned age = 0; age < 2; age++) {
        struct desk desk;
        desk_init(&desk);
        if (age > 0)
            make_old(&desk);
        close_refused(&desk);
        cr_assert(is_cut(&desk), "our end is closed");
        cr_assert_eq(send(desk.client, "more", 4, MSG_NOSIGNAL), 4, "what comes is discarded");
        qd_connections_on_hangups(&desk.all);
        cr_assert_eq(desk.all.count, 1);
        cr_assert_eq(desk.connection->pace.discarded_bytes, 4);
        cr_assert_eq(send(desk.client, "more", 4, MSG_NOSIGNAL), 4);
        shutdown(desk.client, SHUT_WR);
        qd_connections_on_hangups(&desk.all);
        check_all_closed(&desk);
    }
}

/* A reset would destroy the last answer. */
Test(connection, what_is_pipelined_behind_the_last_answer_is_discarded)
{
    for (decrypted = 0; decrypted < 2; decrypted++) {
        struct desk desk;
        desk_init(&desk);
        desk.connection->io.is_hooked = true;
        desk.all.decrypted_bytes = decrypted_bytes;
        desk.all.draining = true;
        advance_to(&desk, QD_CONNECTION_IDLE);
        const int fd = desk.connection->socket.fd;
        qd_connection_close(desk.connection);
        close(fd);
        cr_assert_eq(desk.all.count, decrypted);
        shutdown(desk.client, SHUT_WR);
        qd_connections_on_hangups(&desk.all);
        desk.all.draining = false;
        check_all_closed(&desk);
    }
}

Test(connection, who_sends_on_lingers_longer)
{
    struct desk desk;
    desk_init(&desk);
    close_refused(&desk);
    desk.connection->pace.discarded_bytes = desk.all.window_bytes;
    let_time_pass(&desk);
    qd_connections_sweep(&desk.all);
    cr_assert_eq(desk.all.count, 1);
    cr_assert_gt(desk.connection->deadline_ns, qd_clock_ns());
    let_time_pass(&desk);
    qd_connections_sweep(&desk.all);
    check_all_closed(&desk);
}

Test(connection, lingering_is_bounded)
{
    struct desk desk;
    desk_init(&desk);
    close_refused(&desk);
    desk.connection->pace.discarded_bytes = QD_DISCARD_BYTES_MAX;
    cr_assert_eq(send(desk.client, "x", 1, MSG_NOSIGNAL), 1);
    qd_connections_on_hangups(&desk.all);
    check_all_closed(&desk);
}

Test(connection, the_last_of_too_many_linger)
{
    struct desk desk;
    desk_init(&desk);
    close_refused(&desk);
    const int first = desk.client;
    for (unsigned i = 1; i <= QD_LINGERING_COUNT_MAX; i++) {
        int ends[2];
        cr_assert_eq(send(first, "x", 1, MSG_NOSIGNAL), 1, "%u", i);
        cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
        struct qd_connection *more = qd_connection_open(&desk.all, ends[0], true, NULL);
        more->final_answer = QD_LAST_LOST;
        qd_connection_advance(more, QD_CONNECTION_CLOSING);
        qd_connection_close(more);
        close(ends[0]);
    }
    cr_assert_eq(desk.all.count, QD_LINGERING_COUNT_MAX);
    cr_assert_eq(send(first, "x", 1, MSG_NOSIGNAL), -1, "the first is closed");
    qd_connections_deinit(&desk.all);
    cr_assert_eq(desk.all.count, 0);
}

Test(connection, draining_shortens_lingering)
{
    struct desk desk;
    desk_init(&desk);
    close_refused(&desk);
    desk.all.draining = true;
    qd_connections_sweep(&desk.all);
    cr_assert_eq(desk.all.count, 1);
    desk.connection->since_ns -= QD_NS_PER_S;
    qd_connections_sweep(&desk.all);
    desk.all.draining = false;
    check_all_closed(&desk);
}

Test(connection, any_of_many_can_go)
{
    struct desk desk;
    desk_init(&desk);
    struct qd_connection *others[3];
    for (int i = 0; i < 3; i++)
        others[i] = qd_connection_open(&desk.all, -1, false, NULL);
    cr_assert_eq(desk.all.count, 4);
    qd_connection_close(others[1]);
    qd_connection_close(others[2]);
    qd_connection_close(others[0]);
    qd_connection_close(NULL);
    cr_assert_eq(desk.all.count, 1);
    desk_deinit(&desk);
}
