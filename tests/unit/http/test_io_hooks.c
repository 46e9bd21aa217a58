/* The I/O hooks between a library and a socket. Here the library is a model that reads requests
 * into a small buffer, and the socket is a text that arrives in pieces. */
#define _GNU_SOURCE
#include "server/http/mhd/hooks.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/base/clock.h"
#include "server/base/limits.h"

enum { KIB = 1 << 10, MIB = 1 << 20, BUFFER_BYTES = 16 * KIB, REQUEST_COUNT_MAX = 4 };

struct desk {
    struct qd_config config;
    struct qd_connections all;
    struct qd_connection *connection;
    struct qd_memory *memory;

    /* The socket: */
    char *stream;
    size_t count;
    size_t at;
    size_t come;         /* how many bytes have arrived */
    size_t direct_bytes; /* how many bytes bypassed the library's buffer */
    bool was_full;       /* the last read got as many bytes as it asked for */

    /* The library: */
    char buffer[BUFFER_BYTES];
    size_t filled;
    uint64_t left_bytes; /* missing bytes of the current body; 0: the library reads a head */

    size_t body_bytes[REQUEST_COUNT_MAX];
    size_t begun; /* numbers of requests */
    size_t done;
    unsigned random;
};

static unsigned throw(struct desk * desk, unsigned sides)
{
    desk->random = desk->random * 1103515245 + 12345;
    return (desk->random >> 8) % sides;
}

/* Returns the value of a body's byte. */
static char value(size_t request, size_t at)
{
    return (char)((at + request * 77) * 2654435761u >> 13);
}

static void add_request(struct desk *desk, size_t body_bytes)
{
    char head[100];
    const int head_bytes =
        snprintf(head, sizeof(head), "POST / HTTP/1.1\r\nHost: q\r\nContent-Length: %zu\r\n\r\n",
                 body_bytes);
    desk->stream = realloc(desk->stream, desk->count + (size_t)head_bytes + body_bytes);
    memcpy(desk->stream + desk->count, head, (size_t)head_bytes);
    desk->count += (size_t)head_bytes;
    for (size_t i = 0; i < body_bytes; i++)
        desk->stream[desk->count + i] = value(desk->begun, i);
    desk->count += body_bytes;
    desk->body_bytes[desk->begun++] = body_bytes;
}

static struct desk *desk_create(size_t memory_bytes)
{
    struct desk *desk = calloc(1, sizeof(*desk));
    desk->config = (struct qd_config){.io_threads = 1,
                                      .receive_timeout_ns = QD_NS_PER_S,
                                      .idle_timeout_ns = QD_NS_PER_S,
                                      .max_body_bytes = 8 * MIB};
    cr_assert(qd_connections_init(&desk->all, &desk->config));
    desk->memory = qd_memory_create(memory_bytes);
    desk->connection = qd_connection_open(&desk->all, dup(0), false, NULL);
    return desk;
}

static void desk_destroy(struct desk *desk)
{
    qd_request_destroy(desk->connection->request);
    close(desk->connection->socket.fd);
    qd_connection_close(desk->connection);
    qd_connections_deinit(&desk->all);
    cr_assert_eq(qd_memory_used(desk->memory), 0);
    qd_memory_destroy(desk->memory);
    free(desk->stream);
    free(desk);
}

static ssize_t read_stream(void *context, void *bytes, size_t count)
{
    struct desk *desk = context;
    const size_t there = desk->come - desk->at;
    const size_t taken = there < count ? there : count;
    desk->was_full = taken == count;
    if (taken == 0) {
        errno = EAGAIN;
        return -1;
    }
    memcpy(bytes, desk->stream + desk->at, taken);
    desk->at += taken;
    if ((char *)bytes < desk->buffer || (char *)bytes >= desk->buffer + BUFFER_BYTES)
        desk->direct_bytes += taken;
    return (ssize_t)taken;
}

static void library_reads(struct desk *desk)
{
    const size_t room = BUFFER_BYTES - desk->filled;
    if (room == 0)
        return;
    const ssize_t result =
        qd_io_hooks_read(desk->connection, read_stream, desk, desk->buffer + desk->filled, room);
    cr_assert(result == -1 || (result > 0 && (size_t)result <= room), "%zd", result);
    if (result < (ssize_t)room) {
        cr_assert_not(desk->was_full, "it asks no more until something comes");
        cr_assert_eq(desk->connection->io.untold_bytes, 0);
    }
    desk->filled += result > 0 ? (size_t)result : 0;
}

static void drop(struct desk *desk, size_t count)
{
    memmove(desk->buffer, desk->buffer + count, desk->filled - count);
    desk->filled -= count;
}

