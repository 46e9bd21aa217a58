#define _GNU_SOURCE
#include "server/http/wire/socket.h"

#include <criterion/criterion.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static struct qd_error error;
static const struct qd_socket_settings settings = {
    .backlog = 8, .unix_mode = 0660, .unix_owner = ""};

static const struct qd_socket_settings to_be_joined = {
    .backlog = 256, .unix_mode = 0660, .unix_owner = "", .is_shared = true};

static void close_listener(struct qd_socket *listener)
{
    close(listener->fd);
    qd_socket_unlink(listener);
}

/* Makes an address: "unix:" and a path in a new folder. The caller removes the folder. */
static void temporary(char *folder, size_t folder_bytes, char *address, size_t address_bytes)
{
    snprintf(folder, folder_bytes, "/tmp/quantd-test-XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
    snprintf(address, address_bytes, "unix:%s/s", folder);
}

Test(socket, port_0_is_named_for_what_it_became)
{
    struct qd_socket listener;
    cr_assert(qd_socket_listen(&listener, "127.0.0.1:0", &settings, &error), "%s", error.text);
    unsigned port = 0;
    cr_assert_eq(sscanf(listener.name, "http://127.0.0.1:%u", &port), 1, "%s", listener.name);
    cr_assert_gt(port, 0);
    struct qd_socket second;
    char address[64];
    snprintf(address, sizeof(address), "127.0.0.1:%u", port);
    cr_assert_not(qd_socket_listen(&second, address, &settings, &error));
    cr_assert(strstr(error.text, address) != NULL, "%s", error.text);
    close_listener(&listener);
    const struct qd_socket_settings https = {.backlog = 8, .is_https = true, .unix_owner = ""};
    cr_assert(qd_socket_listen(&listener, "127.0.0.1:0", &https, &error), "%s", error.text);
    cr_assert_eq(sscanf(listener.name, "https://127.0.0.1:%u", &port), 1, "%s", listener.name);
    close_listener(&listener);
}

Test(socket, addresses_that_are_none)
{
    static const char *const bad[] = {"",
                                      "8000",
                                      ":8000",
                                      "127.0.0.1:",
                                      "::1:8000",
                                      "[::1]",
                                      "127.0.0.1:http",
                                      "127.0.0.1:65536",
                                      "127.0.0.1:-1",
                                      "[]:80",
                                      "unix:",
                                      "unix:@abstract",
                                      "no.such.host.invalid:1"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        struct qd_socket listener;
        cr_assert_not(qd_socket_listen(&listener, bad[i], &settings, &error), "%s", bad[i]);
        cr_assert(strstr(error.text, bad[i]) != NULL, "%s", error.text);
    }
    char address[300] = "unix:/tmp/";
    memset(address + 10, 'a', 200);
    struct qd_socket listener;
    cr_assert_not(qd_socket_listen(&listener, address, &settings, &error));
}

Test(socket, a_unix_socket_and_its_file)
{
    char folder[64], address[80];
    temporary(folder, sizeof(folder), address, sizeof(address));
    struct qd_socket listener;
    cr_assert(qd_socket_listen(&listener, address, &settings, &error), "%s", error.text);
    cr_assert_str_eq(listener.name, address);
    struct stat stat_of;
    cr_assert_eq(stat(address + 5, &stat_of), 0);
    cr_assert_eq(stat_of.st_mode & 0777, 0660);
    struct qd_socket second;
    cr_assert_not(qd_socket_listen(&second, address, &settings, &error), "somebody listens on it");
    close_listener(&listener);
    cr_assert_neq(stat(address + 5, &stat_of), 0, "its file is gone");
    rmdir(folder);
}

Test(socket, mode_and_owner_of_the_file)
{
    char folder[64], address[80];
    temporary(folder, sizeof(folder), address, sizeof(address));
    static const mode_t modes[] = {0600, 0777, 0622, 0};
    mode_t mask = umask(027);
    for (size_t i = 0; i < sizeof(modes) / sizeof(*modes); i++) {
        struct qd_socket listener;
        struct stat stat_of;
        char owner[40];
        snprintf(owner, sizeof(owner), "%u:%u", (unsigned)getuid(), (unsigned)getgid());
        const struct qd_socket_settings wanted = {
            .backlog = 8, .unix_mode = modes[i], .unix_owner = owner};
        cr_assert(qd_socket_listen(&listener, address, &wanted, &error), "%s", error.text);
        cr_assert_eq(stat(address + 5, &stat_of), 0);
        cr_assert_eq(stat_of.st_mode & 07777, modes[i], "%o", stat_of.st_mode);
        cr_assert_eq(stat_of.st_uid, getuid());
        cr_assert_eq(stat_of.st_gid, getgid());
        close_listener(&listener);
    }
    cr_assert_eq(umask(mask), 027, "it is as it was");
    rmdir(folder);
}

Test(socket, owners_that_are_none)
{
    static const char long_owner[] = "01234567890123456789012345678901234"
                                     "56789012345678901234567890123456789";
    static const char *const bad[] = {":",     "0:",         "no-such-user", ":no-such-group",
                                      "0:0:0", "4294967295", "99999999999",  "-1",
                                      " 0",    "root:",      long_owner};
    char folder[64], address[80];
    temporary(folder, sizeof(folder), address, sizeof(address));
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        struct qd_socket listener;
        const struct qd_socket_settings wanted = {
            .backlog = 8, .unix_mode = 0660, .unix_owner = bad[i]};
        cr_assert_not(qd_socket_listen(&listener, address, &wanted, &error), "%s", bad[i]);
        cr_assert(strstr(error.text, "--unix-owner") != NULL, "%s", error.text);
        cr_assert(strstr(error.text, bad[i]) != NULL, "%s", error.text);
        cr_assert_neq(access(address + 5, F_OK), 0, "no file is made");
    }
    rmdir(folder);
}

