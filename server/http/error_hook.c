#define _GNU_SOURCE
#include "server/http/error_hook.h"

#include <dlfcn.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/base/limits.h"

static enum MHD_Result (*library_queue)(struct MHD_Connection *connection, unsigned http_status,
                                        struct MHD_Response *response);
static enum MHD_Result (*hook)(struct MHD_Connection *connection, unsigned http_status);

/* libmicrohttpd's own calls come here, instead of to its own function. */
__attribute__((visibility("default"))) enum MHD_Result
MHD_queue_response(struct MHD_Connection *connection, unsigned http_status,
                   struct MHD_Response *response)
{
    return hook != NULL ? hook(connection, http_status)
                        : qd_error_hook_queue(connection, http_status, response);
}

enum MHD_Result qd_error_hook_queue(struct MHD_Connection *connection, unsigned http_status,
                                    struct MHD_Response *response)
{
    return library_queue == NULL ? MHD_NO : library_queue(connection, http_status, response);
}

void qd_error_hook_explain(unsigned http_status, bool in_head, bool in_body, struct qd_error *error)
{
    switch (http_status) {
    case MHD_HTTP_CONTENT_TOO_LARGE:
        qd_fail(error, QD_TOO_LARGE, "the body: expected a size of at most 64 bits, got more");
        break;
    case MHD_HTTP_URI_TOO_LONG:
        qd_fail(error, QD_LINE_TOO_LONG,
                "the first line: expected a target of at most %u bytes, got more",
                QD_HEAD_BYTES_MAX);
        break;
    case MHD_HTTP_REQUEST_HEADER_FIELDS_TOO_LARGE:
        qd_fail(
            error, QD_HEAD_TOO_LARGE,
            "the head: expected at most %u bytes, %u more for each field and cookie and cookies "
            "three times, got more",
            QD_HEAD_BYTES_MAX, QD_HEAD_FIELD_BYTES);
        break;
    case MHD_HTTP_HTTP_VERSION_NOT_SUPPORTED:
        qd_fail(error, QD_OTHER_VERSION, "the first line: expected HTTP/1.x, got another version");
        break;
    default:
        qd_fail(error, QD_INVALID, "%s",
                in_body   ? "the body: expected chunks as RFC 9112 has them, got something else"
                : in_head ? "the head: expected NAME: VALUE in each line, got one without a colon"
                          : "the first line: expected METHOD TARGET HTTP/1.1, got something else");
    }
}

bool qd_error_hook_would_repeat(struct MHD_Connection *connection, bool in_body)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    return MHD_get_version()[0] == '0' && !in_body && info != NULL && info->header_size > 0;
}

/* ---- The trial ---------------------------------------------------------------------------- */

static bool caught;

static enum MHD_Result catch_trial(struct MHD_Connection *connection, unsigned http_status)
{
    (void)connection;
    caught = http_status == MHD_HTTP_HTTP_VERSION_NOT_SUPPORTED;
    return MHD_NO;
}

static enum MHD_Result never(void *context, struct MHD_Connection *connection, const char *target,
                             const char *method, const char *version, const char *bytes,
                             size_t *count, void **slot)
{
    (void)context, (void)connection, (void)target, (void)method, (void)version, (void)bytes;
    (void)count, (void)slot;
    return MHD_NO;
}

/* Gives the daemon, which has no socket, one end of a socket pair. The other end has sent a head
 * that every version of libmicrohttpd refuses. */
static void try_out(struct MHD_Daemon *daemon)
{
    static const char head[] = "GET / HTTP/9.9\r\n\r\n";
    const struct sockaddr_storage nobody = {.ss_family = AF_UNIX};
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0)
        return;
    bool sent = write(ends[1], head, strlen(head)) == (ssize_t)strlen(head);
    /* The daemon owns ends[0] from here on, even if the call fails. */
    MHD_add_connection(daemon, ends[0], (const struct sockaddr *)&nobody, sizeof(nobody));
    for (unsigned i = 0; sent && !caught && i < 8; i++)
        MHD_run(daemon);
    close(ends[1]);
}

bool qd_error_hook_start(enum MHD_Result (*callback)(struct MHD_Connection *connection,
                                                     unsigned http_status))
{
    void *symbol = dlsym(RTLD_NEXT, "MHD_queue_response");
    /* ISO C has no cast from void * to a function pointer. */
    memcpy(&library_queue, &symbol, sizeof(symbol));
    struct MHD_Daemon *daemon = MHD_start_daemon(MHD_USE_NO_LISTEN_SOCKET | MHD_USE_EPOLL, 0, NULL,
                                                 NULL, never, NULL, MHD_OPTION_END);
    caught = false;
    hook = catch_trial;
    if (library_queue != NULL && daemon != NULL)
        try_out(daemon);
    if (daemon != NULL)
        MHD_stop_daemon(daemon);
    hook = callback;
    return caught;
}