static void end_request(struct desk *desk)
{
    struct qd_connection *connection = desk->connection;
    const struct qd_request *request = connection->request;
    size_t wrong = 0;
    cr_assert_eq(request->error.status, QD_OK, "%s", request->error.text);
    cr_assert_eq(request->body.count, desk->body_bytes[desk->done]);
    for (size_t i = 0; i < request->body.count; i++)
        wrong += request->body.bytes[i] != value(desk->done, i);
    cr_assert_eq(wrong, 0);
    cr_assert_eq(connection->io.placed_bytes, 0);
    cr_assert_eq(connection->io.untold_bytes, 0);
    qd_request_destroy(connection->request);
    connection->request = NULL;
    connection->done_count++;
    qd_connection_advance(connection, QD_CONNECTION_PROCESSING);
    qd_connection_advance(connection, QD_CONNECTION_ANSWER);
    qd_connection_advance(connection, QD_CONNECTION_IDLE);
    desk->done++;
}

static void read_head(struct desk *desk)
{
    struct qd_connection *connection = desk->connection;
    const char *end = memmem(desk->buffer, desk->filled, "\r\n\r\n", 4);
    if (end == NULL)
        return;
    unsigned long long bytes;
    cr_assert_eq(sscanf(desk->buffer, "POST / HTTP/1.1\r\nHost: q\r\nContent-Length: %llu", &bytes),
                 1, "request %zu", desk->done);
    cr_assert_eq(bytes, desk->body_bytes[desk->done]);
    drop(desk, (size_t)(end - desk->buffer) + 4);
    qd_connection_advance(connection, QD_CONNECTION_HEAD);
    qd_connection_advance(connection, QD_CONNECTION_BODY);
    connection->request = qd_request_create(desk->memory, qd_clock_ns());
    cr_assert_eq(qd_request_reserve_body(connection->request, bytes), QD_OK);
    desk->left_bytes = bytes;
    if (bytes == 0)
        end_request(desk);
}

/* Lets the library process its bytes up to the next head or body. */
static void library_runs(struct desk *desk)
{
    if (desk->left_bytes == 0) {
        read_head(desk);
        return;
    }
    size_t count = desk->left_bytes < desk->filled ? (size_t)desk->left_bytes : desk->filled;
    if (count == 0)
        return;
    cr_assert_eq(qd_io_hooks_take_body(desk->connection, desk->buffer, count), count);
    drop(desk, count);
    desk->left_bytes -= count;
    if (desk->left_bytes == 0)
        end_request(desk);
}

/* Runs until all requests have ended. */
static void run(struct desk *desk)
{
    for (size_t turns = 0; desk->done < desk->begun; turns++) {
        cr_assert_lt(turns, 100000);
        if (throw(desk, 3) > 0) {
            const size_t more = (size_t)1 << throw(desk, 19);
            desk->come = desk->count - desk->come < more ? desk->count : desk->come + more;
        }
        library_reads(desk);
        if (throw(desk, 4) > 0) /* otherwise it keeps its bytes, and reads on */
            library_runs(desk);
    }
    cr_assert_eq(desk->at, desk->count);
    cr_assert_eq(desk->connection->framing.done_count, desk->done);
}

Test(io_hooks, large_bodies_come_straight_into_their_place)
{
    for (unsigned seed = 0; seed < 60; seed++) {
        struct desk *desk = desk_create(16 * MIB);
        desk->random = seed;
        size_t bytes = 0;
        for (size_t i = 0; i < REQUEST_COUNT_MAX; i++) {
            add_request(desk, throw(desk, 1u << throw(desk, 21)));
            bytes += desk->body_bytes[i];
        }
        run(desk);
        if (bytes > MIB)
            cr_assert_gt(desk->direct_bytes, bytes / 2, "seed %u", seed);
        desk_destroy(desk);
    }
}

/* Returns a desk in the middle of a body, of which all further bytes may go directly to their
 * place. */
static struct desk *desk_in_body(size_t memory_bytes, size_t body_bytes)
{
    struct desk *desk = desk_create(memory_bytes);
    add_request(desk, body_bytes);
    desk->come = 1000;
    library_reads(desk);
    read_head(desk);
    library_runs(desk);
    cr_assert_eq(desk->filled, 0);
    desk->come = desk->count;
    return desk;
}

Test(io_hooks, what_is_read_ahead_has_its_bound)
{
    struct desk *desk = desk_in_body(16 * MIB, MIB);
    library_reads(desk);
    cr_assert_eq(desk->direct_bytes, QD_PLACED_BYTES_MAX);
    cr_assert_eq(desk->connection->io.untold_bytes, QD_PLACED_BYTES_MAX - BUFFER_BYTES);
    const uint64_t body_bytes = desk->connection->request->body.count;
    while (desk->connection->io.untold_bytes > 0) {
        library_runs(desk);
        library_reads(desk);
        cr_assert_eq(desk->direct_bytes, QD_PLACED_BYTES_MAX);
    }
    library_runs(desk);
    cr_assert_eq(desk->connection->request->body.count, body_bytes + QD_PLACED_BYTES_MAX);
    run(desk);
    desk_destroy(desk);
}

