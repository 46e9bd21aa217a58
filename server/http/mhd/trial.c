#define _GNU_SOURCE
#include "server/http/mhd/hooks.h"

#include <dlfcn.h>
#include <microhttpd.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/memory/text.h"
#include "server/telemetry/log.h"

/* A variable with the names of functions, separated by commas. Tests set it, to see that the server
 * is right without these hooks. */
#define UNHOOKED "QD_UNHOOKED"

static const char *const names[] = {
#define X(name, group, function) #function,
    QD_HOOK_LIST(X)
#undef X
};

static const enum qd_hook_group groups[] = {
#define X(name, group, function) QD_HOOKS_##group,
    QD_HOOK_LIST(X)
#undef X
};

static bool started;
static bool works[] = {[QD_HOOKS_SOCKET] = false, [QD_HOOKS_TLS] = false};
static _Thread_local bool seen[QD_HOOK_COUNT];
static _Thread_local bool is_trial;
static _Thread_local enum qd_hook_group trial_group;

/* Looks the function up at its first call. A constructor of our own would be too late, because the
 * start of some library may call the function before it. */
void *qd_hook_next(enum qd_hook hook)
{
    static _Atomic(void *) found[QD_HOOK_COUNT];
    void *symbol = atomic_load_explicit(&found[hook], memory_order_relaxed);
    if (symbol == NULL) {
        symbol = dlsym(RTLD_NEXT, names[hook]);
        atomic_store_explicit(&found[hook], symbol, memory_order_relaxed);
    }
    return symbol;
}

bool qd_hooks_work(enum qd_hook_group group)
{
    return works[group];
}

static bool is_unhooked(enum qd_hook hook)
{
    const char *list = getenv(UNHOOKED);
    return list != NULL && qd_list_has(list, names[hook]);
}

bool qd_trial_saw(enum qd_hook hook)
{
    if (!is_trial || groups[hook] != trial_group || is_unhooked(hook))
        return false;
    seen[hook] = true;
    return true;
}

/* Answers with the response whose index is the target: "/0" or "/1". */
static enum MHD_Result answer(void *responses, struct MHD_Connection *connection,
                              const char *target, const char *method, const char *version,
                              const char *bytes, size_t *count, void **slot)
{
    (void)method, (void)version, (void)bytes, (void)count;
    if (*slot != NULL)
        return MHD_queue_response(connection, MHD_HTTP_OK,
                                  ((struct MHD_Response **)responses)[target[1] == '1']);
    *slot = connection;
    return MHD_YES;
}

/* Gives the daemon, which has no socket, one end of a socket pair. The other end has sent two
 * requests. They get an empty answer and one in parts, as the server sends them. */
static void try_out(struct MHD_Daemon *daemon)
{
    static const char requests[] = "GET /0 HTTP/1.1\r\nHost: q\r\n\r\n"
                                   "GET /1 HTTP/1.1\r\nHost: q\r\n\r\n";
    enum { BYTES = sizeof(requests) - 1, RUNS = 32 };
    const struct sockaddr_storage nobody = {.ss_family = AF_UNIX};
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0)
        return;
    const bool sent = write(ends[1], requests, BYTES) == (ssize_t)BYTES &&
                      shutdown(ends[1], SHUT_WR) == 0; /* then the library calls gnutls_bye */
    is_trial = true;
    /* The daemon owns ends[0] from here on, even if the call fails. */
    MHD_add_connection(daemon, ends[0], (const struct sockaddr *)&nobody, sizeof(nobody));
    for (unsigned i = 0; sent && i < RUNS; i++)
        MHD_run(daemon);
    is_trial = false;
    close(ends[1]);
}

/* Tries out a daemon with TLS, or one without. The hooks of TLS leave out the encryption meanwhile,
 * so that the trial needs no client of its own. */
static void try_daemon(const struct qd_tls *tls, struct MHD_Response *responses[])
{
    const unsigned flags =
        MHD_USE_NO_LISTEN_SOCKET | MHD_USE_EPOLL | (tls != NULL ? (unsigned)MHD_USE_TLS : 0);
    struct MHD_Daemon *daemon =
        MHD_start_daemon(flags, 0, NULL, NULL, answer, responses,
                         tls != NULL ? MHD_OPTION_HTTPS_MEM_CERT : MHD_OPTION_END,
                         tls != NULL ? qd_tls_cert_text(tls) : NULL, MHD_OPTION_HTTPS_MEM_KEY,
                         tls != NULL ? qd_tls_key_text(tls) : NULL, MHD_OPTION_END);
    if (daemon == NULL)
        return;
    trial_group = tls != NULL ? QD_HOOKS_TLS : QD_HOOKS_SOCKET;
    try_out(daemon);
    MHD_stop_daemon(daemon);
}

/* Decides which groups of hooks work, and logs which hooks do not. */
static void judge(bool has_tls)
{
    static const char *const without[] = {
        [QD_HOOKS_SOCKET] = "without TLS, connections end after one answer, and libmicrohttpd "
                            "alone checks what they bring",
        [QD_HOOKS_TLS] = "with TLS, connections end after one answer, and libmicrohttpd alone "
                         "checks what they bring",
    };
    for (size_t i = 0; i < sizeof(works) / sizeof(*works); i++)
        works[i] = true;
    for (unsigned i = 0; i < QD_HOOK_COUNT; i++) {
        works[groups[i]] = works[groups[i]] && seen[i];
        if (!seen[i] && (has_tls || groups[i] != QD_HOOKS_TLS))
            qd_log(QD_LOG_WARN, "libmicrohttpd does not call a function as expected",
                   "function=%s version=%s effect=\"%s\"", names[i], MHD_get_version(),
                   without[groups[i]]);
    }
}

void qd_hooks_start(const struct qd_tls *tls)
{
    if (started)
        return;
    started = true;
    const struct MHD_IoVec parts[] = {{"{", 1}, {"}", 1}};
    struct MHD_Response *responses[] = {
        MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT),
        MHD_create_response_from_iovec(parts, 2, NULL, NULL),
    };
    if (responses[0] != NULL && responses[1] != NULL) {
        try_daemon(NULL, responses);
        if (tls != NULL)
            try_daemon(tls, responses);
    }
    MHD_destroy_response(responses[0]); /* NULL is fine */
    MHD_destroy_response(responses[1]);
    judge(tls != NULL);
}