Test(socket, a_file_that_was_left_behind_is_replaced)
{
    char folder[64], address[80];
    temporary(folder, sizeof(folder), address, sizeof(address));
    struct qd_socket dead, listener;
    cr_assert(qd_socket_listen(&dead, address, &settings, &error));
    close(dead.fd); /* as after a crash */
    cr_assert(qd_socket_listen(&listener, address, &settings, &error), "%s", error.text);
    qd_socket_unlink(&dead); /* the file does not belong to this socket any more */
    cr_assert_eq(access(address + 5, F_OK), 0);
    close_listener(&listener);
    rmdir(folder);
}

Test(socket, a_file_of_another_kind_stays)
{
    char folder[64], address[80];
    temporary(folder, sizeof(folder), address, sizeof(address));
    FILE *other = fopen(address + 5, "w");
    cr_assert_not_null(other);
    fclose(other);
    struct qd_socket listener;
    cr_assert_not(qd_socket_listen(&listener, address, &settings, &error));
    cr_assert_eq(access(address + 5, F_OK), 0);
    unlink(address + 5);
    rmdir(folder);
}

/* ---- Several listeners on one address ----------------------------------------------------- */

enum { JOINED_COUNT = 3, CLIENT_COUNT = 200 };

static void join_all(struct qd_socket joined[JOINED_COUNT], const char *address)
{
    cr_assert(qd_socket_listen(&joined[0], address, &to_be_joined, &error), "%s", error.text);
    for (size_t i = 1; i < JOINED_COUNT; i++) {
        cr_assert(qd_socket_join(&joined[i], &joined[0], 256, &error), "%s", error.text);
        cr_assert_neq(joined[i].fd, joined[0].fd);
        cr_assert_str_eq(joined[i].name, joined[0].name);
        cr_assert_eq(joined[i].is_local, joined[0].is_local);
    }
}

/* Returns a client's socket that is connected to the listener. */
static int connect_to(const struct qd_socket *listener)
{
    struct sockaddr_storage name;
    socklen_t name_bytes = sizeof(name);
    cr_assert_eq(getsockname(listener->fd, (struct sockaddr *)&name, &name_bytes), 0);
    const int fd = socket(name.ss_family, SOCK_STREAM, 0);
    cr_assert_eq(connect(fd, (const struct sockaddr *)&name, name_bytes), 0);
    return fd;
}

/* Returns how many connections wait in the listener's queue. */
static size_t accept_all(const struct qd_socket *listener)
{
    size_t count = 0;
    int fd;
    while ((fd = accept(listener->fd, NULL, NULL)) >= 0) {
        close(fd);
        count++;
    }
    return count;
}

/* Each connected client is in one of the queues. With this many clients, the probability that a
 * queue is empty is 1 in 10^34. */
Test(socket, tcp_connections_are_dealt_out_among_those_that_joined)
{
    struct qd_socket joined[JOINED_COUNT];
    int clients[CLIENT_COUNT];
    size_t count = 0;
    join_all(joined, "127.0.0.1:0");
    for (size_t i = 0; i < CLIENT_COUNT; i++)
        clients[i] = connect_to(&joined[0]);
    for (size_t i = 0; i < JOINED_COUNT; i++) {
        struct pollfd waiting = {.fd = joined[i].fd, .events = POLLIN};
        cr_assert_eq(poll(&waiting, 1, 60000), 1, "%zu: nobody came", i);
    }
    while (count < CLIENT_COUNT)
        for (size_t i = 0; i < JOINED_COUNT; i++)
            count += accept_all(&joined[i]);
    cr_assert_eq(count, CLIENT_COUNT);
    for (size_t i = 0; i < CLIENT_COUNT; i++)
        close(clients[i]);
    for (size_t i = 0; i < JOINED_COUNT; i++)
        close_listener(&joined[i]);
}

Test(socket, others_do_not_join)
{
    struct qd_socket joined[JOINED_COUNT], other;
    join_all(joined, "127.0.0.1:0");
    const char *address = joined[0].name + strlen("http://");
    cr_assert_not(qd_socket_listen(&other, address, &to_be_joined, &error));
    cr_assert(strstr(error.text, "already in use") != NULL, "%s", error.text);
    cr_assert_not(qd_socket_listen(&other, address, &settings, &error));
    for (size_t i = 0; i < JOINED_COUNT; i++)
        close_listener(&joined[i]);
    cr_assert(qd_socket_listen(&other, "127.0.0.1:0", &settings, &error), "%s", error.text);
    cr_assert_not(qd_socket_join(&joined[0], &other, 8, &error), "it is for itself alone");
    cr_assert(strstr(error.text, other.name) != NULL, "%s", error.text);
    close_listener(&other);
}

Test(socket, unix_connections_are_for_whoever_comes_first)
{
    char folder[64], address[80];
    struct qd_socket joined[JOINED_COUNT];
    temporary(folder, sizeof(folder), address, sizeof(address));
    join_all(joined, address);
    for (size_t i = 0; i < JOINED_COUNT; i++) {
        const int clients[] = {connect_to(&joined[0]), connect_to(&joined[0])};
        cr_assert_eq(accept_all(&joined[i]), 2, "%zu", i);
        cr_assert_eq(accept_all(&joined[(i + 1) % JOINED_COUNT]), 0, "%zu", i);
        close(clients[0]);
        close(clients[1]);
    }
    for (size_t i = 0; i < JOINED_COUNT; i++)
        close_listener(&joined[i]);
    cr_assert_neq(access(address + 5, F_OK), 0, "its file is gone");
    rmdir(folder);
}