Test(io_hooks, what_the_library_has_read_comes_first)
{
    struct desk *desk = desk_create(16 * MIB);
    add_request(desk, 100 * KIB);
    desk->come = 1000;
    library_reads(desk);
    read_head(desk);
    cr_assert_gt(desk->filled, 0);
    desk->come = 2000;
    library_reads(desk);
    cr_assert_eq(desk->direct_bytes, 0);
    desk->come = desk->count;
    library_runs(desk);
    library_reads(desk);
    cr_assert_gt(desk->direct_bytes, 0);
    run(desk);
    desk_destroy(desk);
}

Test(io_hooks, bodies_over_tls_go_the_librarys_way)
{
    struct desk *desk = desk_in_body(16 * MIB, 100 * KIB);
    desk->connection->tls.handshake_done = true;
    run(desk);
    cr_assert_eq(desk->direct_bytes, 0);
    desk_destroy(desk);
}

/* Takes all of the process's memory but 8 KiB. */
static void leave_little(const struct desk *desk, struct qd_arena *other)
{
    qd_arena_init(other, desk->memory);
    cr_assert_not_null(qd_arena_alloc(other, qd_memory_max(desk->memory) -
                                                 qd_memory_used(desk->memory) - 8 * KIB));
}

Test(io_hooks, a_body_without_memory_goes_the_librarys_way)
{
    struct desk *desk = desk_in_body(2 * MIB, MIB);
    struct qd_arena other;
    leave_little(desk, &other);
    for (size_t i = 0; i < 20 && desk->connection->request->error.status == QD_OK; i++) {
        library_reads(desk);
        library_runs(desk);
    }
    cr_assert_eq(desk->connection->request->error.status, QD_UNAVAILABLE);
    cr_assert_eq(desk->connection->io.placed_bytes, 0);
    qd_arena_deinit(&other);
    desk_destroy(desk);
}

/* The library gets the rest of the read that filled the available room. */
Test(io_hooks, what_finds_no_room_follows_what_is_in_its_place)
{
    struct desk *desk = desk_in_body(2 * MIB, MIB);
    struct qd_arena other;
    leave_little(desk, &other);
    library_reads(desk);
    cr_assert_eq(desk->filled, BUFFER_BYTES);
    cr_assert_gt(desk->connection->io.placed_bytes, 0);
    cr_assert_lt(desk->connection->io.placed_bytes, BUFFER_BYTES);
    qd_arena_deinit(&other);
    run(desk);
    desk_destroy(desk);
}

/* The size of the pieces is not a multiple of the library's buffer. */
Test(io_hooks, nothing_of_a_body_is_copied_behind_its_first_piece)
{
    struct desk *desk = desk_in_body(16 * MIB, MIB);
    const size_t first = desk->at;
    for (desk->come = first + 50000; desk->done == 0; library_runs(desk)) {
        if (desk->at == desk->come)
            desk->come = desk->count - desk->come < 50000 ? desk->count : desk->come + 50000;
        library_reads(desk);
    }
    cr_assert_eq(desk->direct_bytes, desk->count - first);
    desk_destroy(desk);
}

/* The length of the body is unknown. */
Test(io_hooks, chunks_go_the_librarys_way)
{
    static const char text[] =
        "POST / HTTP/1.1\r\nHost: q\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"
        "0\r\n\r\n";
    struct desk *desk = desk_create(16 * MIB);
    desk->count = desk->come = sizeof(text) - 1;
    desk->stream = malloc(desk->count);
    memcpy(desk->stream, text, desk->count);
    const size_t head_bytes = (size_t)(strstr(text, "5\r\n") - text);
    char bytes[100];
    cr_assert_eq(qd_io_hooks_read(desk->connection, read_stream, desk, bytes, head_bytes),
                 (ssize_t)head_bytes);
    qd_connection_advance(desk->connection, QD_CONNECTION_HEAD);
    qd_connection_advance(desk->connection, QD_CONNECTION_BODY);
    struct qd_request *request = desk->connection->request = qd_request_create(desk->memory, 0);
    cr_assert_eq(qd_request_reserve_body(request, 0), QD_OK);
    qd_request_take_body(request, "", 0, 1);
    cr_assert_eq(qd_io_hooks_read(desk->connection, read_stream, desk, bytes, 4), 4);
    cr_assert_eq(qd_io_hooks_take_body(desk->connection, bytes + 3, 1), 1);
    cr_assert_gt(qd_request_body_room(request, 0), 0);
    cr_assert_eq(qd_io_hooks_read(desk->connection, read_stream, desk, bytes, 100), 11);
    cr_assert_eq(memcmp(bytes, "ello\r\n0\r\n\r\n", 11), 0);
    desk_destroy(desk);
}

