#include "server/http/connection.h"

#include <criterion/criterion.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/base/clock.h"
#include "server/base/limits.h"

/* A connection, and the client's end of it. */
struct desk {
    struct qd_config config;
    struct qd_connections all;
    struct qd_connection *connection;
    int client;
};

static void desk_init(struct desk *desk)
{
    int ends[2];
    *desk = (struct desk){.config = {.receive_timeout_ns = 3600 * QD_NS_PER_S,
                                     .idle_timeout_ns = 3600 * QD_NS_PER_S}};
    desk->all.config = &desk->config;
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    desk->client = ends[1];
    desk->connection = qd_connection_open(&desk->all, ends[0], NULL);
    cr_assert_eq(desk->all.count, 1);
}

static void desk_deinit(struct desk *desk)
{
    close(desk->connection->fd);
    close(desk->client);
    qd_connection_close(desk->connection);
    cr_assert_eq(desk->all.count, 0);
    cr_assert_null(desk->all.first);
}

static bool is_cut(struct desk *desk)
{
    char byte;
    qd_connections_sweep(&desk->all);
    return recv(desk->client, &byte, 1, MSG_DONTWAIT) == 0;
}

/* As if its time had gone by. */
static void let_time_pass(struct desk *desk)
{
    if (desk->connection->deadline_ns != 0)
        desk->connection->deadline_ns = qd_clock_ns();
}

Test(connection, each_part_has_its_time)
{
    static void (*const parts[])(struct qd_connection *) = {
        qd_connection_on_request_line, qd_connection_on_head, qd_connection_on_request_end};
    for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
        struct desk desk;
        desk_init(&desk);
        cr_assert_not(is_cut(&desk));
        parts[i](desk.connection);
        cr_assert_not(is_cut(&desk));
        let_time_pass(&desk);
        cr_assert(is_cut(&desk), "part %zu", i);
        desk_deinit(&desk);
    }
}

Test(connection, our_turn_takes_what_it_takes)
{
    struct desk desk;
    desk_init(&desk);
    qd_connection_on_request_line(desk.connection);
    qd_connection_on_head(desk.connection);
    qd_connection_on_body_end(desk.connection);
    let_time_pass(&desk);
    cr_assert_not(is_cut(&desk));
    shutdown(desk.client, SHUT_WR); /* it still reads */
    cr_assert_not(is_cut(&desk));
    desk_deinit(&desk);
}

Test(connection, an_answer_is_taken_in_time)
{
    struct desk desk;
    struct qd_request request = {.state = QD_REPLYING};
    desk_init(&desk);
    desk.connection->request = &request;
    qd_connection_on_answer(desk.connection, (size_t)10 * QD_ANSWER_BYTES_PER_S);
    uint64_t least_ns = qd_clock_ns() + desk.config.receive_timeout_ns + 9 * QD_NS_PER_S;
    cr_assert_geq(desk.connection->deadline_ns, least_ns);
    cr_assert_leq(desk.connection->deadline_ns, least_ns + QD_NS_PER_S);
    shutdown(desk.client, SHUT_WR); /* it still reads */
    cr_assert_not(is_cut(&desk));
    let_time_pass(&desk);
    cr_assert(is_cut(&desk), "it reads a byte now and then");
    desk_deinit(&desk);
}

Test(connection, a_first_head_counts_from_the_accept)
{
    struct desk desk;
    desk_init(&desk);
    uint64_t deadline_ns = desk.connection->deadline_ns;
    qd_connection_on_request_line(desk.connection);
    cr_assert_eq(desk.connection->deadline_ns, deadline_ns);
    qd_connection_on_request_end(desk.connection);
    desk.config.receive_timeout_ns = 1;
    qd_connection_on_request_line(desk.connection);
    cr_assert_lt(desk.connection->deadline_ns, deadline_ns);
    desk_deinit(&desk);
}

Test(connection, who_leaves_in_the_middle_is_noticed)
{
    struct desk desk;
    desk_init(&desk);
    cr_assert_eq(write(desk.client, "P", 1), 1);
    shutdown(desk.client, SHUT_WR);
    cr_assert_not(is_cut(&desk), "a byte is still to be read");
    char byte;
    cr_assert_eq(read(desk.connection->fd, &byte, 1), 1);
    cr_assert(is_cut(&desk));
    desk_deinit(&desk);
}

Test(connection, a_suspended_one_is_left_alone)
{
    struct desk desk;
    desk_init(&desk);
    desk.connection->suspended = true;
    let_time_pass(&desk);
    desk.all.cutting = true;
    cr_assert_not(is_cut(&desk));
    desk.connection->suspended = false;
    cr_assert(is_cut(&desk));
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
    cr_assert_eq(read(desk.connection->fd, &byte, 1), 1);
    qd_connection_on_request_line(desk.connection);
    cr_assert_not(is_cut(&desk));
    qd_connection_on_request_end(desk.connection);
    cr_assert_not(is_cut(&desk));
    desk.connection->since_ns -= QD_NS_PER_S;
    cr_assert(is_cut(&desk));
    desk_deinit(&desk);
}

Test(connection, any_of_many_can_go)
{
    struct desk desk;
    desk_init(&desk);
    struct qd_connection *others[3];
    for (int i = 0; i < 3; i++)
        others[i] = qd_connection_open(&desk.all, -1, NULL);
    cr_assert_eq(desk.all.count, 4);
    qd_connection_close(others[1]);
    qd_connection_close(others[2]);
    qd_connection_close(others[0]);
    qd_connection_close(NULL);
    cr_assert_eq(desk.all.first, desk.connection);
    desk_deinit(&desk);
}
