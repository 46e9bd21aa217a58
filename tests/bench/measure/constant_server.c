#define _GNU_SOURCE
#include <microhttpd.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "server/base/limits.h"
#include "tests/bench/measure/buffer.h"
#include "tests/bench/measure/exchange.h"
#include "tests/bench/measure/reach.h"

enum { CONNECTIONS_MAX = 4096, TIMEOUT_S = 30, RUNS_MAX = 8, LINE_BYTES_MAX = 1024 };

struct bench_constant_server {
    pthread_t thread;
    int listen_fd;
    int end_fd;
    struct MHD_Daemon *daemon;
    struct MHD_Response *response;
};

static enum MHD_Result on_access(void *context, struct MHD_Connection *connection, const char *url,
                                 const char *method, const char *version, const char *bytes,
                                 size_t *count, void **state)
{
    const struct bench_constant_server *server = context;
    (void)url;
    (void)method;
    (void)version;
    (void)bytes;
    if (*state == NULL) {
        *state = connection; /* the head has arrived */
        return MHD_YES;
    }
    if (*count > 0) {
        *count = 0;
        return MHD_YES;
    }
    return MHD_queue_response(connection, MHD_HTTP_OK, server->response);
}

/* Runs the daemon like quantd's loop: several times, while there is something to do. */
static void *serve(void *context)
{
    struct bench_constant_server *server = context;
    const int epoll_fd = MHD_get_daemon_info(server->daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
    struct pollfd events[] = {{.fd = epoll_fd, .events = POLLIN},
                              {.fd = server->end_fd, .events = POLLIN}};
    MHD_UNSIGNED_LONG_LONG wait_ms = 0;
    while (events[1].revents == 0) {
        for (unsigned i = 0; i < RUNS_MAX; i++) {
            MHD_run(server->daemon);
            if (MHD_get_timeout(server->daemon, &wait_ms) != MHD_YES)
                wait_ms = 1000;
            if (wait_ms > 0)
                break;
        }
        poll(events, 2, (int)wait_ms);
    }
    return NULL;
}

static void add_header(struct MHD_Response *response, const char *line, size_t bytes)
{
    static const char *const its_own[] = {"Date", "Content-Length", "Connection"};
    char text[LINE_BYTES_MAX];
    snprintf(text, sizeof(text), "%.*s", (int)bytes, line);
    char *value = strstr(text, ": ");
    if (value == NULL) /* the first line */
        return;
    *value = '\0';
    for (size_t i = 0; i < sizeof(its_own) / sizeof(*its_own); i++)
        if (strcasecmp(text, its_own[i]) == 0)
            return;
    if (MHD_add_response_header(response, text, value + 2) != MHD_YES)
        bench_fail("constant: no memory for a header");
}

static struct MHD_Response *create_response(const char *answer, size_t bytes)
{
    const char *end = memmem(answer, bytes, "\r\n\r\n", 4);
    if (end == NULL)
        bench_fail("constant: expected an answer with its head");
    const char *body = end + 4;
    struct MHD_Response *response = MHD_create_response_from_buffer(
        bytes - (size_t)(body - answer), (void *)(uintptr_t)body, MHD_RESPMEM_MUST_COPY);
    if (response == NULL)
        bench_fail("constant: no memory");
    for (const char *line = answer; line < end;) {
        const char *next = memmem(line, (size_t)(body - line), "\r\n", 2);
        add_header(response, line, (size_t)(next - line));
        line = next + 2;
    }
    return response;
}

struct bench_constant_server *bench_constant_server_create(const char *answer, size_t bytes)
{
    struct bench_constant_server *server = calloc(1, sizeof(*server));
    if (!server)
        bench_fail("constant: no memory");
    server->response = create_response(answer, bytes);
    server->listen_fd = bench_listen("0");
    server->end_fd = eventfd(0, EFD_CLOEXEC);
    server->daemon = MHD_start_daemon(
        MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG, 0, NULL, NULL, on_access,
        server, MHD_OPTION_LISTEN_SOCKET, server->listen_fd, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)CONNECTIONS_MAX, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)QD_CONNECTION_BYTES,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)TIMEOUT_S, MHD_OPTION_END);
    if (!server->daemon || pthread_create(&server->thread, NULL, serve, server) != 0)
        bench_fail("constant: libmicrohttpd did not start");
    return server;
}

uint16_t bench_constant_server_port(const struct bench_constant_server *server)
{
    return bench_port(server->listen_fd);
}

void bench_constant_server_destroy(struct bench_constant_server *server)
{
    if (!server)
        return;
    eventfd_write(server->end_fd, 1);
    pthread_join(server->thread, NULL);
    MHD_stop_daemon(server->daemon); /* also closes the listening socket */
    MHD_destroy_response(server->response);
    close(server->end_fd);
    free(server);
}