/* The removed bytes of a chunk leave room for more bytes of the same read. At that time as many
 * bytes of the next request's body have arrived as of this one's. */
Test(io_hooks, a_body_behind_one_in_chunks_is_not_read_into_its_place)
{
    static const char text[] =
        "POST / HTTP/1.1\r\nHost: q\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"
        "1;extension\r\n!\r\n0\r\n\r\n"
        "POST / HTTP/1.1\r\nHost: q\r\nContent-Length: 15\r\n\r\nfirst, then the";
    struct desk *desk = desk_create(16 * MIB);
    desk->count = sizeof(text) - 1;
    desk->stream = malloc(desk->count);
    memcpy(desk->stream, text, desk->count);
    char *bytes = desk->buffer;
    desk->come = (size_t)(strstr(text, "hello") - text) + 5;
    cr_assert_eq(qd_io_hooks_read(desk->connection, read_stream, desk, bytes, 200),
                 (ssize_t)desk->come);
    qd_connection_advance(desk->connection, QD_CONNECTION_HEAD);
    qd_connection_advance(desk->connection, QD_CONNECTION_BODY);
    struct qd_request *request = desk->connection->request = qd_request_create(desk->memory, 0);
    cr_assert_eq(qd_request_reserve_body(request, 0), QD_OK);
    cr_assert_eq(qd_io_hooks_take_body(desk->connection, bytes + desk->come - 5, 5), 5);
    desk->come = desk->count;
    const size_t asked = (size_t)(strstr(text, ", then") - text) - desk->at;
    cr_assert_eq(qd_io_hooks_read(desk->connection, read_stream, desk, bytes, asked),
                 (ssize_t)asked);
    cr_assert_eq(desk->direct_bytes, 0);
    cr_assert_eq(desk->connection->io.placed_bytes, 0);
    cr_assert_eq(memcmp(bytes + asked - 15, "first, then the", 15), 0);
    desk_destroy(desk);
}

/* ---- Answers in place of the library's ---------------------------------------------------- */

enum { ANSWER_BYTES = MIB };

static void take_all(int fd, char *taken, size_t *count)
{
    ssize_t some;
    while ((some = recv(fd, taken + *count, ANSWER_BYTES + 100 - *count, MSG_DONTWAIT)) > 0)
        *count += (size_t)some;
}

/* The answer is more than the socket takes at once. The library sees a full socket until all bytes
 * are sent, and its own head is never sent. */
Test(io_hooks, a_short_answer_goes_in_the_librarys_stead)
{
    static const char head[] = "the library's head";
    const size_t head_bytes = sizeof(head) - 1;
    struct desk *desk = desk_create(16 * MIB);
    struct qd_connection *connection = desk->connection;
    int ends[2];
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    cr_assert_eq(dup2(ends[0], connection->socket.fd), connection->socket.fd);
    cr_assert(!qd_io_hooks_has(connection));
    cr_assert(qd_io_hooks_add(connection));
    cr_assert(qd_io_hooks_has(connection));

    char *answer = malloc(ANSWER_BYTES);
    char *taken = malloc(ANSWER_BYTES + 100);
    size_t count = 0;
    unsigned full_count = 0;
    for (size_t i = 0; i < ANSWER_BYTES; i++)
        answer[i] = value(1, i);
    connection->io.outgoing = (struct qd_part){answer, ANSWER_BYTES};
    ssize_t sent;
    while ((sent = send(connection->socket.fd, head, head_bytes, MSG_DONTWAIT)) < 0) {
        cr_assert_eq(errno, EAGAIN);
        full_count++;
        take_all(ends[1], taken, &count);
    }
    take_all(ends[1], taken, &count);
    cr_assert_gt(full_count, 1);
    cr_assert_eq(sent, (ssize_t)head_bytes);
    cr_assert_eq(count, ANSWER_BYTES);
    cr_assert_eq(memcmp(taken, answer, count), 0);

    cr_assert_eq(send(connection->socket.fd, head, head_bytes, MSG_DONTWAIT), (ssize_t)head_bytes);
    take_all(ends[1], taken, &count);
    cr_assert_eq(count, ANSWER_BYTES + head_bytes);
    cr_assert_eq(memcmp(taken + ANSWER_BYTES, head, head_bytes), 0);
    qd_io_hooks_remove(connection);
    qd_io_hooks_deinit();
    close(ends[0]);
    close(ends[1]);
    free(answer);
    free(taken);
    desk_destroy(desk);
}
