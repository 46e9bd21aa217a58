#define _GNU_SOURCE
#include "server/http/endpoint.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/base/limits.h"
#include "server/telemetry/log.h"

enum {
    BACKLOG = 1024,
    RUNS_MAX = 8, /* MHD_run moves one buffer for each connection, so several runs batch better */
    PAUSE_MS = 100,
};

/* Leaves the escapes in place, because path.c decodes the path segment by segment. The query is
 * already cut off. */
static size_t keep_escapes(void *context, struct MHD_Connection *mhd, char *text)
{
    (void)context;
    (void)mhd;
    return strlen(text);
}

/* The cast that drops const is safe, because libmicrohttpd only reads the text. */
static struct MHD_OptionItem text_option(enum MHD_OPTION option, const char *text)
{
    return (struct MHD_OptionItem){.option = option, .ptr_value = (void *)(uintptr_t)text};
}

static void on_log(void *context, const char *format, va_list arguments)
    __attribute__((format(printf, 2, 0)));

static void on_log(void *context, const char *format, va_list arguments)
{
    (void)context;
    char text[256];
    vsnprintf(text, sizeof(text), format, arguments);
    text[strcspn(text, "\n")] = '\0';
    qd_log(QD_LOG_DEBUG, "libmicrohttpd", "text=\"%s\"", qd_log_value(text).text);
}

static void on_connection(void *context, struct MHD_Connection *mhd, void **slot,
                          enum MHD_ConnectionNotificationCode code)
{
    struct qd_endpoint *endpoint = context;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        endpoint->connection_count++;
        *slot = qd_exchange_open(endpoint->exchange, mhd, endpoint->index, endpoint->is_https);
    } else {
        endpoint->connection_count--;
        qd_exchange_close(endpoint->exchange, *slot);
    }
}

static struct MHD_Daemon *start_daemon(struct qd_endpoint *endpoint)
{
    struct qd_exchange *exchange = endpoint->exchange;
    /* The connections that quota.h admits or refuses. Further ones wait in the backlog. */
    const unsigned connections_max =
        (unsigned)exchange->settings.config->max_connections + QD_REFUSED_COUNT_MAX;
    /* answer_head.h adds Date for a fraction of what it costs in libmicrohttpd. */
    unsigned flags = MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG |
                     MHD_USE_SUPPRESS_DATE_NO_CLOCK;
    struct MHD_OptionItem tls[] = {{.option = MHD_OPTION_END}, {0}, {0}, {0}};
    if (endpoint->is_https) {
        flags |= MHD_USE_TLS;
        tls[0] = text_option(MHD_OPTION_HTTPS_MEM_CERT, qd_tls_cert_text(exchange->settings.tls));
        tls[1] = text_option(MHD_OPTION_HTTPS_MEM_KEY, qd_tls_key_text(exchange->settings.tls));
        tls[2] = text_option(MHD_OPTION_HTTPS_PRIORITIES, QD_TLS_PRIORITIES);
        tls[3].option = MHD_OPTION_END;
    }
    return MHD_start_daemon(
        flags, 0, NULL, NULL, qd_exchange_on_access, exchange, MHD_OPTION_EXTERNAL_LOGGER, on_log,
        NULL, MHD_OPTION_ARRAY, tls, MHD_OPTION_LISTEN_SOCKET, endpoint->socket.fd,
        MHD_OPTION_CONNECTION_LIMIT, connections_max, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)QD_CONNECTION_BYTES, MHD_OPTION_NOTIFY_CONNECTION, on_connection, endpoint,
        MHD_OPTION_NOTIFY_COMPLETED, qd_exchange_on_completed, exchange,
        MHD_OPTION_URI_LOG_CALLBACK, qd_exchange_on_request_line, exchange,
        MHD_OPTION_UNESCAPE_CALLBACK, keep_escapes, NULL, MHD_OPTION_END);
}

/* Warns if other hosts can reach the socket and the server asks for no tokens, or tokens come
 * unencrypted. */
static void warn_of_strangers(const struct qd_endpoint *endpoint)
{
    if (endpoint->socket.is_local)
        return;
    if (endpoint->exchange->settings.config->token_file[0] == '\0') {
        qd_log(QD_LOG_WARN, "everybody who reaches this address may use it; see --token-file",
               "address=%s", endpoint->socket.name);
    } else if (!endpoint->is_https) {
        qd_log(QD_LOG_WARN, "tokens and tensors come here in the clear; see --tls-cert",
               "address=%s", endpoint->socket.name);
    }
}

/* ---- Out of descriptors ------------------------------------------------------------------- */

static void on_ready(void *context)
{
    struct qd_endpoint *endpoint = context;
    endpoint->exchange->pump_needed = true;
}

static bool watch(struct qd_endpoint *endpoint)
{
    int epoll_fd = MHD_get_daemon_info(endpoint->mhd, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
    endpoint->watch = qd_loop_watch(endpoint->exchange->loop, epoll_fd, on_ready, endpoint);
    return endpoint->watch != NULL;
}

static void resume(void *context)
{
    struct qd_endpoint *endpoint = context;
    if (watch(endpoint))
        on_ready(endpoint);
    else
        qd_timer_start(endpoint->pause_timer, PAUSE_MS, 0);
}

/* Returns true if a client still waits in the socket after libmicrohttpd has accepted all that it
 * could, and a new descriptor cannot be had. The reason is in errno. */
static bool cannot_accept(const struct qd_endpoint *endpoint)
{
    struct pollfd waiting = {.fd = endpoint->socket.fd, .events = POLLIN};
    if (poll(&waiting, 1, 0) <= 0)
        return false;
    int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (probe >= 0)
        close(probe);
    return probe < 0;
}

/* Stops running libmicrohttpd for PAUSE_MS if it cannot accept, and returns true then. While a
 * connection is open, libmicrohttpd waits until one has closed before it accepts again. Without any
 * open connection it would try again at once, over and over. */
static bool pauses(struct qd_endpoint *endpoint)
{
    if (endpoint->connection_count > 0) {
        endpoint->short_of_files = false;
        return false;
    }
    if (!cannot_accept(endpoint))
        return false;
    if (!endpoint->short_of_files) {
        qd_log(QD_LOG_ERROR, "no file descriptor or memory for new connections: they wait",
               "address=%s error=\"%s\"", endpoint->socket.name, strerror(errno));
    }
    endpoint->short_of_files = true;
    qd_handle_destroy(endpoint->watch);
    endpoint->watch = NULL;
    qd_timer_start(endpoint->pause_timer, PAUSE_MS, 0);
    return true;
}

bool qd_endpoint_open(struct qd_endpoint *endpoint, struct qd_exchange *exchange, size_t index,
                      const struct qd_endpoint *first, struct qd_error *error)
{
    const struct qd_config *config = exchange->settings.config;
    const char *address = config->listen[index];
    const bool has_tls = exchange->settings.tls != NULL;
    const struct qd_socket_settings wanted = {
        .backlog = BACKLOG,
        .is_https = has_tls,
        .unix_mode = (mode_t)config->unix_mode,
        .unix_owner = config->unix_owner,
        .is_shared = config->io_threads > 1,
    };
    if (has_tls && MHD_is_feature_supported(MHD_FEATURE_TLS) != MHD_YES)
        return qd_fail_startup(
            error, "cannot listen on %s: --tls-cert: this libmicrohttpd has no TLS", address);
    if (first == NULL ? !qd_socket_listen(&endpoint->socket, address, &wanted, error)
                      : !qd_socket_join(&endpoint->socket, &first->socket, BACKLOG, error))
        return false;
    endpoint->exchange = exchange;
    endpoint->index = index;
    endpoint->is_https = has_tls && endpoint->socket.unix_path[0] == '\0';
    endpoint->mhd = start_daemon(endpoint);
    if (endpoint->mhd == NULL) {
        close(endpoint->socket.fd);
        qd_socket_unlink(&endpoint->socket);
        return qd_fail_startup(error, "cannot listen on %s: libmicrohttpd did not start", address);
    }
    endpoint->pause_timer = qd_loop_timer(exchange->loop, resume, endpoint);
    if (endpoint->pause_timer == NULL || !watch(endpoint)) {
        qd_endpoint_close(endpoint);
        return qd_fail_startup(error, "cannot listen on %s: the loop cannot watch it", address);
    }
    if (first == NULL)
        warn_of_strangers(endpoint);
    return true;
}

void qd_endpoint_close(struct qd_endpoint *endpoint)
{
    qd_handle_destroy(endpoint->watch);
    qd_handle_destroy(endpoint->pause_timer);
    qd_socket_unlink(&endpoint->socket);
    MHD_stop_daemon(endpoint->mhd); /* aborts if a connection is suspended */
}

uint64_t qd_endpoint_run(struct qd_endpoint *endpoint)
{
    MHD_UNSIGNED_LONG_LONG ms = 0;
    if (endpoint->watch == NULL)
        return UINT64_MAX;
    for (unsigned i = 0; i < RUNS_MAX && ms == 0; i++) {
        MHD_run(endpoint->mhd);
        if (pauses(endpoint) || MHD_get_timeout(endpoint->mhd, &ms) != MHD_YES)
            return UINT64_MAX;
    }
    return ms;
}

/* Clients that have already connected get an answer: the kernel would reset those that are still in
 * its backlog when the socket closes. */
void qd_endpoint_drain(struct qd_endpoint *endpoint)
{
    struct pollfd waiting = {.fd = endpoint->socket.fd, .events = POLLIN};
    qd_socket_unlink(&endpoint->socket);
    for (unsigned i = 0; i < BACKLOG && poll(&waiting, 1, 0) > 0; i++)
        MHD_run(endpoint->mhd);
    int fd = MHD_quiesce_daemon(endpoint->mhd);
    if (fd >= 0)
        close(fd);
    endpoint->socket.fd = -1;
}
